"""CSV that a spreadsheet opens without running what a tenant wrote into a name."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""The wide signs of East Asian keyboards are signs to some spreadsheets too."""


def no_formula(text: str) -> str:
    """A text that a spreadsheet would take for a formula, with an apostrophe before it."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def csv_lines(
    columns: Sequence[str], rows: Iterable[Mapping[str, object]], numbers: frozenset[str] = frozenset()
) -> Iterator[str]:
    """The heading and then a line for each row; None is empty. Texts are made safe, but in the columns of `numbers`,
    whose texts are decimals of ours."""
    yield _line(columns)
    for row in rows:
        yield _line([_cell(row.get(name), is_number=name in numbers) for name in columns])


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """All of `csv_lines`; columns that begin with `amount_` hold decimals."""
    return "".join(csv_lines(columns, rows, frozenset(name for name in columns if name.startswith("amount_"))))


def _cell(value: object, *, is_number: bool) -> object:
    return no_formula(value) if isinstance(value, str) and not is_number else value


def _line(cells: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)  # with both signs of a line's end, so that each of them is quoted inside a cell
    return out.getvalue().removesuffix("\r\n") + "\n"
