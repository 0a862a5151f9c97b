"""A picture of a sweep as SVG, legible on a light and a dark page: speed against quality, the front joined. Pure.

output/s ▲    ●─┐                 ●  on the front by these two figures; the line is what it bounds
         │      └──●              ○  beaten
         │   ○
         └────────────► quality   better to the right
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from gateway.tuning.pareto import Axis, front
from gateway.tuning.table import Judged, Results, figure

_WIDTH: Final = 760
_HEIGHT: Final = 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 730.0, 58.0, 402.0
_TICKS: Final = 5
_SPEED: Final = "output_tokens_per_s"
_WORDS: Final = {
    "perplexity": "perplexity of the held text (less is better, to the right)",
    "agreement": "tokens that agree with the baseline's",
    "tasks": "tasks answered exactly",
    _SPEED: "tokens of answers a second",
}
_STYLE: Final = (
    "svg{--page:#fff;--ink:#1a1a19;--quiet:#55544f;--grid:#e4e3dd;--on:#2a78d6;--off:#9a9992}"
    "@media(prefers-color-scheme:dark){svg{--page:#0d1117;--ink:#f2f1ec;--quiet:#b5b4ac;--grid:#2b3038;--on:#5b9ff0;"
    "--off:#7d7c76}}"
    "text{font:12px system-ui,sans-serif;fill:var(--quiet)}.title{font-size:15px;font-weight:600;fill:var(--ink)}"
    ".name{fill:var(--ink)}.end{text-anchor:end}.middle{text-anchor:middle}.page{fill:var(--page)}"
    ".grid{stroke:var(--grid)}.front{fill:none;stroke:var(--on);stroke-width:1.6;stroke-dasharray:4 3}"
    ".on{fill:var(--on)}.off{fill:var(--page);stroke:var(--off);stroke-width:1.6}"
)

_DRAWN: Final = (Axis("right", more_is_better=True), Axis("up", more_is_better=True))

Point = tuple[float, float]


def picture(found: Results) -> str:
    """The file. Settings that failed, or of which a figure is not known, are counted below and not drawn."""
    axes = [axis for axis in found.axes if axis.name in _WORDS and axis.name != _SPEED]
    quality = axes[0].name if axes else "agreement"
    known = [
        (one, (good, fast))
        for one in found.rows
        if (good := figure(one, quality)) is not None and (fast := figure(one, _SPEED)) is not None
    ]
    parts = list(_chart(known, quality, is_less_better=bool(axes) and not axes[0].more_is_better)) if known else []
    missing = len(found.rows) - len(known)
    below = f"{len(known)} settings" + (f"; {missing} more failed, or tell no such figure" if missing else "")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
            "<title>Speed against quality</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}"/>',
            _text(_LEFT, 28, "Speed against quality", "title"),
            *parts,
            _text(_LEFT, _HEIGHT - 10, below, ""),
            "</svg>\n",
        ]
    )


def _chart(known: Sequence[tuple[Judged, Point]], quality: str, *, is_less_better: bool) -> Iterator[str]:
    goods = _bounds([point[0] for _, point in known])
    fasts = (0.0, max(point[1] for _, point in known) * 1.12 or 1.0)

    def place(point: Point) -> Point:
        across = (point[0] - goods[0]) / (goods[1] - goods[0])
        up = (point[1] - fasts[0]) / (fasts[1] - fasts[0])
        across = 1 - across if is_less_better else across
        return _LEFT + across * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)

    for at in range(_TICKS + 1):
        good = goods[0] + (goods[1] - goods[0]) * at / _TICKS
        fast = fasts[0] + (fasts[1] - fasts[0]) * at / _TICKS
        x, y = place((good, fast))
        yield f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_RIGHT}" y2="{y:.1f}"/>'
        yield _text(_LEFT - 8, y + 4, f"{fast:,.4g}", "end")
        yield _text(x, _BOTTOM + 18, f"{good:,.4g}", "middle")
    yield _text(_LEFT, _TOP - 10, _WORDS[_SPEED], "")
    yield _text(_RIGHT, _BOTTOM + 36, _WORDS[quality], "end")
    points = [place(point) for _, point in known]
    best = front([(x, -y) for x, y in points], _DRAWN)
    yield _stairs(sorted(point for point, is_best in zip(points, best, strict=True) if is_best))
    for (one, _), (x, y), is_best in zip(known, points, best, strict=True):
        yield f'<circle class="{"on" if is_best else "off"}" cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
        side = "end" if x > (_LEFT + _RIGHT) / 2 else ""
        yield _text(x - 9 if side else x + 9, y - 6, one.row.name, f"name {side}".strip())


def _stairs(points: Sequence[Point]) -> str:
    """From left, where quality is worst, down to the right: the corner of two is as bad as the worse of each."""
    steps = [f"{x:.1f},{y:.1f} {x:.1f},{next_y:.1f}" for (x, y), (_, next_y) in pairwise(points)]
    ends = [f"{x:.1f},{y:.1f}" for x, y in points[-1:]]
    return f'<polyline class="front" points="{" ".join([*steps, *ends])}"/>'


def _bounds(values: Iterable[float]) -> Point:
    """A little more than the values take; of one alone a tenth around it."""
    found = list(values)
    least, most = min(found), max(found)
    margin = (most - least) * 0.12 or max(abs(most) * 0.1, math.ulp(1.0) * 1e6)
    return least - margin, most + margin


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
