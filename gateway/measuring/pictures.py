"""Drawings as SVG, which is legible on a light page and on a dark one, and as PNG, by Pillow."""

from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from gateway.measuring.drawing import Dot, Drawing, Line, Text
from gateway.measuring.errors import LoadUnusable

_LIGHT: Final = ("#2a78d6", "#eb6834", "#1baf7a")
_DARK: Final = ("#5b9ff0", "#f08a5d", "#35c792")
_INK, _QUIET, _GRID, _PAGE = "#1a1a19", "#55544f", "#e4e3dd", "#ffffff"
_STYLE: Final = (
    "svg{--ink:#1a1a19;--quiet:#55544f;--grid:#e4e3dd;--page:#fff;--s0:#2a78d6;--s1:#eb6834;--s2:#1baf7a}"
    "@media(prefers-color-scheme:dark){svg{--ink:#f2f1ec;--quiet:#b5b4ac;--grid:#2b3038;--page:#0d1117;"
    f"--s0:{_DARK[0]};--s1:{_DARK[1]};--s2:{_DARK[2]}}}}}"
    "text{font:11px system-ui,sans-serif;fill:var(--quiet)}.title{font-size:13px;font-weight:600;fill:var(--ink)}"
    ".middle{text-anchor:middle}.end{text-anchor:end}.page{fill:var(--page)}path{fill:none}.grid{stroke:var(--grid)}"
    ".mark{stroke:var(--quiet);stroke-dasharray:4 3}.series{stroke-width:1.8}.fit{stroke-width:1;stroke-dasharray:2 2}"
    ".c0{stroke:var(--s0)}.c1{stroke:var(--s1)}.c2{stroke:var(--s2)}"
    ".f0{fill:var(--s0)}.f1{fill:var(--s1)}.f2{fill:var(--s2)}"
)
_FINE: Final = 2
"""Pixels of a PNG for each of the drawing."""
_PNG_LETTERS: Final = {False: 11, True: 13}


def write_picture(drawing: Drawing, title: str, path: Path) -> None:
    """As the suffix of the file says. Raises `OSError`, and `LoadUnusable` for a suffix of neither."""
    picture = picture_of(path)
    path.write_bytes(svg_of(drawing, title).encode() if picture == "svg" else png_of(drawing))


def picture_of(path: Path) -> str:
    """svg or png. Raises `LoadUnusable`."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise LoadUnusable(f"{path}: a picture is a file that ends in .svg or .png")
    return kind


def svg_of(drawing: Drawing, title: str) -> str:
    """The file."""
    size = f"{drawing.width} {drawing.height}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{drawing.width}" height="{drawing.height}"/>',
            *(_element(shape) for shape in drawing.shapes),
            "</svg>\n",
        )
    )


def _element(shape: Line | Dot | Text) -> str:
    match shape:
        case Line(places, kind, colour):
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            named = f"{kind} c{colour}" if kind in ("series", "fit") else kind
            return f'<path class="{named}" d="{path}"/>'
        case Dot(x, y, colour, radius):
            return f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
        case Text(x, y, said, anchor, colour, is_title):
            names = [anchor, "title" if is_title else "", "" if colour is None else f"f{colour}"]
            return f'<text class="{" ".join(filter(None, names))}" x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'


def png_of(drawing: Drawing) -> bytes:
    """The file, on a light page."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - only for who wants a PNG

    image = Image.new("RGB", (drawing.width * _FINE, drawing.height * _FINE), _PAGE)
    pen: Any = ImageDraw.Draw(image)
    fonts = {title: ImageFont.load_default(size * _FINE) for title, size in _PNG_LETTERS.items()}
    for shape in drawing.shapes:
        match shape:
            case Line(places, kind, colour):
                ink = {"grid": _GRID, "mark": _QUIET}.get(kind, _LIGHT[colour % len(_LIGHT)])
                width = _FINE * (2 if kind == "series" else 1)
                pen.line([(x * _FINE, y * _FINE) for x, y in places], fill=ink, width=width)
            case Dot(x, y, colour, radius):
                box = [(x - radius) * _FINE, (y - radius) * _FINE, (x + radius) * _FINE, (y + radius) * _FINE]
                pen.ellipse(box, fill=_LIGHT[colour % len(_LIGHT)])
            case Text(x, y, said, anchor, colour, is_title):
                ink = _INK if is_title else _QUIET if colour is None else _LIGHT[colour % len(_LIGHT)]
                side = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
                pen.text((x * _FINE, y * _FINE), said, fill=ink, font=fonts[is_title], anchor=side)
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
