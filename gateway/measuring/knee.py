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

from backends.least_squares import Sums, minimum, plus
from gateway.measuring.types import Knee, Level

LEAST_LEVELS = 3
_LEAST = 1e-12
_FLOORS = (_LEAST, 0.0, 0.0)


def knee_of(levels: Sequence[Level]) -> Knee | None:
    """The knee of three levels or more with different numbers in flight; None where there are fewer, or where nothing
    bends: requests come ever faster with their number. O(levels)."""
    points = [(one.in_flight, one.requests_per_s) for one in levels if one.in_flight > 0 and one.requests_per_s > 0]
    if len({round(n, 2) for n, _ in points}) < LEAST_LEVELS:
        return None
    alone_s, linear_s, square_s = _fit(points)
    if linear_s <= _LEAST and square_s <= _LEAST:
        return None
    if square_s > _LEAST:
        # d/dN of N / (a + b (N − 1) + c N (N − 1)) is 0 at c N² = a − b.
        most_in_flight: float | None = max(sqrt(max(alone_s - linear_s, 0.0) / square_s), 1.0)
        most = _per_s(most_in_flight or 1.0, alone_s, linear_s, square_s)
    else:
        most_in_flight, most = None, 1 / linear_s
    knee = max(most * alone_s, 1.0)
    return Knee(
        in_flight=knee,
        requests_per_s=_per_s(knee, alone_s, linear_s, square_s),
        most_per_s=most,
        most_in_flight=most_in_flight,
        alone_per_s=1 / alone_s,
        contention=linear_s / alone_s,
        coherency=square_s / alone_s,
        error=max(abs(_per_s(n, alone_s, linear_s, square_s) / x - 1) for n, x in points),
        is_reached=max(n for n, _ in points) >= knee,
    )


def _per_s(in_flight: float, alone_s: float, linear_s: float, square_s: float) -> float:
    return in_flight / (alone_s + linear_s * (in_flight - 1) + square_s * in_flight * (in_flight - 1))


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """(a, b, c), none negative, of N / X = a + b (N − 1) + c N (N − 1): each level counts by its relative distance."""
    sums: Sums = (0.0,) * 9
    for n, x in points:
        weight = x / n
        f, g, h = weight, (n - 1) * weight, n * (n - 1) * weight
        sums = plus(sums, (f * f, f * g, f * h, g * g, g * h, h * h, f, g, h), 1.0)
    return minimum(sums, _FLOORS)
