"""Which charts a study has: what is served, how soon, how fast, and what takes the time, each over load. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gateway.measuring.drawing import Panel, Points, Series
from gateway.measuring.types import Knee, Level, Spread, Study

_LOAD: Final = "requests in flight, mean"
_CURVE_POINTS: Final = 40


def panels_of(study: Study) -> list[Panel]:
    """Up to four; what nobody knows has no line, and a panel without one is not drawn."""
    knee, limits = study.knee, study.limits
    at = () if knee is None else ((knee.in_flight, "knee"),)
    served = [Series("requests/s", _points(study.levels, lambda one: one.requests_per_s))]
    goodput = _points(study.levels, lambda one: one.goodput_per_s)
    if goodput:
        served.append(Series("within limits", goodput, 2))
    if knee is not None:
        served.append(Series("fit", list(_curve(knee, study.levels)), 1, is_fit=True))
    return [
        Panel("Requests a second", _LOAD, served, at=at),
        Panel("Time to first token, s", _LOAD, _quantiles(study.levels, "ttft"), _bound(limits.ttft_s), at),
        Panel("Time between tokens, s", _LOAD, _quantiles(study.levels, "itl"), _bound(limits.itl_s), at),
        Panel(
            "Share of busy time",
            _LOAD,
            (
                Series("prefill", _points(study.levels, lambda one: one.prefill_share)),
                Series("decode", _points(study.levels, lambda one: one.decode_share), 1),
            ),
            top=1.0,
        ),
    ]


def _points(levels: Sequence[Level], value: Callable[[Level], float | None]) -> Points:
    return [(one.in_flight, found) for one in levels if (found := value(one)) is not None]


def _quantiles(levels: Sequence[Level], kind: str) -> list[Series]:
    def of(name: str) -> Callable[[Level], float | None]:
        def value(level: Level) -> float | None:
            spread: Spread | None = getattr(level, kind)
            return None if spread is None else getattr(spread, name)

        return value

    return [Series(name, _points(levels, of(name)), colour) for colour, name in enumerate(("p50", "p90", "p99"))]


def _bound(limit_s: float | None) -> tuple[tuple[float, str], ...]:
    return () if limit_s is None else ((limit_s, f"limit {limit_s:g} s"),)


def _curve(knee: Knee, levels: Sequence[Level]) -> Iterator[tuple[float, float]]:
    """The fitted law between the least and the most load, evenly on a logarithmic scale."""
    loads = [one.in_flight for one in levels if one.in_flight > 0]
    least, most = min(loads), max(loads)
    for step in range(_CURVE_POINTS + 1):
        n = least * (most / least) ** (step / _CURVE_POINTS)
        slowed = 1 + knee.contention * (n - 1) + knee.coherency * n * (n - 1)
        if slowed > 0:
            yield n, n * knee.alone_per_s / slowed
