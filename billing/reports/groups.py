"""How rows are put into the groups that a report is split by: what of it SQL does, and what is done here.

SQL groups by tenant, key, model, price and the part of time; by tags only as a whole, since databases read JSON each
in its own way. Here a set of tags becomes the value of one, or is looked at and left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, RowMapping, func, literal_column, select

from billing.reports.query import KEY, MODEL, PRICE, TAG, TAGS, TENANT, Query
from billing.reports.zones import STEPS, Part, Step, part_named, part_of, spans
from billing.schema import corrections, requests, settlements, usage_quarters

PART = "part"
"""Name of the column that says in which hour, day or month a row lies."""

Key = tuple[Part | str, ...]
"""A group: the values of what a report is split by, in its order."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The columns of one source of a report; None for what it does not know."""

    instant_us: Column[int]
    tenant: Column[str]
    key: Column[Any]
    model: Column[Any]
    tags: Column[Any] | None
    price: Column[Any] | None

    def about(self, query: Query) -> list[ColumnElement[bool]]:
        """Conditions of what a report is about; those of tags are looked at by `Groups`."""
        about = query.about
        asked = ((self.tenant, about.tenant), (self.key, about.key), (self.model, about.model))
        return [column == value for column, value in asked if value is not None]


FROM_ROWS = Origin(
    requests.c.opened_at_us,
    requests.c.tenant_id,
    requests.c.key_id,
    requests.c.model,
    requests.c.tags,
    settlements.c.price_id,
)
FROM_QUARTERS = Origin(
    usage_quarters.c.quarter_us,
    usage_quarters.c.tenant_id,
    usage_quarters.c.key_id,
    usage_quarters.c.model,
    usage_quarters.c.tags,
    usage_quarters.c.price_id,
)
FROM_CORRECTIONS = Origin(
    corrections.c.made_at_us, corrections.c.tenant_id, corrections.c.key_id, corrections.c.model, None, None
)


@dataclass(frozen=True, slots=True)
class Groups:
    """The columns that SQL is to group by, and the group of a row of them."""

    by: tuple[str, ...]
    wanted_tags: Mapping[str, str]
    columns: tuple[ColumnElement[Any], ...]
    part: ColumnElement[Any] | None
    """The one among them that says the part of time."""

    @property
    def grouped_by(self) -> tuple[ColumnElement[Any], ...]:
        """The columns for GROUP BY."""
        return (*(column for column in self.columns if column is not self.part), *self.part_name)

    @property
    def part_name(self) -> tuple[ColumnElement[Any], ...]:
        """The part of time for GROUP BY: by its name, as it has parameters, which PostgreSQL would take for others
        each time. Empty where time does not matter."""
        return () if self.part is None else (literal_column(PART),)

    def key_of(self, row: RowMapping | Mapping[str, Any]) -> Key | None:
        """The group of a row; None where its tags are not those asked for. Without a column of it, the part of time is
        empty: see `at_part`."""
        tags = _tags(row.get("tags"))
        if any(tags.get(name) != value for name, value in self.wanted_tags.items()):
            return None
        return tuple(self._value(name, row, tags) for name in self.by)

    def at_part(self, key: Key, number: int) -> Key:
        """The same group in another part of time."""
        return tuple(
            part_named(number, Step(name)) if name in STEPS else value for name, value in zip(self.by, key, strict=True)
        )

    def without_price(self, key: Key) -> Key:
        """The same group for what has no price yet."""
        return tuple("" if name == PRICE else value for name, value in zip(self.by, key, strict=True))

    def _value(self, name: str, row: RowMapping | Mapping[str, Any], tags: Mapping[str, str]) -> Part | str:
        if name in STEPS:
            number = row.get(PART)
            return "" if number is None else part_named(int(number), Step(name))
        if name.startswith(TAG):
            return tags.get(name.removeprefix(TAG), "")
        return row.get(_COLUMNS[name]) or ""


_COLUMNS = {TENANT: "tenant_id", KEY: "key_id", MODEL: "model", PRICE: "price_id", TAGS: "tags"}


def groups(
    connection: Connection, query: Query, origin: Origin, chosen: Sequence[ColumnElement[bool]]
) -> Groups | None:
    """How the rows chosen are grouped; None where there are none to be split by time."""
    columns: list[ColumnElement[Any]] = []
    part: ColumnElement[Any] | None = None
    known = {TENANT: origin.tenant, KEY: origin.key, MODEL: origin.model, PRICE: origin.price}
    for name in query.by:
        column = known.get(name)
        if column is not None:
            columns.append(column)
    if query.needs_tags and origin.tags is not None:
        columns.append(origin.tags)
    if query.step is not None:
        # A period may be longer than what there is by centuries of changes of the clocks.
        bounds = select(func.min(origin.instant_us), func.max(origin.instant_us)).where(*chosen)
        found: Sequence[int | None] = connection.execute(bounds).one()
        first_us, last_us = found
        if first_us is None or last_us is None:
            return None
        of = spans(first_us, last_us + 1, query.zone)
        part = part_of(origin.instant_us, query.step, of, query.zone).label(PART)
        columns.append(part)
    return Groups(query.by, query.about.tags, tuple(columns), part)


def labels(by: Sequence[str], key: Key) -> dict[str, str]:
    """A group as people read it."""
    return {name: value.label if isinstance(value, Part) else value for name, value in zip(by, key, strict=True)}


@lru_cache(maxsize=1 << 12)
def _tags(text: str | None) -> Mapping[str, str]:
    if not text:
        return {}
    found: dict[str, str] = json.loads(text)
    return found
