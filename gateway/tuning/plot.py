"""A picture of a sweep: speed against quality, the front joined. Pure.

output/s ▲    ●─┐                 ●  on the front by these two figures; the line is what it bounds
         │      └──●              ○  beaten
         │   ○
         └────────────► quality   better to the right
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from gateway.measuring.drawing import LETTER, Dot, Drawing, Line, Shape, Text, round_values
from gateway.measuring.pictures import svg_of
from gateway.tuning.pareto import Axis, front
from gateway.tuning.table import Judged, Results, figure

_TITLE: Final = "Speed against quality"
_WIDTH: Final = 760
_HEIGHT: Final = 460
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 730.0, 58.0, 402.0
"""Of the chart, in pixels of the page."""
_BESIDE: Final = 9.0
_LINE: Final = 14.0
"""From a name to the one below it."""
_ROOM: Final = 0.12
"""Of what the values span, so that none is on an edge."""
_RADIUS: Final = 5.0
_SPEED: Final = "output_tokens_per_s"
_WORDS: Final = {
    "perplexity": "perplexity of the held text (less is better, to the right)",
    "agreement": "tokens that agree with the baseline's",
    "tasks": "tasks answered exactly",
    _SPEED: "tokens of answers a second",
}
_DRAWN: Final = (Axis("right", more_is_better=True), Axis("up", more_is_better=True))

Point = tuple[float, float]


def picture(found: Results) -> str:
    """As SVG. Settings that failed, or of which a figure is not known, are counted below and not drawn. O(n²)."""
    return svg_of(Drawing(_WIDTH, _HEIGHT, list(_page(found))), _TITLE)


def _page(found: Results) -> Iterator[Shape]:
    axes = [axis for axis in found.axes if axis.name in _WORDS and axis.name != _SPEED]
    quality = axes[0] if axes else Axis("agreement", more_is_better=True)
    known = [
        (one, (good, fast))
        for one in found.rows
        if (good := figure(one, quality.name)) is not None and (fast := figure(one, _SPEED)) is not None
    ]
    yield Text(_LEFT, 28, _TITLE, is_title=True)
    if known:
        yield from _chart(known, quality)
    missing = len(found.rows) - len(known)
    more = f"; {missing} more failed, or tell no such figure" if missing else ""
    yield Text(_LEFT, _HEIGHT - 10, f"{len(known)} setting{'s' * (len(known) != 1)}{more}")


def _chart(known: Sequence[tuple[Judged, Point]], quality: Axis) -> Iterator[Shape]:
    least, most = _bounds([good for _, (good, _) in known])
    worst, best = (least, most) if quality.more_is_better else (most, least)
    fastest = max(fast for _, (_, fast) in known) * (1 + _ROOM) or 1.0

    def place(point: Point) -> Point:
        across, up = (point[0] - worst) / (best - worst), point[1] / fastest
        return _LEFT + across * (_RIGHT - _LEFT), _BOTTOM - up * (_BOTTOM - _TOP)

    for fast in round_values(0.0, fastest):
        _, y = place((worst, fast))
        yield Line([(_LEFT, y), (_RIGHT, y)], "grid")
        yield Text(_LEFT - 8, y + 4, f"{fast:g}", "end")
    for good in round_values(least, most):
        x, _ = place((good, 0.0))
        yield Line([(x, _BOTTOM), (x, _BOTTOM + 4)], "grid")
        yield Text(x, _BOTTOM + 18, f"{good:g}", "middle")
    yield Text(_LEFT, _TOP - 10, _WORDS[_SPEED])
    yield Text(_RIGHT, _BOTTOM + 36, _WORDS[quality.name], "end")
    yield from _settings([(one.row.name, place(point)) for one, point in known])


def _settings(named: Sequence[tuple[str, Point]]) -> Iterator[Shape]:
    on_front = front([(x, -y) for _, (x, y) in named], _DRAWN)
    yield Line(_stairs(sorted(point for (_, point), is_on in zip(named, on_front, strict=True) if is_on)), "dashed")
    for (_, (x, y)), is_on in zip(named, on_front, strict=True):
        yield Dot(x, y, 0, _RADIUS, is_hollow=not is_on)
    yield from _names(named)


def _names(named: Sequence[tuple[str, Point]]) -> Iterator[Text]:
    """Beside their dots, towards the middle of the chart, from above; one that would lie on another stands below it."""
    taken: list[tuple[float, float, float]] = []
    for name, (x, dot_y) in sorted(named, key=lambda one: one[1][1]):
        width, is_right = LETTER * len(name), x > (_LEFT + _RIGHT) / 2
        left = x - _BESIDE - width if is_right else x + _BESIDE
        lines = (y + _LINE for begins, ends, y in taken if begins < left + width and left < ends)
        y = max(dot_y - _RADIUS, *lines, 0.0)
        taken.append((left, left + width, y))
        yield Text(left + width if is_right else left, y, name, "end" if is_right else "start")


def _stairs(points: Sequence[Point]) -> list[Point]:
    """From left, where quality is worst, down to the right: the corner of two is as bad as the worse of each."""
    corners = [place for (x, y), (_, next_y) in pairwise(points) for place in ((x, y), (x, next_y))]
    return [*corners, *points[-1:]]


def _bounds(values: Iterable[float]) -> Point:
    """A little more than the values take; of one alone a tenth around it."""
    found = list(values)
    least, most = min(found), max(found)
    margin = (most - least) * _ROOM or max(abs(most) * 0.1, math.ulp(1.0) * 1e6)
    return least - margin, most + margin
