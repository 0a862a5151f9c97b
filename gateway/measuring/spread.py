"""Values in a few numbers, and how requests came. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil, floor
from statistics import fmean, pstdev, pvariance
from typing import Final

from gateway.measuring.types import Burstiness, Spread

SPANS_S: Final = (1.0, 10.0, 60.0)
_LEAST_SPANS: Final = 5
"""Fewer say nothing of how much they differ."""


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of those that are known; None where none is. O(n log n)."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Spread(
        count=len(known),
        mean=fmean(known),
        least=known[0],
        p50=ranked(known, 0.5),
        p90=ranked(known, 0.9),
        p99=ranked(known, 0.99),
        most=known[-1],
    )


def ranked(ordered: Sequence[float], share: float) -> float:
    """The smallest of `ordered`, which is not empty, that this share of them does not exceed: the nearest rank."""
    return ordered[max(ceil(share * len(ordered) - 1e-9), 1) - 1]


def burstiness_of(asked_s: Iterable[float]) -> Burstiness | None:
    """Of the times of requests; None of fewer than two, or of all at once. O(n log n)."""
    times = sorted(asked_s)
    if len(times) < 2 or times[-1] == times[0]:
        return None
    lasted_s = times[-1] - times[0]
    gaps = [after - before for before, after in pairwise(times)]
    dispersion = {span: one for span in SPANS_S if (one := _dispersion(times, span)) is not None}
    seconds = Counter(floor(at - times[0]) for at in times)
    return Burstiness(
        requests_per_s=len(gaps) / lasted_s,
        cv=pstdev(gaps) / fmean(gaps),
        dispersion=dispersion,
        peak_over_mean=max(seconds.values()) * lasted_s / len(times) if lasted_s >= _LEAST_SPANS else None,
    )


def _dispersion(times: Sequence[float], span_s: float) -> float | None:
    """Variance over mean of the requests in whole spans, the index of dispersion; None of too few spans."""
    spans = floor((times[-1] - times[0]) / span_s)
    if spans < _LEAST_SPANS:
        return None
    counted = Counter(floor((at - times[0]) / span_s) for at in times)
    numbers = [counted[place] for place in range(spans)]
    return pvariance(numbers) / fmean(numbers) if any(numbers) else None
