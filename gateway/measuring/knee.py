"""Where more load stops being served faster: the Universal Scalability Law, fitted to the levels. Pure.

    X per s │            ╭────── most          X(N) = λ N / (1 + σ (N − 1) + κ N (N − 1))
            │   λN ╱ ╭───
            │     ╱╭─      knee: where the straight line of one request at a time would reach the most
            │    ╱╯
            └───┴──────────────── N in flight (by Little's law, so open and closed loops are on one curve)

σ is contention (what must queue), κ coherency (what grows with every pair). N. Gunther, "A General Theory of
Computational Scalability Based on Rational Functions" (2008), and "Guerrilla Capacity Planning" (2007), chapter 5,
whose transformation is used: N / X is linear in three coefficients that are not negative.
The knee is that of the asymptotic bounds of operational analysis (Denning and Buzen, 1978): N* = most / λ.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from backends.least_squares import NO_SUMS, Triple, minimum, of_sample, plus
from gateway.measuring.types import Knee, Level

LEAST_LEVELS: Final = 3
"""As many as the law has coefficients."""
_LEAST: Final = 1e-12
"""Seconds; a coefficient that is not more is none."""
_FLOORS: Final = (_LEAST, 0.0, 0.0)


def knee_of(levels: Sequence[Level]) -> Knee | None:
    """The knee of three levels or more with different numbers in flight; None where there are fewer, or where nothing
    bends: requests come ever faster with their number. O(levels)."""
    points = [(one.in_flight, one.requests_per_s) for one in levels if one.in_flight > 0 and one.requests_per_s > 0]
    if len({round(n, 2) for n, _ in points}) < LEAST_LEVELS:
        return None
    fit = alone_s, linear_s, square_s = _fit(points)
    if linear_s <= _LEAST and square_s <= _LEAST:
        return None
    most_in_flight, most_per_s = _most(fit)
    knee = max(most_per_s * alone_s, 1.0)
    return Knee(
        in_flight=knee,
        requests_per_s=_per_s(knee, fit),
        most_per_s=most_per_s,
        most_in_flight=most_in_flight,
        alone_per_s=1 / alone_s,
        contention=linear_s / alone_s,
        coherency=square_s / alone_s,
        error=max(abs(_per_s(n, fit) / x - 1) for n, x in points),
        is_reached=max(n for n, _ in points) >= knee,
    )


def served_per_s(knee: Knee, in_flight: float) -> float:
    """By the law that was fitted: requests a second of so many in flight."""
    alone_s = 1 / knee.alone_per_s
    return _per_s(in_flight, (alone_s, knee.contention * alone_s, knee.coherency * alone_s))


def _most(fit: Triple) -> tuple[float | None, float]:
    """How many in flight are served fastest (None: ever more are), and how fast."""
    alone_s, linear_s, square_s = fit
    if square_s <= _LEAST:
        return None, 1 / linear_s
    # d/dN of N / (a + b (N − 1) + c N (N − 1)) is 0 at c N² = a − b.
    in_flight = max(sqrt(max(alone_s - linear_s, 0.0) / square_s), 1.0)
    return in_flight, _per_s(in_flight, fit)


def _per_s(in_flight: float, fit: Triple) -> float:
    alone_s, linear_s, square_s = fit
    return in_flight / (alone_s + linear_s * (in_flight - 1) + square_s * in_flight * (in_flight - 1))


def _fit(points: Sequence[tuple[float, float]]) -> Triple:
    """(a, b, c), none negative, of N / X = a + b (N − 1) + c N (N − 1): each level counts by its relative distance."""
    sums = NO_SUMS
    for n, x in points:
        relative = x / n
        sums = plus(sums, of_sample((relative, (n - 1) * relative, n * (n - 1) * relative)), 1.0)
    return minimum(sums, _FLOORS)
