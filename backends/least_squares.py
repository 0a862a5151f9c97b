"""Least squares in three positive coefficients, as the fit of a speed needs them. Pure."""

import math
from collections.abc import Sequence
from typing import Final

Triple = tuple[float, float, float]
Sums = tuple[float, float, float, float, float, float, float, float, float]
"""Upper triangle of a symmetric matrix M, row by row, and a vector v: the square pᵀMp/2 - vᵀp."""

NO_SUMS: Final[Sums] = (0.0,) * 9
DRAW_WEIGHT: Final = 0.05
"""How strongly a coefficient is drawn to its prior: as by a twentieth of a sample that tells nothing else."""
_SWEEPS: Final = 8
_STEPS: Final = 4
_MOST_STEP: Final = 4.0
"""A logarithm; a step is one of several."""


def plus(some: Sums, more: Sums, by: float) -> Sums:
    """some + by · more."""
    a0, a1, a2, a3, a4, a5, a6, a7, a8 = some
    b0, b1, b2, b3, b4, b5, b6, b7, b8 = more
    return (
        a0 + by * b0,
        a1 + by * b1,
        a2 + by * b2,
        a3 + by * b3,
        a4 + by * b4,
        a5 + by * b5,
        a6 + by * b6,
        a7 + by * b7,
        a8 + by * b8,
    )


def of_sample(features: Triple, value: float = 1.0) -> Sums:
    """The square of how far Σ p · feature is from `value`, of one sample."""
    x, y, z = features
    return (x * x, x * y, x * z, y * y, y * z, z * z, x * value, y * value, z * value)


def scaled(sums: Sums, by: Triple) -> Sums:
    """The same square where each feature is `by` times as large, and its coefficient as much smaller."""
    x, y, z = by
    xx, xy, xz, yy, yz, zz, b0, b1, b2 = sums
    return (xx * x * x, xy * x * y, xz * x * z, yy * y * y, yz * y * z, zz * z * z, b0 * x, b1 * y, b2 * z)


def drawn(phi: float, to_one: bool) -> tuple[float, float]:
    """What draws a coefficient to 1, its prior: a square (weight, weight · target) that slopes at `phi` as
    `DRAW_WEIGHT` · (ln φ)² / 2 does. By a plain square one that is really twenty times its prior would be drawn as by
    forty samples.

    A prior of 0 has no logarithm; its coefficient is drawn to 0.
    """
    if not to_one:
        return DRAW_WEIGHT / max(phi, 1.0) ** 2, 0.0
    if phi < 1:
        logarithm = math.log(phi)
        return DRAW_WEIGHT * (1 - logarithm) / (phi * phi), DRAW_WEIGHT * (1 - 2 * logarithm) / phi
    draw = DRAW_WEIGHT * (math.log(phi) / (phi - 1) if phi > 1.001 else 1.0) / phi
    return draw, draw


def minimum(sums: Sums, floors: Triple) -> Triple:
    """The p >= floors that makes the square least, its matrix positive definite.

    Coordinate by coordinate from the unbounded one, which is exact where no bound holds.
    """
    xx, xy, xz, yy, yz, zz, b0, b1, b2 = sums
    f0, f1, f2 = floors
    c0, c1, c2 = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    det = xx * c0 + xy * c1 + xz * c2
    if det > 0:
        d1, d2, d3 = xx * zz - xz * xz, xy * xz - xx * yz, xx * yy - xy * xy
        p0 = (c0 * b0 + c1 * b1 + c2 * b2) / det
        p1 = (c1 * b0 + d1 * b1 + d2 * b2) / det
        p2 = (c2 * b0 + d2 * b1 + d3 * b2) / det
        if p0 >= f0 and p1 >= f1 and p2 >= f2:
            return p0, p1, p2
        p0, p1, p2 = max(p0, f0), max(p1, f1), max(p2, f2)
    else:
        p0, p1, p2 = f0, f1, f2
    for _ in range(_SWEEPS):
        p0 = max((b0 - xy * p1 - xz * p2) / xx, f0)
        p1 = max((b1 - xy * p0 - yz * p2) / yy, f1)
        p2 = max((b2 - xz * p0 - yz * p1) / zz, f2)
    return p0, p1, p2


def logarithmic_step(phi: Triple, features: Sequence[Triple], by: float, *, base: bool) -> Triple:
    """The φ by which the sums Σ φ · feature are e^`by` times as large, as well as they can be by its `base` alone, or
    by all but its base. No coefficient falls by more than the sums are to.

    Near by logarithms: each coefficient moves by as much as it is part of those sums. O(features).
    """
    p0, p1, p2 = phi
    goals = [math.log(p0 * x + p1 * y + p2 * z) + by for x, y, z in features]
    for _ in range(_STEPS):
        away = (DRAW_WEIGHT * math.log(old / new) for old, new in zip(phi, (p0, p1, p2), strict=True))
        sums: Sums = (DRAW_WEIGHT, 0.0, 0.0, DRAW_WEIGHT, 0.0, DRAW_WEIGHT, next(away), next(away), next(away))
        for (x, y, z), goal in zip(features, goals, strict=True):
            now = p0 * x + p1 * y + p2 * z
            left = goal - math.log(now)
            parts = (p0 * x / now, 0.0, 0.0) if base else (0.0, p1 * y / now, p2 * z / now)
            sums = plus(sums, of_sample(parts, left), 1.0)
        d0, d1, d2 = minimum(sums, (-_MOST_STEP, -_MOST_STEP, -_MOST_STEP))
        p0 *= math.exp(min(d0, _MOST_STEP))
        p1 *= math.exp(min(d1, _MOST_STEP))
        p2 *= math.exp(min(d2, _MOST_STEP))
    least = math.exp(min(by, 0.0))
    return max(p0, phi[0] * least), max(p1, phi[1] * least), max(p2, phi[2] * least)
