"""Usage as rows of FOCUS, the FinOps Open Cost and Usage Specification, versions 1.2 and 1.4: one per kind of token.

    hour × tenant × key × model × tags × price × how it is known  -->  input, cache read, cache write, output
    correction                                                    -->  one row: Correction, Credit or Adjustment

Within such a group all tokens of a kind have one rate, so unit price × quantity is the cost, exactly; the sum of the
costs is the sum of the amounts charged, to the last digit. A cached token keeps its own list price: that it is cheaper
than a fresh one is no discount of the list, so the fresh price stands beside it (`x_UncachedUnitPrice`).

FOCUS knows no unknown cost. Requests without a known amount are in no row; `Unknown` says how many they are.
Read hour by hour from rows, so memory is constant. Source: focus.finops.org, columns of the cost and usage dataset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, RowMapping, case, func, select

from billing.amount_sums import amount_sums, summed_pico
from billing.reports.focus_lines import FocusLine, Part, Seller, charge_line, correction_line, difference_line
from billing.reports.groups import FROM_ROWS, groups
from billing.reports.query import Query
from billing.reports.reading import need_rows
from billing.reports.rows import correction_rows, pico_of
from billing.reports.sums import ROWS
from billing.reports.tokens_by_kind import KIND_SQL, RATE_COLUMNS, Kind
from billing.reports.zones import hours_of
from billing.schema import requests, settlements
from billing.types import BILLABLE_STATES, UsageFlag

_r, _s = requests.c, settlements.c
_cached_source = case(
    (_s.flags.like(f"%{UsageFlag.ESTIMATED.value}%"), "index"),
    (_s.cached_tokens.is_(None), "none"),
    else_="engine",
).label("cached_source")
_RATES = tuple(_s[name] for name in RATE_COLUMNS.values())
_KEYS = (_r.tenant_id, _r.key_id, _r.model, _r.tags, _s.price_id, _s.currency, _s.state, _s.verdict)


class Version(StrEnum):
    """Of the specification."""

    V1_2 = "1.2"
    V1_4 = "1.4"


@dataclass(slots=True)
class Unknown:
    """Requests that are in no row, since what they cost is not known; counted while the rows are read."""

    requests: int = 0


def focus_lines(connection: Connection, query: Query, seller: Seller, unknown: Unknown) -> Iterator[FocusLine]:
    """The lines of a period, in order of time; corrections last. Lazy. `query.by` does not matter."""
    yield from usage_lines(connection, query, seller, unknown)
    for row in correction_rows(connection, query):
        yield correction_line(row, pico_of(row, "charged") or 0, seller, query.zone)


def usage_lines(
    connection: Connection, query: Query, seller: Seller, unknown: Unknown, currency: str | None = None
) -> Iterator[FocusLine]:
    """Those of requests, in one currency or all. Lazy. Raises `PeriodInvalid` where their rows were archived."""
    wanted = groups(connection, Query(query.start, query.end, (), query.zone, query.about), FROM_ROWS, [])
    assert wanted is not None, "it is not split by time"
    need_rows(connection, query.start_us, query.end_us)
    about = FROM_ROWS.about(query)
    for start_us, end_us in _busy_hours(connection, query):
        within = [_r.opened_at_us >= start_us, _r.opened_at_us < end_us, *about, _s.state.in_(BILLABLE_STATES)]
        keys = (*_KEYS, _cached_source, *_RATES)
        asked = select(*keys, *_SUMS).select_from(ROWS).where(*within)
        for row in connection.execute(asked.group_by(*_KEYS, *_RATES, _cached_source.name)).mappings():
            if wanted.key_of(row) is None:
                continue
            unknown.requests += int(row["unknown"])
            if row["price_id"] is not None and currency in (None, row["currency"]):
                yield from _lines(row, seller, query, start_us, end_us)


def _busy_hours(connection: Connection, query: Query) -> Iterator[tuple[int, int]]:
    """The hours of the period in which a request was opened, cut at its ends."""
    at_us = query.start_us
    while True:
        chosen = [_r.opened_at_us >= at_us, _r.opened_at_us < query.end_us, *FROM_ROWS.about(query)]
        first_us = connection.execute(select(func.min(_r.opened_at_us)).where(*chosen)).scalar_one()
        if first_us is None:
            return
        start_us, end_us = hours_of(first_us, query.zone)
        yield max(start_us, query.start_us), min(end_us, query.end_us)
        at_us = end_us


def _lines(row: RowMapping, seller: Seller, query: Query, start_us: int, end_us: int) -> Iterator[FocusLine]:
    charged = summed_pico(row, "charged")
    on_list = summed_pico(row, "list")
    rates = {kind: row["input_pico"] if row[name] is None else row[name] for kind, name in RATE_COLUMNS.items()}
    used = {kind: int(row[f"{kind.value}_tokens"]) for kind in Kind if int(row[f"{kind.value}_tokens"])}
    costs = {kind: tokens * rates[kind] for kind, tokens in used.items()}
    whole = Part(row, query.zone, start_us, end_us)
    lists = _shared_out(on_list, costs, charged)
    for kind, tokens in used.items():
        yield charge_line(whole, kind, tokens, rates[kind], lists[kind], seller)
    if charged != sum(costs.values()):
        yield difference_line(whole, charged - sum(costs.values()), seller)


def _shared_out(total: int, costs: dict[Kind, int], charged: int) -> dict[Kind, int]:
    """An amount at the list price by kinds, in proportion to what was charged for each; their sum is the amount."""
    if total == charged or not any(costs.values()):
        return dict(costs)
    whole = sum(costs.values())
    shares = {kind: total * cost // whole for kind, cost in costs.items()}
    last = max(costs, key=lambda kind: costs[kind])
    shares[last] += total - sum(shares.values())
    return shares


def _sums() -> Iterator[Any]:
    known = _s.charged_units.is_not(None)
    yield func.sum(case((known, 0), else_=1)).label("unknown")
    for kind, tokens in KIND_SQL.items():
        yield func.coalesce(func.sum(case((known, tokens))), 0).label(f"{kind.value}_tokens")
    for name in ("charged", "list"):
        yield from amount_sums(name, _s[f"{name}_units"], _s[f"{name}_pico"])
    for name in ("prefill_s", "decode_s"):
        yield func.sum(_s[name]).label(name)


_SUMS = tuple(_sums())
