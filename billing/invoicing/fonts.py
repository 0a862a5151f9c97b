"""The letters of a PDF: Noto Sans for Latin, Greek and Cyrillic, Noto Sans JP for all that JIS has, then the seller's.

A text is cut into runs, each in the first font that has its letters; a document embeds the letters that it uses.
A letter that no font has is printed as the printer's mark for that, `〓`, and is reported by `missing_letters`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from reportlab.pdfbase import pdfdoc, pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont

from billing.invoicing.documents import InvoiceInvalid

_FOLDER = Path(__file__).parent / "fonts"
_REGULAR, _BOLD, _JAPANESE = "NotoSans-Regular", "NotoSans-Bold", "NotoSansJP-Regular"
_MISSING = "〓"
_UNSPACED = r"\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
"""Letters of scripts that are written without spaces."""
_STAYS = "、。，．・：；？！ー々〉》」』】〕）］｝…"
"""What does not begin a line."""
_PIECE = re.compile(rf"[{_UNSPACED}][{_STAYS}]* *|[^\s{_UNSPACED}]+\s*|\s+")
_BEYOND_BMP = re.compile(r"(<[0-9A-F]{2}>) <([0-9A-F]{5,6})>")


@dataclass(frozen=True, slots=True)
class Run:
    """Letters of one font."""

    font: str
    text: str


class Fonts:
    """Fonts in the order in which they are asked for a letter."""

    def __init__(self, extra: Sequence[Path] = ()) -> None:
        more = [_registered(path) for path in extra]
        ours = [_registered(_FOLDER / f"{name}.ttf") for name in (_REGULAR, _BOLD, _JAPANESE)]
        self._regular = (ours[0], ours[2], *more)
        self._bold = (ours[1], ours[2], *more)

    @property
    def first(self) -> str:
        """The font of most letters."""
        return self._regular[0].fontName

    def runs(self, text: str, *, is_bold: bool = False) -> Sequence[Run]:
        """A text, font by font."""
        faces = self._bold if is_bold else self._regular
        placed = [self._placed(letter, faces) for letter in text]
        return [
            Run(font, "".join(letter for _, letter in same)) for font, same in groupby(placed, key=lambda one: one[0])
        ]

    def width(self, text: str, size: float, *, is_bold: bool = False) -> float:
        """Of a line, in points."""
        return sum(pdfmetrics.stringWidth(run.text, run.font, size) for run in self.runs(text, is_bold=is_bold))

    def missing(self, texts: Iterable[str]) -> str:
        """Letters that no font has, each once."""
        letters = sorted({letter for text in texts for letter in text if not letter.isspace()})
        return "".join(letter for letter in letters if not any(_has(face, letter) for face in self._regular))

    def wrapped(self, text: str, size: float, width: float, *, is_bold: bool = False) -> Sequence[str]:
        """Lines no wider than `width`: broken at spaces, before a letter of Japanese, or inside what is too long."""
        lines, line = [], ""
        for piece in _pieces(text):
            if self.width(line + piece.rstrip(), size, is_bold=is_bold) <= width:
                line += piece
                continue
            if line.strip():
                lines.append(line.rstrip())
            line = ""
            for letter in piece:
                if line and self.width(line + letter, size, is_bold=is_bold) > width and not letter.isspace():
                    lines.append(line.rstrip())
                    line = ""
                line += letter
        return [*lines, line.rstrip()] if line.strip() or not lines else lines

    def _placed(self, letter: str, faces: Sequence[TTFont]) -> tuple[str, str]:
        if letter.isspace():
            return faces[0].fontName, " "
        for face in faces:
            if _has(face, letter):
                return face.fontName, letter
        return _JAPANESE, _MISSING


class _Font(TTFont):
    """Reportlab's, with the text of letters beyond U+FFFF as PDF wants it: two halves of UTF-16."""

    def addObjects(self, doc: pdfdoc.PDFDocument) -> None:
        super().addObjects(doc)
        for name, found in doc.idToObject.items():
            if name.startswith("toUnicodeCMap:") and isinstance(found, pdfdoc.PDFStream):
                found.content = _BEYOND_BMP.sub(_in_utf_16, found.content)


def _in_utf_16(found: re.Match[str]) -> str:
    return f"{found[1]} <{chr(int(found[2], 16)).encode('utf-16-be').hex().upper()}>"


def _pieces(text: str) -> Iterable[str]:
    """Where a line may end: after spaces, and around letters that are written without them."""
    return _PIECE.findall(text)


def _has(font: TTFont, letter: str) -> bool:
    return ord(letter) in font.face.charToGlyph


@cache
def _registered(path: Path) -> TTFont:
    """A font file, known to reportlab by its name; read once a process, tens of milliseconds."""
    try:
        font = _Font(path.stem, str(path))
    except (TTFError, OSError) as error:
        raise InvoiceInvalid(f"the font {path} cannot be used, it must be TrueType: {error}") from None
    pdfmetrics.registerFont(font)
    return font
