"""Figures as people read them in a table."""

from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


def age(seconds: float | None) -> str:
    """How long ago, in the largest unit that there are two of; a dash where nobody knows."""
    if seconds is None:
        return "-"
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
