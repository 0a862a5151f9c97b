"""Corrections, credits and other adjustments: lines of their own, in the period in which they were made."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from billing.amount_sums import amount_sums, summed_pico
from billing.reports.groups import FROM_CORRECTIONS, Key, groups, labels
from billing.reports.query import Query
from billing.schema import corrections

_c = corrections.c
_AMOUNTS = ("full", "charged")


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Changes of one kind within one group, signed. Of what they are not about, as a tag, the value is empty."""

    group: Mapping[str, str]
    kind: str
    currency: str
    count: int
    full_pico: int
    charged_pico: int


def adjustments(connection: Connection, query: Query) -> tuple[Adjustment, ...]:
    """Those made within the period, in the order of what the report is split by. O(corrections in it).

    A correction has no tags, so a report about certain tags has none.
    """
    if query.about.tags:
        return ()
    chosen = [_c.made_at_us >= query.start_us, _c.made_at_us < query.end_us, *FROM_CORRECTIONS.about(query)]
    grouped = groups(connection, query, FROM_CORRECTIONS, chosen)
    if grouped is None:
        return ()
    columns = [
        func.count().label("corrections"),
        *(one for name in _AMOUNTS for one in amount_sums(name, _c[f"{name}_units"], _c[f"{name}_pico"])),
    ]
    asked = select(*grouped.columns, _c.kind, _c.currency, *columns).where(*chosen)
    found: dict[tuple[Key, str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for row in connection.execute(asked.group_by(*grouped.grouped_by, _c.kind, _c.currency)).mappings():
        key = grouped.key_of(row)
        assert key is not None, "no tags were asked for"
        full, charged = (summed_pico(row, name) for name in _AMOUNTS)
        found[key, row["kind"], row["currency"]].append((int(row["corrections"]), full, charged))
    return tuple(
        Adjustment(labels(query.by, key), kind, currency, *map(sum, zip(*amounts, strict=True)))
        for (key, kind, currency), amounts in sorted(found.items(), key=lambda item: item[0])
    )
