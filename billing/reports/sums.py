"""The sums of a report as SQL, from rows or from roll-ups: two sources, one shape, and equal to the last digit.

    rows       requests -- settlements      sums of what each request was
    quarters   usage_quarters               the same sums by quarter of an hour, kept in the rows' own transactions

Both give, for each group and each state, set of flags and verdict within it (few of them differ), the columns that
`tally_of` reads. In roll-ups openings have a state of their own: what was opened and not settled is in flight.
What roll-ups are grouped by has a hash, `group_id`: to sort by it takes half of the time of sorting by its columns.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any

from sqlalchemy import ColumnElement, FromClause, RowMapping, Select, case, func, literal, select

from billing.amount_sums import amount_sums, summed_pico
from billing.reports.tally import COUNTED_FLAGS, IN_FLIGHT, STATES, TOKEN_SUMS, Tally
from billing.schema import requests, settlements, usage_quarters
from billing.types import BILLABLE_STATES, UsageFlag, Verdict

_AMOUNTS = ("full", "charged", "list")
_s = settlements.c
_q = usage_quarters.c
_reported = _s.cached_tokens.is_not(None) & _s.flags.not_like(f"%{UsageFlag.ESTIMATED.value}%")
_ROW_TOKENS: Mapping[str, ColumnElement[Any]] = {
    **{name: _s[name] for name in TOKEN_SUMS if not name.startswith("reported")},
    "reported_prompt_tokens": case((_reported, _s.prompt_tokens)),
    "reported_cached_tokens": case((_reported, _s.cached_tokens)),
}


def _amounts(table: FromClause) -> Iterable[ColumnElement[Any]]:
    for name in _AMOUNTS:
        yield from amount_sums(name, table.c[f"{name}_units"], table.c[f"{name}_pico"])


def _small_amounts(name: str) -> Iterable[ColumnElement[Any]]:
    """Of cells of one group of roll-ups, whose remainders are below one unit: no 64 bits overflow within centuries."""
    yield func.sum(_q[f"{name}_units"]).label(f"{name}_units")
    yield literal(0).label(f"{name}_high")
    yield func.sum(_q[f"{name}_pico"]).label(f"{name}_low")


ROW_SUMS: Sequence[ColumnElement[Any]] = (
    func.count().label("requests"),
    *(func.coalesce(func.sum(column), 0).label(name) for name, column in _ROW_TOKENS.items()),
    *_amounts(settlements),
    func.sum(case((_s.charged_units.is_(None), 1), else_=0)).label("unknown_amounts"),
)
QUARTER_SUMS: Sequence[ColumnElement[Any]] = (
    func.sum(_q.requests).label("requests"),
    *(func.sum(_q[name]).label(name) for name in TOKEN_SUMS),
    *(column for name in _AMOUNTS for column in _small_amounts(name)),
    func.sum(_q.unknown_amounts).label("unknown_amounts"),
)

SUM_NAMES = tuple(str(getattr(column, "name", "")) for column in ROW_SUMS)
_CACHED, _UNKNOWN = SUM_NAMES.index("cached_tokens"), SUM_NAMES.index("unknown_amounts")

ROWS = requests.outerjoin(settlements, _s.request_id == requests.c.request_id)
"""Requests, each with how it ended, where it has."""


def sums(keys: Sequence[ColumnElement[Any]], source: FromClause, chosen: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """From rows: one row per set of keys, which have state and flags among them, for `tally_of`."""
    return select(*keys, *ROW_SUMS).select_from(source).where(*chosen).group_by(*keys)


class Summing:
    """Sums of one group, to which rows of `ROW_SUMS` or `QUARTER_SUMS` are added."""

    __slots__ = ("_disputed", "_flags", "_known", "_states", "_sums", "_verdicts", "_verified")

    def __init__(self) -> None:
        self._states: dict[str, int] = defaultdict(int)
        self._flags: dict[str, int] = defaultdict(int)
        self._verdicts: dict[str, int] = defaultdict(int)
        self._sums: list[int] = [0] * len(SUM_NAMES)
        self._known = 0
        self._verified = 0
        self._disputed = 0

    def add(self, state: str, flags: str, verdict: str, sums: Sequence[int]) -> None:
        """Add the sums over requests of one state, set of flags and verdict, in the order of `SUM_NAMES`."""
        count = sums[0]
        self._states[state] += count
        if state not in BILLABLE_STATES:
            return
        for flag in flags.split(","):
            self._flags[flag] += count
        self._verdicts[verdict] += count
        self._sums = list(map(add, self._sums, sums))
        self._known += count - sums[_UNKNOWN]
        if verdict == Verdict.VERIFIED.value:
            self._verified += sums[_CACHED]
        if UsageFlag.DISPUTED.value in flags:
            self._disputed += sums[_CACHED]

    def add_in_flight(self, count: int) -> None:
        """Add requests that have not ended."""
        self._states[IN_FLIGHT] += count

    def tally(self) -> Tally:
        """The sums until now."""
        sums = {name: int(value) for name, value in zip(SUM_NAMES, self._sums, strict=True)}
        amounts = {name: summed_pico(sums, name) if self._known else None for name in _AMOUNTS}
        return Tally(
            states={state: int(self._states[state]) for state in STATES},
            flags={flag: int(self._flags[flag.value]) for flag in COUNTED_FLAGS},
            prompt_tokens=sums["prompt_tokens"],
            cached_tokens=sums["cached_tokens"],
            cache_write_tokens=sums["cache_write_tokens"],
            output_tokens=sums["output_tokens"],
            reported_prompt_tokens=sums["reported_prompt_tokens"],
            reported_cached_tokens=sums["reported_cached_tokens"],
            full_pico=amounts["full"],
            charged_pico=amounts["charged"],
            list_pico=amounts["list"],
            discounted_tokens=sums["discounted_tokens"],
            reasoning_tokens=sums["reasoning_tokens"],
            expected_cached_tokens=sums["expected_cached_tokens"],
            verdicts={one: int(self._verdicts[one.value]) for one in Verdict},
            verified_cached_tokens=int(self._verified),
            disputed_cached_tokens=int(self._disputed),
            unknown_amounts=sums["unknown_amounts"],
        )


def tally_of(row: RowMapping) -> Tally:
    """A row of `sums`, of one state, set of flags and verdict."""
    summing = Summing()
    summing.add(
        row["state"] or IN_FLIGHT, row["flags"] or "", row.get("verdict") or "", [row[name] for name in SUM_NAMES]
    )
    return summing.tally()
