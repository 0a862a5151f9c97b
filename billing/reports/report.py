"""What a period cost, split as asked, with totals that are the sums of the lines to the last digit.

    roll-ups, or rows  -- sums by group --> Line, Line, ...  --> totals by currency
    corrections        -- by group, kind --> Adjustment, ...      that are counted when they are made

A period is read from roll-ups where it is made of whole quarters of an hour, and from rows at ragged ends. The ledger
is only read, as it is at one moment: a gateway may write meanwhile. Cost: O(roll-ups in the period) in the database,
or O(requests) from rows; O(groups) here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, func, select

from billing.older import column_in
from billing.reports.adjustments import Adjustment, adjustments
from billing.reports.groups import FROM_QUARTERS, FROM_ROWS, Key, groups, labels
from billing.reports.query import MODEL, TENANT, About, Query, Source
from billing.reports.reading import need_rows, one_view
from billing.reports.sums import QUARTER_SUMS, ROW_SUMS, ROWS, Summing
from billing.reports.tally import IN_FLIGHT, Tally, total_of
from billing.rollup import QUARTER_US
from billing.schema import OPENED, requests, settlements, usage_quarters
from billing.verification.columns import miss_kind, part_of

_s = settlements.c
_r = requests.c
_q = usage_quarters.c


@dataclass(frozen=True, slots=True)
class Line:
    """Sums over the requests of one group. `currency` is None without a price book, and for what is in flight."""

    group: Mapping[str, str]
    """What the report is split by, each name with its value; empty where a request has none, as no tag."""
    currency: str | None
    tally: Tally

    @property
    def tenant_id(self) -> str:
        """Empty where the report is not split by tenant."""
        return self.group.get(TENANT, "")

    @property
    def model(self) -> str:
        """Empty where the report is not split by model."""
        return self.group.get(MODEL, "")


@dataclass(frozen=True, slots=True)
class Miss:
    """Requests that hit less than they could have, for one reason, and the prompt tokens that were computed.

    `part` is in what the prompts changed, where that is the reason: `system time`, `tools order`; all later messages of
    a conversation are one. `lost_tokens` would have been cached but for the reason, as far as that is known.
    """

    reason: str
    requests: int
    computed_tokens: int
    part: str | None = None
    lost_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Lines of a period in the order of what they are split by; `totals` are their sums by currency, without the
    adjustments. `misses` is None where they were not asked for."""

    query: Query
    lines: tuple[Line, ...]
    totals: Mapping[str | None, Tally]
    adjustments: tuple[Adjustment, ...] = ()
    misses: tuple[Miss, ...] | None = None

    @property
    def start(self) -> datetime:
        """Of the period, in its time zone."""
        return self.query.start.astimezone(self.query.zone)

    @property
    def end(self) -> datetime:
        """Of the period, exclusive, in its time zone."""
        return self.query.end.astimezone(self.query.zone)

    def payable_pico(self) -> dict[str, int]:
        """By currency, what the lines and the adjustments charge together; unknown amounts are not in it."""
        found: dict[str, int] = defaultdict(int)
        for currency, total in self.totals.items():
            if currency is not None and total.charged_pico is not None:
                found[currency] += total.charged_pico
        for one in self.adjustments:
            found[one.currency] += one.charged_pico
        return dict(found)


def report(where: Path | str, from_: datetime, to: datetime, tenant: str | None = None) -> Report:
    """Per tenant and model, the requests opened in [from_, to), of one tenant or all: see `report_of`."""
    return report_of(where, Query(from_, to, about=About(tenant=tenant)))


def report_of(where: Path | str, query: Query, deadline_s: float | None = None) -> Report:
    """The report of a ledger, at a path or URL. Raises `LedgerUnavailable`, and `ReportTooSlow` past a deadline."""
    with one_view(where, deadline_s) as connection:
        sums: _Sums = defaultdict(Summing)
        for source, start_us, end_us in _pieces(query):
            read = _add_rows if source is Source.ROWS else _add_quarters
            read(connection, query, start_us, end_us, sums)
        ordered = sorted(sums, key=lambda both: (both[0], both[1] or ""))
        lines = tuple(Line(labels(query.by, key), one, sums[key, one].tally()) for key, one in ordered)
        return Report(
            query=query,
            lines=lines,
            totals=_totals(lines),
            adjustments=adjustments(connection, query),
            misses=_misses(connection, query) if query.with_misses else None,
        )


def opened_in(from_: datetime, to: datetime, tenant: str | None) -> list[ColumnElement[bool]]:
    """Conditions of the requests of a period, of one tenant or all. Raises `PeriodInvalid`."""
    return _opened_in(Query(from_, to, about=About(tenant=tenant)))


