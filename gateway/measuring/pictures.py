"""Drawings as SVG, which is legible on a light page and on a dark one, and as PNG, by Pillow."""

from collections.abc import Mapping
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Final

from gateway.measuring.drawing import Dot, Drawing, Line, Text
from gateway.measuring.errors import PictureUnknown

_LIGHT: Final = {
    "ink": "#1a1a19",
    "quiet": "#55544f",
    "grid": "#e4e3dd",
    "page": "#ffffff",
    "s0": "#2a78d6",
    "s1": "#eb6834",
    "s2": "#1baf7a",
}
"""Colours by name; s0, s1, ... are those of series, in their order."""
_DARK: Final = {
    "ink": "#f2f1ec",
    "quiet": "#b5b4ac",
    "grid": "#2b3038",
    "page": "#0d1117",
    "s0": "#5b9ff0",
    "s1": "#f08a5d",
    "s2": "#35c792",
}
_LETTER, _TITLE_LETTER = 11, 13
"""Heights in pixels."""
_FINE: Final = 2
"""Pixels of a PNG for each of the drawing."""


def write_picture(drawing: Drawing, title: str, path: Path) -> None:
    """As the suffix of the file says. Raises `OSError`, and `PictureUnknown` for a suffix of neither."""
    picture = picture_of(path)
    path.write_bytes(svg_of(drawing, title).encode() if picture == "svg" else png_of(drawing))


def picture_of(path: Path) -> str:
    """svg or png. Raises `PictureUnknown`."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        raise PictureUnknown(path)
    return kind


def svg_of(drawing: Drawing, title: str) -> str:
    """The file."""
    size = f"{drawing.width} {drawing.height}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="page" width="{drawing.width}" height="{drawing.height}"/>',
            *(_element(shape) for shape in drawing.shapes),
            "</svg>\n",
        )
    )


def _style() -> str:
    def variables(colours: Mapping[str, str]) -> str:
        return "svg{" + ";".join(f"--{name}:{colour}" for name, colour in colours.items()) + "}"

    series = [name for name in _LIGHT if name.startswith("s")]
    return (
        f"{variables(_LIGHT)}@media(prefers-color-scheme:dark){{{variables(_DARK)}}}"
        f"text{{font:{_LETTER}px system-ui,sans-serif;fill:var(--quiet)}}"
        f".title{{font-size:{_TITLE_LETTER}px;font-weight:600;fill:var(--ink)}}"
        ".middle{text-anchor:middle}.end{text-anchor:end}path{fill:none}"
        ".page,.hollow{fill:var(--page)}.grid{stroke:var(--grid)}.mark{stroke:var(--quiet);stroke-dasharray:4 3}"
        ".series{stroke-width:1.8}.dashed{stroke-width:1;stroke-dasharray:2 2}"
        + "".join(f".c{place}{{stroke:var(--{name})}}" for place, name in enumerate(series))
        + "".join(f".f{place}{{fill:var(--{name})}}" for place, name in enumerate(series))
    )


def _element(shape: Line | Dot | Text) -> str:
    match shape:
        case Line(places, kind, colour):
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            named = f"{kind} c{colour}" if kind in ("series", "dashed") else kind
            return f'<path class="{named}" d="{path}"/>'
        case Dot(x, y, colour, radius, is_hollow):
            named = f"hollow c{colour}" if is_hollow else f"f{colour}"
            return f'<circle class="{named}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'
        case Text(x, y, said, anchor, colour, is_title):
            names = [anchor, "title" if is_title else "", "" if colour is None else f"f{colour}"]
            return f'<text class="{" ".join(filter(None, names))}" x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'


def png_of(drawing: Drawing) -> bytes:
    """The file, on a light page."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 - only for who wants a PNG

    image = Image.new("RGB", (drawing.width * _FINE, drawing.height * _FINE), _LIGHT["page"])
    pen = ImageDraw.Draw(image)
    letters, titles = (ImageFont.load_default(size * _FINE) for size in (_LETTER, _TITLE_LETTER))
    for shape in drawing.shapes:
        match shape:
            case Line(places, kind, colour):
                ink = _LIGHT[{"grid": "grid", "mark": "quiet"}.get(kind, f"s{colour}")]
                width = _FINE * (2 if kind == "series" else 1)
                pen.line([(x * _FINE, y * _FINE) for x, y in places], fill=ink, width=width)
            case Dot(x, y, colour, radius, is_hollow):
                box = [(x - radius) * _FINE, (y - radius) * _FINE, (x + radius) * _FINE, (y + radius) * _FINE]
                ink = _LIGHT[f"s{colour}"]
                pen.ellipse(box, fill=_LIGHT["page"] if is_hollow else ink, outline=ink, width=_FINE)
            case Text(x, y, said, anchor, colour, is_title):
                ink = _LIGHT["ink" if is_title else "quiet" if colour is None else f"s{colour}"]
                side = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
                pen.text((x * _FINE, y * _FINE), said, fill=ink, font=titles if is_title else letters, anchor=side)
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
