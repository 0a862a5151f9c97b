"""The sums by quarter in the database: adding to them, making them from the rows, holding them against the rows.

Amounts are summed in halves of a remainder, as 64 bits hold no sum of pico-units beyond 9.2 million units.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    Text,
    and_,
    case,
    delete,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect

from billing.amount_sums import amount_sums, whole_pico
from billing.bulk import insert_rows
from billing.money import PICO, split_pico
from billing.rollup import AMOUNTS, KEYS, QUARTER_US, SECONDS, TOKENS, Key, group_id
from billing.schema import OPENED, requests, settlements, usage_quarters
from billing.types import UsageFlag

REBUILT = "rebuilt"
"""Owner of sums that were made from the rows."""

_DAY_US = 96 * QUARTER_US
_MOST_ROWS = 1024
_PICO: ColumnElement[int] = literal_column(str(PICO), BigInteger)
# Written out, not as parameters: else what is selected and what is grouped by differ in PostgreSQL's eyes.
_NONE: ColumnElement[str] = literal_column("''", Text)
_q = usage_quarters.c
_r = requests.c
_s = settlements.c
QUARTER_OF_REQUEST: ColumnElement[int] = _r.opened_at_us - _r.opened_at_us % literal_column(str(QUARTER_US), BigInteger)
_COUNTS = ("requests", *TOKENS, "reported_prompt_tokens", "reported_cached_tokens", "unknown_amounts")
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one key: counts in the order of `_COUNTS`, amounts in pico-units, seconds."""

    counts: tuple[int, ...]
    amounts: tuple[int, ...]
    seconds: tuple[float, ...]

    def equals(self, other: "Sums") -> bool:
        """Seconds may differ by the order in which they were added."""
        return (self.counts, self.amounts) == (other.counts, other.amounts) and all(
            math.isclose(one, two, rel_tol=_CLOSE, abs_tol=_CLOSE)
            for one, two in zip(self.seconds, other.seconds, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose sums are not those of its rows; None where there are none."""

    key: Key
    of_rows: Sums | None
    of_quarters: Sums | None


Span = tuple[int, int]
"""Microseconds, the end exclusive."""


@cache
def adding_clause(dialect: Dialect) -> str:
    """The clause by which a row is added to the one that is there."""
    insert = (postgresql if dialect.name == "postgresql" else sqlite).insert
    statement = insert(usage_quarters).values(dict.fromkeys(usage_quarters.columns.keys()))
    added = statement.excluded
    sums: dict[str, ColumnElement[Any]] = {name: _q[name] + added[name] for name in (*_COUNTS, *SECONDS)}
    for name in AMOUNTS:
        remainder = _q[f"{name}_pico"] + added[f"{name}_pico"]
        sums[f"{name}_units"] = _q[f"{name}_units"] + added[f"{name}_units"] + remainder // _PICO
        sums[f"{name}_pico"] = remainder % _PICO
    upsert = statement.on_conflict_do_update(index_elements=[_q.quarter_us, _q.owner_id, _q.group_id], set_=sums)
    _, clause, what = str(upsert.compile(dialect=dialect)).partition(" ON CONFLICT ")
    return clause + what


def rebuild(connection: Connection, kept: Sequence[Span] = ()) -> int:
    """Make the sums from the rows, except in the spans `kept`, whose rows are elsewhere. Returns how many there are.

    O(rows), a day's keys in memory. In the transaction of the caller, who has seen to it that nobody adds meanwhile.
    """
    connection.execute(delete(usage_quarters).where(_outside(_q.quarter_us, kept)))
    made = 0
    for day in _days(connection):
        rows = [_as_row(key, sums) for key, sums in of_rows(connection, day, kept)]
        for first in range(0, len(rows), _MOST_ROWS):
            add(connection, rows[first : first + _MOST_ROWS])
        made += len(rows)
    return made


def add(connection: Connection, rows: Sequence[Sequence[object]]) -> None:
    """Add rows of `schema.usage_quarters` to those that are there, no two of one key."""
    insert_rows(connection, usage_quarters, rows, adding_clause(connection.dialect))


def differences(connection: Connection, kept: Sequence[Span] = ()) -> Iterator[Difference]:
    """Keys whose sums are not those of the rows, outside of the spans `kept`. O(rows), a day's keys in memory.

    What is seen is one moment only where the caller's transaction sees one.
    """
    for day in _days(connection):
        by_rows = dict(of_rows(connection, day, kept))
        by_quarters = dict(of_quarters(connection, day, kept))
        for key in sorted(by_rows.keys() | by_quarters.keys()):
            rows, quarters = by_rows.get(key), by_quarters.get(key)
            if rows is None or quarters is None or not rows.equals(quarters):
                yield Difference(key, rows, quarters)


def of_rows(connection: Connection, span: Span, kept: Sequence[Span] = ()) -> Iterator[tuple[Key, Sums]]:
    """Sums of requests opened within the span and of their settlements, key by key."""
    chosen = and_(_r.opened_at_us >= span[0], _r.opened_at_us < span[1], _outside(_r.opened_at_us, kept))
    for query in (_opened(chosen), _settled(chosen)):
        for row in connection.execute(query):
            yield _read(row)


def of_quarters(connection: Connection, span: Span, kept: Sequence[Span] = ()) -> Iterator[tuple[Key, Sums]]:
    """The sums of the quarters within the span that are kept, those of all owners together."""
    chosen = and_(_q.quarter_us >= span[0], _q.quarter_us < span[1], _outside(_q.quarter_us, kept))
    keys = (_q.quarter_us, *(_q[name] for name in KEYS))
    query = select(
        *keys,
        *(func.sum(_q[name]) for name in _COUNTS),
        *chain.from_iterable(amount_sums(name, _q[f"{name}_units"], _q[f"{name}_pico"]) for name in AMOUNTS),
        *(func.sum(_q[name]) for name in SECONDS),
    )
    for row in connection.execute(query.where(chosen).group_by(*keys)):
        yield _read(row)


def _opened(chosen: ColumnElement[bool]) -> Select[Any]:
    nothing = [literal(0)] * (len(_COUNTS) - 1 + 3 * len(AMOUNTS) + len(SECONDS))
    keys = _keys_of_request()
    return (
        select(*keys, *(literal(word) for word in ("", "", OPENED, "", "")), func.count(), *nothing)
        .where(chosen)
        .group_by(*keys)
    )


def _settled(chosen: ColumnElement[bool]) -> Select[Any]:
    reported = _s.cached_tokens.is_not(None) & _s.flags.not_like(f"%{UsageFlag.ESTIMATED.value}%")
    of_settlement = tuple(func.coalesce(_s[name], _NONE) for name in KEYS[4:])
    keys = (*_keys_of_request(), *of_settlement)
    return (
        select(
            *keys,
            func.count(),
            *(func.sum(func.coalesce(_s[name], 0)) for name in TOKENS),
            func.sum(case((reported, func.coalesce(_s.prompt_tokens, 0)), else_=0)),
            func.sum(case((reported, func.coalesce(_s.cached_tokens, 0)), else_=0)),
            func.sum(case((_s.charged_units.is_(None), 1), else_=0)),
            *chain.from_iterable(amount_sums(name, _s[f"{name}_units"], _s[f"{name}_pico"]) for name in AMOUNTS),
            *(func.sum(func.coalesce(_s[name], 0.0)) for name in SECONDS),
        )
        .join_from(requests, settlements, _s.request_id == _r.request_id)
        .where(chosen)
        .group_by(*keys)
    )


def _keys_of_request() -> tuple[ColumnElement[Any], ...]:
    return (QUARTER_OF_REQUEST, _r.tenant_id, _r.key_id, _r.model, func.coalesce(_r.tags, _NONE))


def _days(connection: Connection) -> Iterator[Span]:
    """Days from the first request or quarter to the last."""
    ends = [
        end
        for column in (_r.opened_at_us, _q.quarter_us)
        for end in connection.execute(select(func.min(column), func.max(column))).one()
        if end is not None
    ]
    if ends:
        for start in range(min(ends) // _DAY_US * _DAY_US, max(ends) + 1, _DAY_US):
            yield start, start + _DAY_US


def _outside(at_us: ColumnElement[Any], kept: Sequence[Span]) -> ColumnElement[bool]:
    return and_(literal(1) == 1, *(or_(at_us < start, at_us >= end) for start, end in kept))


def _read(row: Row[Any]) -> tuple[Key, Sums]:
    values = iter(row)
    quarter_us, *keys = (next(values) for _ in range(1 + len(KEYS)))
    counts = tuple(int(next(values)) for _ in _COUNTS)
    amounts = tuple(whole_pico(next(values), next(values), next(values)) for _ in AMOUNTS)
    return (int(quarter_us), *keys), Sums(counts, amounts, tuple(float(second) for second in values))


def _as_row(key: Key, sums: Sums) -> tuple[object, ...]:
    quarter_us, *keys = key
    *counts, unknown = sums.counts
    amounts: Iterable[int] = chain.from_iterable(map(split_pico, sums.amounts))
    return (quarter_us, REBUILT, group_id(*keys), *keys, *counts, *amounts, unknown, *sums.seconds)
