"""The tokens of a row by what they were billed as: four kinds, disjoint, each at one rate.

    input         prompt - discounted - written     at the input price; cached ones that are billed in full are here
    cache_read    discounted                        at the cached price
    cache_write   written
    output

Together with the rates of the row they make its amount, to the last digit.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, func

from billing.schema import settlements
from billing.types import SettlementState


class Kind(StrEnum):
    """What a token was billed as."""

    INPUT = "input"
    CACHE_READ = "cache_read"
    CACHE_WRITE = "cache_write"
    OUTPUT = "output"


_s = settlements.c
_discounted = func.coalesce(_s.discounted_tokens, 0)
_written = func.coalesce(_s.cache_write_tokens, 0)
_prompt = func.coalesce(_s.prompt_tokens, func.coalesce(_s.cached_tokens, 0) + _written)

KIND_SQL: Mapping[Kind, ColumnElement[int]] = {
    Kind.INPUT: _prompt - _discounted - _written,
    Kind.CACHE_READ: _discounted,
    Kind.CACHE_WRITE: _written,
    Kind.OUTPUT: func.coalesce(_s.output_tokens, 0),
}
"""Tokens of each kind of a settlement, unknown ones as 0, for rows that are billable."""

RATE_COLUMNS: Mapping[Kind, str] = {
    Kind.INPUT: "input_pico",
    Kind.CACHE_READ: "cached_input_pico",
    Kind.CACHE_WRITE: "cache_write_pico",
    Kind.OUTPUT: "output_pico",
}
"""The column of the rate of each kind; where it is NULL, the input rate holds."""


def tokens_by_kind(row: RowMapping | Mapping[str, Any]) -> dict[Kind, int]:
    """The tokens that a settled request is billed for, where they are known and there are any."""
    if row["state"] is None or not SettlementState(row["state"]).billable:
        return {}
    discounted, written = row["discounted_tokens"] or 0, row["cache_write_tokens"] or 0
    prompt = row["prompt_tokens"]
    if prompt is None:
        prompt = (row["cached_tokens"] or 0) + written
    counts = {
        Kind.INPUT: prompt - discounted - written,
        Kind.CACHE_READ: discounted,
        Kind.CACHE_WRITE: written,
        Kind.OUTPUT: row["output_tokens"] or 0,
    }
    return {kind: tokens for kind, tokens in counts.items() if tokens}
