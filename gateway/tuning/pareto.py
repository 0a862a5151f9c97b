"""Which of many are worth having: those that no other beats in everything. Pure.

tokens/s
   │  x        x  beaten by a
   │     a
   │        b     a is faster, b is better: nothing says which to take
   └──────────── quality
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan


@dataclass(frozen=True, slots=True)
class Axis:
    """A figure by which settings are held against each other."""

    name: str
    more_is_better: bool


def front(points: Sequence[Sequence[float | None]], axes: Sequence[Axis]) -> list[bool | None]:
    """For each point whether it is on the front; None of one with an unknown figure, which can beat none either.

    A point is beaten by one that is as good in every figure and better in one: of two alike both stay. O(n² · axes).
    """
    costs = [_costs(point, axes) for point in points]
    known = {cost for cost in costs if cost is not None}
    return [None if cost is None else not any(_beats(other, cost) for other in known) for cost in costs]


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the first is nowhere worse and somewhere better; smaller is better."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and tuple(one) != tuple(other)


def _costs(point: Sequence[float | None], axes: Sequence[Axis]) -> tuple[float, ...] | None:
    """Less of each is better; None where one is not known, or is no number."""
    costs = tuple(
        -value if axis.more_is_better else value
        for value, axis in zip(point, axes, strict=True)
        if value is not None and not isnan(value)
    )
    return costs if len(costs) == len(axes) else None
