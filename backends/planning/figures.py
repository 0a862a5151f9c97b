"""A number with its unit and the way it came about, so that a plan can be held against a pocket calculator.

weights   141.2 GB   = 70.6e9 parameters × 16 bits / 8
"""

from dataclasses import dataclass
from typing import Final

__all__ = ["Figure", "readable"]

_STEPS: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BELOW_ONE: Final = ((1e-3, "m", 1e3), (1e-6, "µ", 1e6))
_MANY: Final = 1e18
"""From here on digits tell nobody anything."""
_PREFIXED: Final = frozenset({"B", "FLOP", "s"})
"""Units that take a prefix."""


@dataclass(frozen=True, slots=True)
class Figure:
    """`name`, `value` in `unit`, and `how`: the formula with the numbers that went into it."""

    name: str
    value: float
    unit: str
    how: str

    def __str__(self) -> str:
        return f"{self.name}: {readable(self.value, self.unit)} = {self.how}"


def readable(value: float, unit: str) -> str:
    """A value with a prefix that leaves three or four digits: `141.2 GB`, `42.1 ms`, `13,570 tokens/s`."""
    if unit not in _PREFIXED:
        form = ".3g" if abs(value) < 100 else ",.0f" if abs(value) < _MANY else ".4g"
        return f"{value:{form}} {unit}".rstrip()
    if unit == "s":
        return _seconds(value)
    for least, prefix in _STEPS:
        if abs(value) >= least:
            return f"{value / least:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def _seconds(value: float) -> str:
    if abs(value) >= 1:
        return f"{value:,.4g} s"
    for least, prefix, factor in _BELOW_ONE:
        if abs(value) >= least:
            return f"{value * factor:.3g} {prefix}s"
    return f"{value:.3g} s"
