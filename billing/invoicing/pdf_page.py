"""An invoice as a PDF: A4, our fonts embedded, heads of tables repeated on each page, page n of m.

    Page --> _Sheets: marks (texts, lines, boxes), placed from the top, page after page --> reportlab's canvas

Nothing of the time or the machine is in it: the same page is the same file.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from billing.invoicing.fonts import Fonts
from billing.invoicing.page import DRAFT_WORDS, Cells, Grid, Page

_WIDTH, _HEIGHT = A4
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, _WIDTH - 48.0, _HEIGHT - 48.0, 62.0
_INK, _SOFT, _LINE, _TINT = 0.11, 0.42, 0.82, 0.955
_BODY, _SMALL, _TITLE = 8.5, 7.0, 20.0
_LEADING = 1.42
_PAD = 3.2
_LEAST_COLUMN = 7.2
"""Of figures, in heights of their letters."""
_FEW_COLUMNS = 3
_GAP = 8.0
_HEADING = 29.0
"""Height of a heading, with the room before it."""


@dataclass(frozen=True, slots=True)
class _Text:
    x: float
    y: float
    text: str
    size: float = _BODY
    is_bold: bool = False
    gray: float = _INK
    is_right: bool = False


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    gray: float


Mark = _Text | _Box


@dataclass(slots=True)
class _Sheets:
    """Marks by page, and how far down the last page is used."""

    fonts: Fonts
    pages: list[list[Mark]] = field(default_factory=lambda: [[]])
    y: float = _TOP

    def put(self, *marks: Mark) -> None:
        self.pages[-1].extend(marks)

    def has_room(self, height: float) -> bool:
        return self.y - height >= _BOTTOM

    def new_page(self) -> None:
        self.pages.append([])
        self.y = _TOP

    def need(self, height: float) -> None:
        if not self.has_room(height):
            self.new_page()

    def paragraph(self, text: str, width: float = _RIGHT - _LEFT, *, size: float = _BODY, gray: float = _INK) -> None:
        for line in self.fonts.wrapped(text, size, width):
            self.need(size * _LEADING)
            self.y -= size * _LEADING
            self.put(_Text(_LEFT, self.y, line, size, gray=gray))

    def heading(self, text: str) -> None:
        self.need(60.0)
        self.y -= _HEADING - 3.0
        self.put(_Text(_LEFT, self.y, text, 10.5, is_bold=True))
        self.y -= 3.0

    def column(self, lines: Sequence[str], x: float, width: float, top: float, *, is_right: bool = False) -> float:
        """A block of lines, the first bold, from `top` down; where it ends."""
        y = top
        for number, text in enumerate(lines):
            for line in self.fonts.wrapped(text, _BODY, width, is_bold=not number):
                y -= _BODY * _LEADING
                self.put(_Text(x + width if is_right else x, y, line, is_bold=not number, is_right=is_right))
        return y


def render_pdf(page: Page, extra_fonts: Sequence[Path] = ()) -> bytes:
    """The file. Raises `InvoiceInvalid` where one of the extra fonts cannot be used."""
    sheets = _Sheets(Fonts(extra_fonts))
    _head(sheets, page)
    _table(sheets, page.lines, _shares(sheets, page.lines, _BODY), _BODY)
    _totals(sheets, page.totals)
    if page.payment:
        sheets.heading("Payment")
        for line in page.payment:
            sheets.paragraph(line)
    for grid in page.grids:
        sheets.heading(grid.title)
        _table(sheets, grid, _shares(sheets, grid, _SMALL), _SMALL)
        if grid.note:
            sheets.y -= 3.0
            sheets.paragraph(grid.note, size=_SMALL, gray=_SOFT)
    _notes(sheets, page.notes)
    return _drawn(sheets, page)


def missing_letters(page: Page, extra_fonts: Sequence[Path] = ()) -> str:
    """Letters of a page that no font has; the PDF shows a mark in their place."""
    return Fonts(extra_fonts).missing(page.texts())


def _head(sheets: _Sheets, page: Page) -> None:
    half = (_RIGHT - _LEFT - 24.0) / 2
    sheets.put(_Text(_LEFT, _TOP - _TITLE, page.title, _TITLE, is_bold=True))
    if page.is_draft:
        sheets.put(_Text(_LEFT, _TOP - _TITLE - 14.0, DRAFT_WORDS, gray=_SOFT))
    ends = sheets.column(page.seller, _RIGHT - half, half, _TOP - 4.0, is_right=True)
    top = min(ends, _TOP - _TITLE) - 24.0
    sheets.put(_Text(_LEFT, top - _SMALL, "Billed to", _SMALL, gray=_SOFT))
    buyer = sheets.column(page.buyer, _LEFT, half, top - _SMALL - 2.0)
    sheets.y = min(buyer, _facts(sheets, page, top, half)) - 20.0


def _facts(sheets: _Sheets, page: Page, top: float, half: float) -> float:
    left = _RIGHT - half
    labels = max(sheets.fonts.width(label, _BODY) for label, _ in page.facts) + 12.0
    y = top
    for label, value in page.facts:
        sheets.put(_Text(left, y - _BODY * _LEADING, label, gray=_SOFT))
        for line in sheets.fonts.wrapped(value, _BODY, half - labels):
            y -= _BODY * _LEADING
            sheets.put(_Text(left + labels, y, line))
    return y


def _shares(sheets: _Sheets, grid: Grid, size: float) -> Sequence[float]:
    """Widths of columns as shares: figures take what they need, the first column the rest."""
    rows = [row.cells for group in grid.groups for row in group.rows]
    whole = _RIGHT - _LEFT
    least = whole / 5 if len(grid.head) <= _FEW_COLUMNS else _LEAST_COLUMN * size
    wanted = []
    for place in range(1, len(grid.head)):
        widest = max((sheets.fonts.width(row[place], size, is_bold=True) for row in rows), default=0.0)
        wanted.append(max(least, widest + _GAP, sheets.fonts.width(grid.head[place], _SMALL, is_bold=True) + _GAP))
    room = 0.78 * whole
    if sum(wanted) > room:
        wanted = [one * room / sum(wanted) for one in wanted]
    return [1 - sum(wanted) / whole, *(one / whole for one in wanted)]


def _table(sheets: _Sheets, grid: Grid, shares: Sequence[float], size: float) -> None:
    sheets.need(70.0)
    _table_head(sheets, grid, shares)
    for group in grid.groups:
        for number, row in enumerate(group.rows):
            cells = _cells(sheets, row, shares, size)
            height = _row_height(cells, _note(sheets, row, _RIGHT - _LEFT), size)
            title = sheets.fonts.wrapped(group.title, size, _RIGHT - _LEFT - 8.0, is_bold=True) if group.title else []
            above = len(title) * size * _LEADING + 2 * _PAD if title and not number else 0.0
            if not sheets.has_room(height + above):
                sheets.new_page()
                _table_head(sheets, grid, shares)
                if title and number:
                    _group_head(sheets, [*title[:-1], f"{title[-1]}, continued"], size)
            if above:
                _group_head(sheets, title, size)
            _row(sheets, row, cells, shares, size)


def _table_head(sheets: _Sheets, grid: Grid, shares: Sequence[float]) -> None:
    cells = [
        sheets.fonts.wrapped(text, _SMALL, share * (_RIGHT - _LEFT) - (_GAP if place else 0.0), is_bold=True)
        for place, (text, share) in enumerate(zip(grid.head, shares, strict=True))
    ]
    deepest = max(map(len, cells))
    edge = _LEFT
    for place, (lines, share) in enumerate(zip(cells, shares, strict=True)):
        edge += share * (_RIGHT - _LEFT)
        for number, line in enumerate(lines):
            y = sheets.y - (deepest - len(lines) + number + 1) * _SMALL * 1.25
            x = edge if place else _LEFT
            sheets.put(_Text(x, y, line, _SMALL, is_bold=True, gray=_SOFT, is_right=bool(place)))
    sheets.y -= deepest * _SMALL * 1.25 + 4.0
    sheets.put(_Box(_LEFT, sheets.y, _RIGHT - _LEFT, 0.9, _INK))


def _group_head(sheets: _Sheets, title: Sequence[str], size: float) -> None:
    height = len(title) * size * _LEADING + 2 * _PAD
    sheets.put(_Box(_LEFT, sheets.y - height, _RIGHT - _LEFT, height, _TINT))
    for number, line in enumerate(title):
        y = sheets.y - _PAD - (number + 1) * size * _LEADING + 0.3 * size
        sheets.put(_Text(_LEFT + 4.0, y, line, size, is_bold=True))
    sheets.y -= height


def _cells(sheets: _Sheets, row: Cells, shares: Sequence[float], size: float) -> list[Sequence[str]]:
    return [
        sheets.fonts.wrapped(text, size, share * (_RIGHT - _LEFT) - (_GAP if place else 0.0), is_bold=row.is_strong)
        for place, (text, share) in enumerate(zip(row.cells, shares, strict=True))
    ]


def _row_height(cells: Sequence[Sequence[str]], note: Sequence[str], size: float) -> float:
    return max(map(len, cells)) * size * _LEADING + len(note) * _SMALL * _LEADING + 2 * _PAD


def _row(sheets: _Sheets, row: Cells, cells: Sequence[Sequence[str]], shares: Sequence[float], size: float) -> None:
    edge, first = _LEFT, sheets.y - _PAD - size * _LEADING + 0.3 * size
    for place, (lines, share) in enumerate(zip(cells, shares, strict=True)):
        edge += share * (_RIGHT - _LEFT)
        for number, line in enumerate(lines):
            y = first - number * size * _LEADING
            x = edge if place else _LEFT
            sheets.put(_Text(x, y, line, size, is_bold=row.is_strong, is_right=bool(place)))
    note = _note(sheets, row, _RIGHT - _LEFT)
    for number, line in enumerate(note):
        y = first - max(map(len, cells)) * size * _LEADING - number * _SMALL * _LEADING + 1.0
        sheets.put(_Text(_LEFT, y, line, _SMALL, gray=_SOFT))
    top = sheets.y
    sheets.y -= _row_height(cells, note, size)
    if row.is_strong:
        sheets.put(_Box(_LEFT, top, _RIGHT - _LEFT, 0.9, _INK))
    sheets.put(_Box(_LEFT, sheets.y, _RIGHT - _LEFT, 0.5, _LINE))


def _totals(sheets: _Sheets, rows: Sequence[Cells]) -> None:
    """Beside each other on the right, never parted by the end of a page."""
    left = _LEFT + 0.42 * (_RIGHT - _LEFT)
    wide = _RIGHT - left - 110.0
    drawn = [(row, sheets.fonts.wrapped(row.cells[0], _BODY, wide), _note(sheets, row, wide)) for row in rows]
    step = _BODY * _LEADING
    sheets.need(sum((len(words) + 1) * step + len(note) * _SMALL * _LEADING for _, words, note in drawn) + 24.0)
    sheets.y -= 8.0
    for row, words, note in drawn:
        size = 11.5 if row.is_strong else _BODY
        if row.is_strong:
            sheets.y -= 5.0
            sheets.put(_Box(left, sheets.y, _RIGHT - left, 0.9, _INK))
            sheets.y -= 5.0
        first = sheets.y - size * _LEADING
        sheets.put(_Text(_RIGHT, first, row.cells[1], size, is_bold=row.is_strong, is_right=True))
        for line in words:
            sheets.y -= size * _LEADING
            sheets.put(_Text(left, sheets.y, line, size, is_bold=row.is_strong))
        for line in note:
            sheets.y -= _SMALL * _LEADING
            sheets.put(_Text(left, sheets.y, line, _SMALL, gray=_SOFT))
        sheets.y -= 2.0


def _notes(sheets: _Sheets, notes: Sequence[str]) -> None:
    """On one page where they have room on one, so that no line of them is alone on the last."""
    lines = sum(len(sheets.fonts.wrapped(note, _SMALL, _RIGHT - _LEFT)) for note in notes)
    height = _HEADING + lines * _SMALL * _LEADING + 2.0 * len(notes)
    if height <= _TOP - _BOTTOM:
        sheets.need(height)
    sheets.heading("Notes")
    for note in notes:
        sheets.paragraph(note, size=_SMALL, gray=_SOFT)
        sheets.y -= 2.0


def _note(sheets: _Sheets, row: Cells, width: float) -> Sequence[str]:
    return sheets.fonts.wrapped(row.note, _SMALL, width) if row.note else ()


def _drawn(sheets: _Sheets, page: Page) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(
        out,
        pagesize=A4,
        invariant=1,
        pageCompression=1,
        initialFontName=sheets.fonts.first,  # type: ignore[arg-type]  # the stubs take a name for a number
    )
    canvas.setTitle(page.footer)
    canvas.setAuthor(page.seller[0])
    canvas.setCreator("prefixgate")
    for number, marks in enumerate(sheets.pages, 1):
        for mark in (*marks, *_foot(page, number, len(sheets.pages))):
            _draw(canvas, mark, sheets.fonts)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def _foot(page: Page, number: int, count: int) -> Sequence[Mark]:
    return (
        _Box(_LEFT, 46.0, _RIGHT - _LEFT, 0.5, _LINE),
        _Text(_LEFT, 34.0, page.footer, _SMALL, gray=_SOFT),
        *([_Text(_LEFT, 24.0, f"SHA-256 of its data: {page.sha256}", 6.0, gray=_SOFT)] if page.sha256 else []),
        _Text(_RIGHT, 34.0, f"Page {number} of {count}", _SMALL, gray=_SOFT, is_right=True),
    )


def _draw(canvas: Canvas, mark: Mark, fonts: Fonts) -> None:
    canvas.setFillGray(mark.gray)
    if isinstance(mark, _Box):
        canvas.rect(mark.x, mark.y, mark.width, mark.height, stroke=0, fill=1)
        return
    x = mark.x - (fonts.width(mark.text, mark.size, is_bold=mark.is_bold) if mark.is_right else 0.0)
    for run in fonts.runs(mark.text, is_bold=mark.is_bold):
        canvas.setFont(run.font, mark.size)
        canvas.drawString(x, mark.y, run.text)
        x += canvas.stringWidth(run.text, run.font, mark.size)
