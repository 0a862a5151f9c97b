"""Who is cheaper an hour, among those that are about as quick. Pure.

    costs    a 0.20 s   b 0.25 s   c 0.90 s        within 0.1 s of the best: a, b
    an hour  a $10      b $1       c $0.5          -> b

Only where the prices of all of them are known: an unknown price is neither cheap nor dear. Its own seconds are all that
a request pays for it, at most `within_s`.
"""

from collections.abc import Callable, Sequence

import msgspec

from gateway.scheduling.types import Candidate


class Thrift(msgspec.Struct, frozen=True):
    """`per_hour` is what an endpoint costs, in one currency for all; None: not known. `within_s` is above 0."""

    per_hour: Callable[[str], float | None]
    within_s: float


def cheapest(
    candidates: Sequence[Candidate], costs: Sequence[float], thrift: Thrift
) -> tuple[list[Candidate], list[float]] | None:
    """The cheapest an hour of those whose cost in seconds is within `within_s` of the least; None where that leaves out
    nobody who is among the quickest, or somebody's price is not known. O(candidates)."""
    least_s = min(costs)
    near = [(one, cost) for one, cost in zip(candidates, costs, strict=True) if cost <= least_s + thrift.within_s]
    prices = [thrift.per_hour(one.endpoint_id) for one, _ in near]
    known = [price for price in prices if price is not None]
    if len(known) < len(near):
        return None
    lowest = min(known)
    kept = [pair for pair, price in zip(near, known, strict=True) if price == lowest]
    if len(kept) == len(near):
        return None
    return [one for one, _ in kept], [cost for _, cost in kept]
