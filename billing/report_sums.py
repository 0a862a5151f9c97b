"""The sums of a report as SQL, from rows or from roll-ups: two sources, one shape, and equal to the last digit.

    rows       requests -- settlements      sums of what each request was
    quarters   usage_quarters               the same sums by quarter of an hour, kept in the rows' own transactions

Both give, for each group and each state, set of flags and verdict within it (few of them differ), the columns that
`tally_of` reads. In roll-ups openings have a state of their own: what was opened and not settled is in flight.
Sums: a 64-bit sum of pico-units would overflow at 9.2 million units, so whole units and both halves of the remainder
are summed apart and joined in Python.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, FromClause, RowMapping, Select, case, func, select

from billing.money import joined_pico
from billing.report_tally import COUNTED_FLAGS, IN_FLIGHT, STATES, TOKEN_SUMS, Tally
from billing.schema import OPENED, requests, settlements, usage_quarters
from billing.types import SettlementState, UsageFlag, Verdict

_HALF = 10**6
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
        units, pico = table.c[f"{name}_units"], table.c[f"{name}_pico"]
        yield func.sum(units).label(f"{name}_units")
        yield func.sum(pico // _HALF).label(f"{name}_high")
        yield func.sum(pico % _HALF).label(f"{name}_low")


ROW_SUMS: Sequence[ColumnElement[Any]] = (
    func.count().label("requests"),
    *(func.coalesce(func.sum(column), 0).label(name) for name, column in _ROW_TOKENS.items()),
    *_amounts(settlements),
    func.sum(case((_s.charged_units.is_(None), 1), else_=0)).label("unknown_amounts"),
)
QUARTER_SUMS: Sequence[ColumnElement[Any]] = (
    func.sum(_q.requests).label("requests"),
    *(func.sum(_q[name]).label(name) for name in TOKEN_SUMS),
    *_amounts(usage_quarters),
    func.sum(_q.unknown_amounts).label("unknown_amounts"),
)

ROWS = requests.outerjoin(settlements, _s.request_id == requests.c.request_id)
"""Requests, each with how it ended, where it has."""


def sums(keys: Sequence[ColumnElement[Any]], source: FromClause, chosen: Sequence[ColumnElement[bool]]) -> Select[Any]:
    """From rows: one row per set of keys, which have state and flags among them, for `tally_of`."""
    return select(*keys, *ROW_SUMS).select_from(source).where(*chosen).group_by(*keys)


def tally_of(row: RowMapping) -> Tally:
    """A row of `sums` or `quarter_sums`, of one state, set of flags and verdict."""
    state, count = row["state"] or IN_FLIGHT, int(row["requests"])
    states = dict.fromkeys(STATES, 0) | {state: count}
    if state == IN_FLIGHT or not SettlementState(state).billable:
        return Tally(states, dict.fromkeys(COUNTED_FLAGS, 0), verdicts=dict.fromkeys(Verdict, 0))
    flags, verdict = row["flags"].split(","), row.get("verdict") or ""
    cached_tokens = int(row["cached_tokens"])
    unknown = int(row["unknown_amounts"])
    amounts = {name: None if unknown == count else _joined(row, name) for name in _AMOUNTS}
    return Tally(
        states=states,
        flags={flag: count if flag.value in flags else 0 for flag in COUNTED_FLAGS},
        prompt_tokens=int(row["prompt_tokens"]),
        cached_tokens=cached_tokens,
        cache_write_tokens=int(row["cache_write_tokens"]),
        output_tokens=int(row["output_tokens"]),
        reported_prompt_tokens=int(row["reported_prompt_tokens"]),
        reported_cached_tokens=int(row["reported_cached_tokens"]),
        full_pico=amounts["full"],
        charged_pico=amounts["charged"],
        list_pico=amounts["list"],
        discounted_tokens=int(row["discounted_tokens"]),
        reasoning_tokens=int(row["reasoning_tokens"]),
        expected_cached_tokens=int(row["expected_cached_tokens"]),
        verdicts={one: count if one.value == verdict else 0 for one in Verdict},
        verified_cached_tokens=cached_tokens if verdict == Verdict.VERIFIED.value else 0,
        disputed_cached_tokens=cached_tokens if UsageFlag.DISPUTED.value in flags else 0,
        unknown_amounts=unknown,
    )


def without_openings(rows: Iterable[RowMapping], group: Sequence[str]) -> tuple[list[RowMapping], dict[Any, int]]:
    """Rows of `quarter_sums` without the openings; and how many of each group are in flight, where any is."""
    settled: list[RowMapping] = []
    in_flight: dict[Any, int] = {}
    for row in rows:
        key = tuple(row[name] for name in group)
        if row["state"] == OPENED:
            in_flight[key] = in_flight.get(key, 0) + int(row["requests"])
        else:
            in_flight[key] = in_flight.get(key, 0) - int(row["requests"])
            settled.append(row)
    return settled, {key: count for key, count in in_flight.items() if count}


def in_flight_tally(count: int) -> Tally:
    """Requests that have not ended."""
    states = dict.fromkeys(STATES, 0) | {IN_FLIGHT: count}
    return Tally(states, dict.fromkeys(COUNTED_FLAGS, 0), verdicts=dict.fromkeys(Verdict, 0))


def _joined(row: RowMapping, name: str) -> int | None:
    if row[f"{name}_units"] is None:
        return None
    return joined_pico(int(row[f"{name}_units"]), int(row[f"{name}_high"]) * _HALF + int(row[f"{name}_low"]))
