"""A sheet of figures, and three ways to show it: a table for eyes, CSV for spreadsheets, JSON for programs.

Amounts keep all 12 decimals in files and lose what nobody reads in a table; unknown is empty, null, or a dash.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from billing.money import PICO, TOKENS_PER_PRICE, amount_text
from billing.reports.csv_text import csv_lines

Value = str | int | float | Fraction | None
_UNKNOWN = "–"
_RATE_PLACES = 6
_TEXT_CHARS = 32
"""The hash of an end user stays on one line."""


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    COUNT = "count"
    AMOUNT = "amount"
    """Pico-units."""
    PER_MTOK = "per million tokens"
    """Pico-units a token, a fraction."""
    SHARE = "share"
    SECONDS = "seconds"


class Column(NamedTuple):
    """A column: its name in files, what it holds, its heading in a table."""

    name: str
    kind: Kind
    heading: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Rows under columns. `notes` say what its reader must know."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Value]]
    notes: Sequence[str] = ()


def sheet_table(sheet: Sheet, currency: str) -> Table:
    """A rich table. Names are shown as they are: they may look like markup."""
    caption = "\n".join(sheet.notes) or None
    table = Table(title=f"{sheet.title}, {currency}", caption=caption, box=SIMPLE_HEAD, pad_edge=False)
    places = [
        _places([_whole(row[at]) for row in sheet.rows]) if column.kind is Kind.AMOUNT else 0
        for at, column in enumerate(sheet.columns)
    ]
    lines = [
        [_shown(column.kind, cell, so_many) for column, cell, so_many in zip(sheet.columns, row, places, strict=True)]
        for row in sheet.rows
    ]
    for at, column in enumerate(sheet.columns):
        is_text = column.kind is Kind.TEXT
        longest = max([len(column.heading), *(len(line[at]) for line in lines)])
        table.add_column(
            column.heading,
            justify="left" if is_text else "right",
            overflow="fold",
            min_width=min(longest, _TEXT_CHARS) if is_text else longest,
        )
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def sheet_csv(sheet: Sheet) -> str:
    """CSV, safe to open: a text that a spreadsheet would run has an apostrophe before it."""
    decimals = frozenset(one.name for one in sheet.columns if one.kind in (Kind.AMOUNT, Kind.PER_MTOK))
    return "".join(csv_lines([one.name for one in sheet.columns], sheet_rows(sheet), decimals))


def sheet_rows(sheet: Sheet) -> Iterable[Mapping[str, object]]:
    """Rows as plain data: amounts are strings of decimals, None is unknown."""
    for row in sheet.rows:
        yield {column.name: _plain(column.kind, value) for column, value in zip(sheet.columns, row, strict=True)}


def rounded(pico: Fraction) -> int:
    """The nearest whole pico-unit, half to even."""
    return round(pico)


def _plain(kind: Kind, value: Value) -> object:
    match kind:
        case _ if value is None:
            return None
        case Kind.AMOUNT:
            return amount_text(_whole(value))
        case Kind.PER_MTOK:
            return amount_text(_whole(Fraction(value) * TOKENS_PER_PRICE))
        case Kind.SHARE | Kind.SECONDS:
            return round(float(value), 6)
        case _:
            return value


def _shown(kind: Kind, value: Value, places: int) -> str:
    match kind:
        case _ if value is None:
            return _UNKNOWN
        case Kind.AMOUNT:
            return _decimals(_whole(value), places)
        case Kind.PER_MTOK:
            return _decimals(_whole(Fraction(value) * TOKENS_PER_PRICE), _RATE_PLACES)
        case Kind.SHARE:
            return f"{float(value):.1%}"
        case Kind.SECONDS:
            return f"{float(value):,.1f}"
        case Kind.COUNT:
            return f"{value:,}"
        case _:
            return str(value)


def _places(amounts: Iterable[int]) -> int:
    """Decimal places of a column: as many as the smallest of its amounts needs, whatever the others are."""
    smallest = min((abs(pico) for pico in amounts if pico), default=0)
    return 6 if smallest < PICO else 4 if smallest < 1000 * PICO else 2


def _whole(value: Value) -> int:
    return value if isinstance(value, int) else rounded(Fraction(value or 0))


def _decimals(pico: int, places: int) -> str:
    """Rounded for eyes; the files have all of it."""
    step = 10 ** (12 - places)
    units, rest = divmod(abs(rounded(Fraction(pico, step))), 10**places)
    sign = "-" if pico < 0 and (units or rest) else ""
    return f"{sign}{units:,}.{rest:0{places}d}"
