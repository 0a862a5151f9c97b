"""Which charts a study has: what is served, how soon, how fast, and what takes the time, each over load. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gateway.measuring.drawing import Panel, Points, Series
from gateway.measuring.knee import served_per_s
from gateway.measuring.types import Knee, Level, Spread, Study

_LOAD: Final = "requests in flight, mean"
_CURVE_POINTS: Final = 40


def panels_of(study: Study) -> list[Panel]:
    """Up to four; what nobody knows has no line, and a panel without one is not drawn."""
    levels, knee, limits = study.levels, study.knee, study.limits
    at = () if knee is None else ((knee.in_flight, "knee"),)
    served = [Series("requests/s", _points(levels, lambda one: one.requests_per_s))]
    goodput = _points(levels, lambda one: one.goodput_per_s)
    if goodput:
        served.append(Series("within limits", goodput, 2))
    if knee is not None:
        served.append(Series("fit", list(_curve(knee, levels)), 1, is_fit=True))
    return [
        Panel("Requests a second", _LOAD, served, at=at),
        Panel("Time to first token, s", _LOAD, _quantiles(levels, lambda one: one.ttft), _bound(limits.ttft_s), at),
        Panel("Time between tokens, s", _LOAD, _quantiles(levels, lambda one: one.itl), _bound(limits.itl_s), at),
        Panel("Share of busy time", _LOAD, _shares(levels), top=1.0),
    ]


def _shares(levels: Sequence[Level]) -> list[Series]:
    return [
        Series("prefill", _points(levels, lambda one: one.prefill_share)),
        Series("decode", _points(levels, lambda one: one.decode_share), 1),
    ]


def _points(levels: Sequence[Level], value: Callable[[Level], float | None]) -> Points:
    return [(one.in_flight, found) for one in levels if (found := value(one)) is not None]


def _quantiles(levels: Sequence[Level], of: Callable[[Level], Spread | None]) -> list[Series]:
    spreads = [(level.in_flight, spread) for level in levels if (spread := of(level)) is not None]
    return [
        Series("p50", [(load, spread.p50) for load, spread in spreads], 0),
        Series("p90", [(load, spread.p90) for load, spread in spreads], 1),
        Series("p99", [(load, spread.p99) for load, spread in spreads], 2),
    ]


def _bound(limit_s: float | None) -> tuple[tuple[float, str], ...]:
    return () if limit_s is None else ((limit_s, f"limit {limit_s:g} s"),)


def _curve(knee: Knee, levels: Sequence[Level]) -> Iterator[tuple[float, float]]:
    """The fitted law between the least and the most load, evenly on a logarithmic scale."""
    loads = [one.in_flight for one in levels if one.in_flight > 0]
    least, most = min(loads), max(loads)
    for step in range(_CURVE_POINTS + 1):
        in_flight = least * (most / least) ** (step / _CURVE_POINTS)
        per_s = served_per_s(knee, in_flight)
        if per_s > 0:  # below one in flight the law may have a pole
            yield in_flight, per_s
