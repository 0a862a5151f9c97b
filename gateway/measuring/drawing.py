"""Charts as shapes: axes, lines and marks at their places, drawn by whoever can draw. Pure.

    Panel ──placed in a grid──> Shape, Shape, ...  ──> svg_of, png_of

Scales are logarithmic where values span more than an order of magnitude, since load and time do. Lengths are pixels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Final, Literal

WIDTH: Final = 460
HEIGHT: Final = 300
"""Of one panel."""
COLUMNS: Final = 2
LOG_FROM: Final = 12.0
"""Largest over smallest value, from which on a scale is logarithmic."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 34, 42
"""Margins of a panel, where its title, its names and its values stand."""
_TICKS: Final = 5
LETTER: Final = 6.2
"""Width of one, about."""
_RADIUS: Final = 2.6

Points = Sequence[tuple[float, float]]
Kind = Literal["grid", "mark", "series", "dashed"]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Series:
    """Points in order of x, joined; `colour` is a place in the palette. `is_fit`: a dashed line without dots."""

    name: str
    points: Points
    colour: int = 0
    is_fit: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart. `bounds` are values of y that are limits, `at` values of x that mean something, each with its name;
    y ends at `top`, or a little above the largest value."""

    title: str
    x_name: str
    series: Sequence[Series]
    bounds: Sequence[tuple[float, str]] = ()
    at: Sequence[tuple[float, str]] = ()
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Through these places. A series, and a dashed line, have a colour."""

    places: Points
    kind: Kind
    colour: int = 0


@dataclass(frozen=True, slots=True)
class Dot:
    """Of a series."""

    x: float
    y: float
    colour: int
    radius: float = _RADIUS
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """Its baseline begins, is centred or ends at the place, as `anchor` says."""

    x: float
    y: float
    said: str
    anchor: Anchor = "start"
    colour: int | None = None
    is_title: bool = False


Shape = Line | Dot | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on a page of so many pixels, the origin above on the left."""

    width: int
    height: int
    shapes: Sequence[Shape] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values from `low` to `high` are at places from `first` to `last`."""

    low: float
    high: float
    is_log: bool
    first: float
    last: float

    def __call__(self, value: float) -> float:
        if self.is_log:
            share = (log10(max(value, self.low)) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Round values within."""
        if self.is_log:
            decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            steps = (1.0,) if len(decades) > _TICKS else (1.0, 2.0, 5.0)
            found = [step * 10.0**decade for decade in decades for step in steps]
        else:
            found = round_values(self.low, self.high)
        return [value for value in found if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]


def drawn(panels: Sequence[Panel]) -> Drawing:
    """All of them in a grid; those without a point are left out."""
    shown = [panel for panel in panels if any(one.points for one in panel.series)]
    shapes = [
        shape
        for place, panel in enumerate(shown)
        for shape in _panel(panel, place % COLUMNS * WIDTH, place // COLUMNS * HEIGHT)
    ]
    return Drawing(WIDTH * min(len(shown), COLUMNS), HEIGHT * ceil(len(shown) / COLUMNS), shapes)


def _panel(panel: Panel, left: float, top: float) -> Iterator[Shape]:
    xs = [x for one in panel.series for x, _ in one.points]
    ys = [y for one in panel.series for _, y in one.points] + [value for value, _ in panel.bounds]
    x_of = _scale(xs, None, left + _LEFT, left + WIDTH - _RIGHT)
    y_of = _scale(ys, panel.top, top + HEIGHT - _BOTTOM, top + _TOP)
    yield Text(left + _LEFT, top + 16, panel.title, is_title=True)
    yield from _axes(x_of, y_of)
    yield Text((x_of.first + x_of.last) / 2, y_of.first + 32, panel.x_name, "middle")
    yield from _marks(panel, x_of, y_of)
    yield from _legend(panel.series, x_of.last, top + 28)
    for one in panel.series:
        places = [(x_of(x), y_of(y)) for x, y in one.points]
        yield Line(places, "dashed" if one.is_fit else "series", one.colour)
        if not one.is_fit:
            yield from (Dot(x, y, one.colour) for x, y in places)


def _marks(panel: Panel, x_of: _Scale, y_of: _Scale) -> Iterator[Shape]:
    for value, name in panel.bounds:
        yield Line([(x_of.first, y_of(value)), (x_of.last, y_of(value))], "mark")
        yield Text(x_of.last, y_of(value) - 4, name, "end")
    for value, name in panel.at:
        if x_of.low <= value <= x_of.high:
            yield Line([(x_of(value), y_of.first), (x_of(value), y_of.last)], "mark")
            yield Text(x_of(value) + 3, y_of.last + 10, name)


def _legend(series: Sequence[Series], right: float, y: float) -> Iterator[Text]:
    for one in reversed(series):
        yield Text(right, y, one.name, "end", one.colour)
        right -= LETTER * len(one.name) + 12


def _axes(x_of: _Scale, y_of: _Scale) -> Iterator[Shape]:
    for value in y_of.ticks():
        yield Line([(x_of.first, y_of(value)), (x_of.last, y_of(value))], "grid")
        yield Text(x_of.first - 6, y_of(value) + 4, f"{value:g}", "end")
    for value in x_of.ticks():
        yield Line([(x_of(value), y_of.first), (x_of(value), y_of.first + 4)], "grid")
        yield Text(x_of(value), y_of.first + 16, f"{value:g}", "middle")


def _scale(values: Sequence[float], top: float | None, first: float, last: float) -> _Scale:
    low, high = min(values), max(values)
    if top is not None:
        return _Scale(0.0, top, False, first, last)
    if low > 0 and high / low >= LOG_FROM:
        return _Scale(low / 1.1, high * 1.1, True, first, last)
    return _Scale(0.0, high * 1.08 or 1.0, False, first, last)


def round_values(low: float, high: float) -> list[float]:
    """Some five from `low` to `high`, which is more, at equal steps of 1, 2 or 5 times a power of ten."""
    step = _round_step((high - low) / _TICKS)
    return [step * n for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def _round_step(step: float) -> float:
    decade = 10.0 ** floor(log10(step))
    return next(factor * decade for factor in (1.0, 2.0, 5.0, 10.0) if factor * decade >= step * (1 - 1e-9))
