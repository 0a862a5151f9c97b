"""Tables of the commands: whole words; those of billing in one style, and on a narrow terminal fewer columns.

a pipe or a file     all columns, lines as long as they need
a terminal           as wide as it is; what does not fit is left out in the order that the command names, and said
"""

from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Column, Table

_FILE_COLUMNS = 140
_UNBOUNDED_COLUMNS = 10_000
_CELL_CHARS = 20
"""Cells up to this length stay on one line; longer ones may fold at their words."""
_WORD_CHARS = 32
"""Longer words, as hashes, may be broken."""


def wide_console(*tables: Table, file: TextIO | None = None) -> Console:
    """A console in which words of the tables stay whole, wherever it leads to."""
    console = Console(file=file)
    console.width = max(console.width, _FILE_COLUMNS, *(_least_columns(console, table) for table in tables))
    return console


def show_tables(
    *tables: Table, spare: Sequence[str] = (), whole: str = "a pipe", file: TextIO | None = None
) -> Console:
    """Print tables, and return the console for what is to be said below them.

    `spare` are headings that a narrow terminal does without, the first to go first; `whole` is what else has them all.
    """
    terminal = Console(file=file)
    left_out: list[str] = []
    shown = [_styled(table) for table in tables]
    whole_lines = _is_whole(terminal)
    if not whole_lines:
        for at, table in enumerate(shown):
            shown[at], without = _fitted(terminal, table, spare)
            left_out += [name for name in without if name not in left_out]
    console = wide_console(*shown, file=file)
    for table in shown:
        console.print(
            table, width=max(console.width if whole_lines else terminal.width, _least_columns(console, table))
        )
    if left_out:
        names = ", ".join(f"'{name}'" for name in left_out)
        console.print(
            f"not shown in {terminal.width} columns: {names}. A wider terminal shows them, and {whole} has all.",
            markup=False,
            highlight=False,
            width=terminal.width,
        )
    return console if whole_lines else terminal


def _is_whole(console: Console) -> bool:
    """Whether lines may be as long as they like. A terminal by the file itself: colours may be wanted in a pipe too."""
    return not console.file.isatty()


def _styled(table: Table) -> Table:
    table.box, table.pad_edge, table.collapse_padding = SIMPLE_HEAD, False, True
    return table


def _least_columns(console: Console, table: Table) -> int:
    return console.measure(table, options=console.options.update(width=_UNBOUNDED_COLUMNS)).minimum


def _fitted(console: Console, table: Table, spare: Sequence[str]) -> tuple[Table, list[str]]:
    """The table without the first of the spare columns, as few as let the others be read, and those left out."""
    names = [str(column.header) for column in table.columns]
    going = [name for name in spare if name in names]
    for count in range(len(going) + 1):
        fitted = _only(console, table, [at for at, name in enumerate(names) if name not in going[:count]])
        if _least_columns(console, fitted) <= console.width:
            return fitted, going[:count]
    return _only(console, table, [at for at, name in enumerate(names) if name not in going]), going


def _only(console: Console, table: Table, places: Sequence[int]) -> Table:
    """Some columns of a table, in which short cells stay on one line."""
    made = _styled(Table(title=table.title, caption=table.caption))
    chosen = [table.columns[at] for at in places]
    wishes: list[int] = []
    for column in chosen:
        sizes = [console.measure(one) for one in (column.header, *column.cells)]
        wishes.append(max(size.maximum for size in sizes))
        words = max(size.minimum for size in sizes)
        lines = max((size.maximum for size in sizes[1:] if size.maximum <= _CELL_CHARS), default=0)
        made.add_column(
            column.header,
            justify=column.justify,
            overflow=column.overflow,
            no_wrap=column.no_wrap,
            style=column.style,
            min_width=max(min(words, _WORD_CHARS), lines),
        )
    for row, cells in zip(table.rows, _rows(chosen), strict=True):
        made.add_row(*cells, style=row.style, end_section=row.end_section)
    _widen(made, wishes, console.width - _least_columns(console, made))
    return made


def _widen(table: Table, wishes: Sequence[int], room: int) -> None:
    """Share the room that is left among the columns, the easiest to please first: left alone, rich breaks words."""
    for wish, column in sorted(zip(wishes, table.columns, strict=True), key=lambda one: one[0]):
        least = column.min_width or 0
        column.width = min(max(wish, least), least + max(room, 0))
        room -= column.width - least


def _rows(columns: Sequence[Column]) -> Iterator[Sequence[RenderableType]]:
    return zip(*(column.cells for column in columns), strict=True)
