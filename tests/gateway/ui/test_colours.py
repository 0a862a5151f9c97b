"""The colours of the dashboard's series: told apart by those who see few colours, and seen on their ground."""

import re
from itertools import combinations
from math import dist
from typing import Final

import pytest

from gateway.ui.files import STATIC

Triple = tuple[float, float, float]

SIGHT: Final[dict[str, tuple[Triple, Triple, Triple]]] = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "no blue": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""What of linear red, green and blue is seen: Machado, Oliveira and Fernandes, 2009, severity 1."""
LEAST_DISTANCE: Final = 13.0
"""In CIE 1976 L*a*b*, where 2.3 can just be noticed."""
LEAST_CONTRAST: Final = 3.0
"""Of graphics, WCAG 2.2, 1.4.11."""


def colours(scheme: str) -> tuple[list[str], str]:
    """The series of a scheme, and the surface that they are drawn on."""
    text = (STATIC / "base.css").read_text()
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", text))
    at = ("light", "dark").index(scheme)
    chosen = {name: pair.split(", ")[at] for name, pair in pairs.items()}
    return [chosen[f"series-{number}"] for number in range(1, 9)], chosen["surface"]


def linear(colour: str) -> Triple:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def seen(colour: str, sight: str) -> Triple:
    """L*, a* and b* as it is seen."""
    given = linear(colour)
    red, green, blue = (min(max(sum(a * b for a, b in zip(row, given, strict=True)), 0), 1) for row in SIGHT[sight])
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (
            (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
            0.2126 * red + 0.7152 * green + 0.0722 * blue,
            (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_are_told_apart_however_few_colours_one_sees(scheme: str) -> None:
    series, _ = colours(scheme)
    for sight in SIGHT:
        for one, other in combinations(series, 2):
            assert dist(seen(one, sight), seen(other, sight)) > LEAST_DISTANCE, (sight, one, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_series_stand_out_from_what_they_are_drawn_on(scheme: str) -> None:
    series, surface = colours(scheme)
    for one in series:
        low, high = sorted((luminance(one), luminance(surface)))
        assert (high + 0.05) / (low + 0.05) > LEAST_CONTRAST, one
