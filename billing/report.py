"""What a period cost, per tenant, model and currency, with totals that are the sums of the lines to the last digit.

    requests opened in [from, to) -- settlements --> Line per tenant x model x currency --> Total per currency

Only billable requests (complete and partial) bring tokens and money; the others are counted. Unknown is never zero:
  unreported   the engine did not say what was cached; billed at the input price; left out of the hit share
  incomplete   some count is unknown and so not in the amount
  unpriced     no price for the model at that time; the amount is unknown, and so is a line that has no other
The file is only read, on a snapshot: a gateway may write meanwhile. Cost: O(requests in the period), in SQLite.
Sums: a 64-bit sum of pico-units would overflow at 9.2 million units, so whole units and both halves of the remainder
are summed apart and joined in Python.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    FromClause,
    RowMapping,
    Select,
    case,
    func,
    select,
)

from billing.errors import PeriodInvalid
from billing.money import joined_pico
from billing.reading import reading
from billing.schema import requests, settlements
from billing.types import SettlementState, UsageFlag
from billing.when import to_us

IN_FLIGHT = "in_flight"
"""State of a request that has no settlement yet."""

STATES = (*(state.value for state in SettlementState), IN_FLIGHT)

COUNTED_FLAGS = (
    UsageFlag.UNREPORTED,
    UsageFlag.INCOMPLETE,
    UsageFlag.UNPRICED,
    UsageFlag.ESTIMATED,
    UsageFlag.CLAMPED,
    UsageFlag.INVALID,
    UsageFlag.DISPUTED,
)
"""Flags whose requests a report counts."""

Key = TypeVar("Key")

_HALF = 10**6
_s = settlements.c
_TOKENS = (_s.prompt_tokens, _s.cached_tokens, _s.cache_write_tokens, _s.output_tokens)


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over requests. Tokens, flags and money are of billable ones only; an amount is None where none is known."""

    states: Mapping[str, int]
    flags: Mapping[UsageFlag, int]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0
    """Prompt tokens of the requests whose cached count is known."""
    full_pico: int | None = None
    charged_pico: int | None = None

    @property
    def requests(self) -> int:
        """All of them, however they ended."""
        return sum(self.states.values())

    @property
    def saved_pico(self) -> int | None:
        """Amount at full price less amount charged."""
        return None if self.full_pico is None or self.charged_pico is None else self.full_pico - self.charged_pico

    @property
    def hit_share(self) -> float | None:
        """Cached over prompt tokens, where the engine reported both; None where it never did. No estimates."""
        return self.reported_cached_tokens / self.reported_prompt_tokens if self.reported_prompt_tokens else None

    def plus(self, other: "Tally") -> "Tally":
        """Both together."""
        return Tally(
            states={state: self.states[state] + other.states[state] for state in STATES},
            flags={flag: self.flags[flag] + other.flags[flag] for flag in COUNTED_FLAGS},
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reported_prompt_tokens=self.reported_prompt_tokens + other.reported_prompt_tokens,
            reported_cached_tokens=self.reported_cached_tokens + other.reported_cached_tokens,
            full_pico=_sum_of_known(self.full_pico, other.full_pico),
            charged_pico=_sum_of_known(self.charged_pico, other.charged_pico),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One tenant's use of one model. `currency` is None without a price book, and for what is still in flight."""

    tenant_id: str
    model: str
    currency: str | None
    tally: Tally


@dataclass(frozen=True, slots=True)
class Report:
    """Lines of a period, end exclusive, sorted by tenant, model and currency; `totals` are their sums by currency."""

    start: datetime
    end: datetime
    lines: tuple[Line, ...]
    totals: Mapping[str | None, Tally]


def report(path: Path | str, from_: datetime, to: datetime, tenant: str | None = None) -> Report:
    """Report the requests opened in [from_, to), of one tenant or all. Raises `LedgerUnavailable`, `PeriodInvalid`."""
    keys = (requests.c.tenant_id, requests.c.model, _s.currency, _s.state, _s.flags)
    source = requests.outerjoin(settlements, _s.request_id == requests.c.request_id)
    chosen = opened_in(from_, to, tenant)
    with reading(path) as connection:
        rows = connection.execute(sums(keys, source, chosen)).mappings().all()
    lines = _lines(rows)
    totals = _folded((line.currency, line.tally) for line in lines)
    return Report(from_, to, lines, totals)


def opened_in(from_: datetime, to: datetime, tenant: str | None) -> list[ColumnElement[bool]]:
    """Conditions of the requests of a period, of one tenant or all. Raises `PeriodInvalid`."""
    if from_.tzinfo is None or to.tzinfo is None:
        raise PeriodInvalid(f"{from_} to {to}", "both ends need a time zone")
    if to <= from_:
        raise PeriodInvalid(f"{from_.isoformat()} to {to.isoformat()}", "the end must be after the beginning")
    chosen = [requests.c.opened_at_us >= to_us(from_), requests.c.opened_at_us < to_us(to)]
    return chosen if tenant is None else [*chosen, requests.c.tenant_id == tenant]


def sums(keys: Sequence[ColumnElement[Any]], source: FromClause, chosen: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """One row per set of keys, which have state and flags among them, for `tally_of`; few sets of flags differ."""
    reported = _s.cached_tokens.is_not(None) & _s.flags.not_like(f"%{UsageFlag.ESTIMATED.value}%")
    return (
        select(
            *keys,
            func.count().label("requests"),
            *(func.coalesce(func.sum(column), 0).label(column.name) for column in _TOKENS),
            func.coalesce(func.sum(case((reported, _s.prompt_tokens))), 0).label("reported"),
            func.coalesce(func.sum(case((reported, _s.cached_tokens))), 0).label("reported_cached"),
            *_amount("full", _s.full_units, _s.full_pico),
            *_amount("charged", _s.charged_units, _s.charged_pico),
        )
        .select_from(source)
        .where(*chosen)
        .group_by(*keys)
    )


def _amount(name: str, units: Column[int], pico: Column[int]) -> Iterable[ColumnElement[Any]]:
    yield func.sum(units).label(f"{name}_units")
    yield func.sum(pico // _HALF).label(f"{name}_high")
    yield func.sum(pico % _HALF).label(f"{name}_low")


def _lines(rows: Iterable[RowMapping]) -> tuple[Line, ...]:
    tallies = _folded(((row["tenant_id"], row["model"], row["currency"]), tally_of(row)) for row in rows)
    lines = (Line(*key, tally) for key, tally in tallies.items())
    return tuple(sorted(lines, key=lambda line: (line.tenant_id, line.model, line.currency or "")))


def _folded(tallies: Iterable[tuple[Key, Tally]]) -> dict[Key, Tally]:
    """The sum of the tallies of each key."""
    found: dict[Key, Tally] = {}
    for key, tally in tallies:
        found[key] = found[key].plus(tally) if key in found else tally
    return found


def tally_of(row: RowMapping) -> Tally:
    """A row of `sums`."""
    state = row["state"] or IN_FLIGHT
    states = dict.fromkeys(STATES, 0) | {state: row["requests"]}
    if state == IN_FLIGHT or not SettlementState(state).billable:
        return Tally(states, dict.fromkeys(COUNTED_FLAGS, 0))
    flags = row["flags"].split(",")
    return Tally(
        states=states,
        flags={flag: row["requests"] if flag.value in flags else 0 for flag in COUNTED_FLAGS},
        prompt_tokens=int(row["prompt_tokens"]),
        cached_tokens=int(row["cached_tokens"]),
        cache_write_tokens=int(row["cache_write_tokens"]),
        output_tokens=int(row["output_tokens"]),
        reported_prompt_tokens=int(row["reported"]),
        reported_cached_tokens=int(row["reported_cached"]),
        full_pico=_joined(row, "full"),
        charged_pico=_joined(row, "charged"),
    )


def _joined(row: RowMapping, name: str) -> int | None:
    if row[f"{name}_units"] is None:
        return None
    return joined_pico(int(row[f"{name}_units"]), int(row[f"{name}_high"]) * _HALF + int(row[f"{name}_low"]))


def _sum_of_known(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one + other
