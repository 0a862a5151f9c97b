"""Figures as people read them in a table; a dash where nobody knows."""

from typing import Final

UNKNOWN: Final = "-"
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))
_KIB: Final = 1024
_SIZES: Final = ("B", "KiB", "MiB", "GiB")


def age(seconds: float | None) -> str:
    """How long ago, in the largest unit that there are two of."""
    if seconds is None:
        return UNKNOWN
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def number(value: float | None) -> str:
    """A whole number."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def seconds(seconds: float | None) -> str:
    """Seconds, to the millisecond."""
    return UNKNOWN if seconds is None else f"{seconds:.3f}"


def percent(share: float | None, places: int = 0) -> str:
    """A share of 0 to 1, with so many digits behind the point."""
    return UNKNOWN if share is None else f"{100 * share:.{places}f} %"


def size(count_bytes: float) -> str:
    """Bytes, in the largest unit that there is one of."""
    for unit in _SIZES:
        if count_bytes < _KIB:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= _KIB
    return f"{count_bytes:.1f} TiB"
