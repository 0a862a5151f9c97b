"""A chart in letters, for a terminal. Pure.

     Time to first token, s
   2.1 │                            2
       │                       2
       │                  2         1
  0.19 │  2    2    2     1    1    0
       └──────────────────────────────
        1                           64  requests in flight, mean

0, 1, 2 are the series in their order; where several meet, the last is seen.
"""

from collections.abc import Iterator
from math import log10
from typing import Final

from gateway.measuring.drawing import LOG_FROM, Panel

_ROWS: Final = 8
_LEFT: Final = 9
"""Letters of a value of y."""
_LEAST_COLUMNS: Final = 24


def lines_of(panel: Panel, columns: int) -> Iterator[str]:
    """Of a panel with a point at least, in so many columns; nothing of one without."""
    points = [(x, y, place) for place, one in enumerate(panel.series) if not one.is_fit for x, y in one.points]
    if not points:
        return
    width = max(columns - _LEFT - 4, _LEAST_COLUMNS)
    x_low, x_high = min(x for x, _, _ in points), max(x for x, _, _ in points)
    y_low, y_high = (0.0 if panel.top else min(y for _, y, _ in points)), panel.top or max(y for _, y, _ in points)
    grid = [[" "] * width for _ in range(_ROWS)]
    for x, y, place in points:
        row = _ROWS - 1 - _place(y, y_low, y_high, _ROWS)
        grid[row][_place(x, x_low, x_high, width)] = str(place)
    names = "  ".join(f"{place} {one.name}" for place, one in enumerate(panel.series) if not one.is_fit)
    yield f"{panel.title}   {names}"
    for row, cells in enumerate(grid):
        label = f"{y_high:.3g}" if row == 0 else f"{y_low:.3g}" if row == _ROWS - 1 else ""
        yield f"{label:>{_LEFT}} │{''.join(cells)}".rstrip()
    yield f"{'':>{_LEFT}} └{'─' * width}"
    ends = f"{x_low:.3g}", f"{x_high:.3g}  {panel.x_name}"
    yield f"{'':>{_LEFT}}  {ends[0]} {ends[1]:>{max(width - len(ends[0]) - 1, 0)}}"


def _place(value: float, low: float, high: float, cells: int) -> int:
    if high <= low:
        return 0
    if low > 0 and high / low >= LOG_FROM:
        value, low, high = log10(value), log10(low), log10(high)
    return min(round((value - low) / (high - low) * (cells - 1)), cells - 1)
