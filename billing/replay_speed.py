"""How fast endpoints were in a period, row by row, as the ledger has it: to replay its requests by engines as fast.

Gateways that know the speed of their endpoints write what the prompt of each request took to compute by that
(`prefill_s`), and streams what their answer took (`decode_s`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import inspect, select

from billing.reading import reading
from billing.replay import LedgerPeriod
from billing.reports.reading import need_rows
from billing.reports.report import opened_in
from billing.schema import requests, settlements
from billing.types import SettlementState
from billing.when import to_us

_PAGE_ROWS = 2000


@dataclass(frozen=True, slots=True)
class MeasuredWork:
    """One request: so many uncached of its prompt tokens took `prefill_s`, its `output_tokens` took `decode_s` from the
    first to the last. Either of the two may be unknown."""

    opened_at_us: int
    prompt_tokens: int
    uncached_tokens: int
    output_tokens: int
    prefill_s: float | None
    decode_s: float | None


def measured_work(period: LedgerPeriod, model: str) -> Iterator[MeasuredWork]:
    """What is known of a model's requests that were paid for, file by file, in order within each.

    Lazy; O(requests). Raises `LedgerUnavailable`, and `PeriodInvalid` where rows were archived.
    """
    for path in period.paths:
        yield from _measured_in(path, period, model)


def _measured_in(path: Path | str, period: LedgerPeriod, model: str) -> Iterator[MeasuredWork]:
    s = settlements.c
    query = (
        select(
            requests.c.opened_at_us,
            s.prompt_tokens,
            s.prompt_tokens - s.cached_tokens,
            s.output_tokens,
            s.prefill_s,
            s.decode_s,
        )
        .join_from(requests, settlements, s.request_id == requests.c.request_id)
        .where(
            *opened_in(period.start, period.end, period.tenant),
            requests.c.model == model,
            s.settled_at_us <= to_us(period.as_of),
            s.state.in_([state.value for state in SettlementState if state.billable]),
            s.prompt_tokens.is_not(None) & s.cached_tokens.is_not(None) & s.output_tokens.is_not(None),
            s.prefill_s.is_not(None) | s.decode_s.is_not(None),
        )
        .order_by(requests.c.opened_at_us, requests.c.request_id)
    )
    with reading(path) as connection:
        need_rows(connection, to_us(period.start), to_us(period.end), period.paths)
        if not {"prefill_s", "decode_s"} <= {
            column["name"] for column in inspect(connection).get_columns(settlements.name)
        }:
            return  # a file that only older gateways had
        for row in connection.execution_options(yield_per=_PAGE_ROWS).execute(query):
            yield MeasuredWork(*row)
