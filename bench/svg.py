"""Charts as SVG by hand: legible on a light page and on a dark one, no library needed.

Classes: `title`, `name` (ink), `end`, `middle` (where a text is anchored), `grid`, `line`, `mark`, and for series n of
`LIGHT` and `DARK` `c<n>` (its stroke) and `f<n>` (its fill).
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
LIGHT: Final = ("#2a78d6", "#eb6834", "#1baf7a", "#b87a00", "#c2437c", "#6a55c2", "#6b6a65", "#9a9992")
DARK: Final = ("#5b9ff0", "#f08a5d", "#35c792", "#e0a92e", "#e878a8", "#a08ef0", "#a3a29b", "#7d7c76")


def label(x: float, y: float, text: str, kind: str) -> str:
    """A text of a class, its baseline at `y`."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def picture(height: int, parts: Iterable[str], title: str) -> str:
    """The file: `WIDTH` wide, with the styles of all classes."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _style() -> str:
    general = (
        "text{font:12px system-ui,sans-serif;fill:var(--quiet)}.title{font-size:15px;font-weight:600;fill:var(--ink)}"
        ".name{fill:var(--ink)}.end{text-anchor:end}.middle{text-anchor:middle}.page{fill:var(--page)}"
        ".grid{stroke:var(--grid);fill:none}.line{fill:none;stroke-width:1.6}.line.c0{stroke-width:3.2}"
        ".mark{stroke:var(--ink);stroke-width:2}.f0{font-weight:600}"
    )
    colours = "".join(f".c{n}{{stroke:var(--s{n})}}.f{n}{{fill:var(--s{n})}}" for n in range(len(LIGHT)))
    light = _variables({"page": "#ffffff", "ink": "#1a1a19", "quiet": "#55544f", "grid": "#e4e3dd"}, LIGHT)
    dark = _variables({"page": "#0d1117", "ink": "#f2f1ec", "quiet": "#b5b4ac", "grid": "#2b3038"}, DARK)
    return f"svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}{general}{colours}"


def _variables(named: Mapping[str, str], series: Sequence[str]) -> str:
    numbered = {f"s{n}": colour for n, colour in enumerate(series)}
    return "".join(f"--{name}:{colour};" for name, colour in {**named, **numbered}.items())