def _pieces(query: Query) -> Iterator[tuple[Source, int, int]]:
    """The period as parts that one source holds each."""
    start_us, end_us = query.start_us, query.end_us
    first_us, last_us = -(-start_us // QUARTER_US) * QUARTER_US, end_us // QUARTER_US * QUARTER_US
    if query.source is Source.ROWS or first_us >= last_us:
        yield Source.ROWS, start_us, end_us
        return
    if start_us < first_us:
        yield Source.ROWS, start_us, first_us
    yield Source.ROLL_UPS, first_us, last_us
    if last_us < end_us:
        yield Source.ROWS, last_us, end_us


_Sums = defaultdict[tuple[Key, str | None], Summing]


def _add_rows(connection: Connection, query: Query, start_us: int, end_us: int, into: _Sums) -> None:
    need_rows(connection, start_us, end_us)
    chosen = [_r.opened_at_us >= start_us, _r.opened_at_us < end_us, *FROM_ROWS.about(query)]
    grouped = groups(connection, query, FROM_ROWS, chosen)
    if grouped is None:
        return
    ending = (_s.currency, _s.state, _s.flags, _s.verdict)
    asked = select(*grouped.columns, *ending, *ROW_SUMS).select_from(ROWS).where(*chosen)
    for row in connection.execute(asked.group_by(*grouped.grouped_by, *ending)):
        named = row._mapping
        key = grouped.key_of(named)
        if key is not None:
            state = named["state"] or IN_FLIGHT
            into[key, named["currency"]].add(state, named["flags"] or "", named["verdict"] or "", row[-len(ROW_SUMS) :])


def _add_quarters(connection: Connection, query: Query, start_us: int, end_us: int, into: _Sums) -> None:
    chosen = [_q.quarter_us >= start_us, _q.quarter_us < end_us, *FROM_QUARTERS.about(query)]
    grouped = groups(connection, query, FROM_QUARTERS, chosen)
    if grouped is None:
        return
    described = [column for column in grouped.columns if column is not grouped.part]
    ending = (_q.currency, _q.state, _q.flags, _q.verdict)
    found = connection.execute(select(_q.group_id, *described, *ending).where(*chosen).distinct()).mappings()
    meaning = {row["group_id"]: (row, grouped.key_of(row)) for row in found}
    parts = () if grouped.part is None else (grouped.part,)
    asked = select(_q.group_id, *parts, *QUARTER_SUMS).where(*chosen)
    in_flight: dict[Key, int] = defaultdict(int)
    for row in connection.execute(asked.group_by(_q.group_id, *grouped.part_name)):
        of, key = meaning[row[0]]
        if key is None:
            continue
        if parts:
            key = grouped.at_part(key, int(row[1]))
        sums = row[-len(QUARTER_SUMS) :]
        is_opening = of["state"] == OPENED
        in_flight[grouped.without_price(key)] += sums[0] if is_opening else -sums[0]
        if not is_opening:
            into[key, of["currency"] or None].add(of["state"], of["flags"], of["verdict"], sums)
    for key, count in in_flight.items():
        if count:
            into[key, None].add_in_flight(count)


def _totals(lines: Iterable[Line]) -> dict[str | None, Tally]:
    found: dict[str | None, list[Tally]] = defaultdict(list)
    for line in lines:
        found[line.currency].append(line.tally)
    return {currency: total_of(tallies) for currency, tallies in found.items()}


def _misses(connection: Connection, query: Query) -> tuple[Miss, ...]:
    need_rows(connection, query.start_us, query.end_us)
    chosen = [*_opened_in(query), _s.miss_reason.is_not(None)]
    grouped = groups(connection, replace(query, by=()), FROM_ROWS, chosen)
    assert grouped is not None, "it is not split by time"
    computed = func.sum(_s.prompt_tokens - func.coalesce(_s.cached_tokens, 0)).label("computed_tokens")
    lost = func.sum(column_in(connection, _s.lost_tokens)).label("lost_tokens")
    reason, segment = miss_kind(), column_in(connection, _s.changed_segment).label("changed_segment")
    asked = select(*grouped.columns, reason.label("reason"), segment, func.count().label("requests"), computed, lost)
    asked = asked.select_from(ROWS).where(*chosen).group_by(*grouped.grouped_by, reason, segment)
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in connection.execute(asked).mappings():
        if grouped.key_of(row) is not None:
            sums = found[row["reason"], part_of(row["changed_segment"])]
            for place, name in enumerate(("requests", "computed_tokens", "lost_tokens")):
                sums[place] += int(row[name] or 0)
    return tuple(
        Miss(reason, requests, computed_tokens, part or None, lost_tokens)
        for (reason, part), (requests, computed_tokens, lost_tokens) in sorted(found.items())
    )


def _opened_in(query: Query) -> list[ColumnElement[bool]]:
    return [_r.opened_at_us >= query.start_us, _r.opened_at_us < query.end_us, *FROM_ROWS.about(query)]
