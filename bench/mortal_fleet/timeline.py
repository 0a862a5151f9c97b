"""What a run looked like over time: phases, faults, and when affinity was back. Pure.

phase       |-- all well --|-- replica killed ------|-- engine killed --- ...
fault                      x killed    ^ back
requests    belong to the phase in which they ended
affinity    back at the start of the first WINDOW requests, all of them begun after the fault, whose cached share is
            within WITHIN of what it was while all was well
cut         explained where a fault killed the one who was answering, while it was answering
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from bench.accuracy_causes import Accuracy, accuracy_of
from bench.mortal_fleet.types import Outcome, Seen

WINDOW: Final = 20
WITHIN: Final = 0.10
"""Of a cached share: windows of few requests scatter by as much when nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A process that was killed, or emptied: `target` is its name, a replica's or an engine's as in `Seen`."""

    target: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Health:
    """What a replica said of itself at an instant: what is degraded, or None where it did not answer."""

    at_s: float
    replica: str
    degraded: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run, with the fault that it begins with, if any."""

    name: str
    from_s: float
    to_s: float
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """A phase in figures. `away_s` and `degraded_s` are by replica, and by part of it; `affinity_back_s` counts from
    the fault (None: not within the phase, or no fault)."""

    phase: Phase
    requests: int
    served: int
    failed: int
    cut: int
    cut_unexplained: int
    retried: int
    accuracy: Accuracy
    ttft_p50_s: float | None
    away_s: Mapping[str, float]
    degraded_s: Mapping[str, float]
    affinity_back_s: float | None

    def row(self, epoch_s: float) -> dict[str, object]:
        """For the result file; times in seconds from `epoch_s`."""
        phase, sums = self.phase, self.accuracy
        return {
            "phase": phase.name,
            "from_s": round(phase.from_s - epoch_s, 2),
            "to_s": round(phase.to_s - epoch_s, 2),
            "target": None if phase.fault is None else phase.fault.target,
            "requests": self.requests,
            "served": self.served,
            "failed": self.failed,
            "cut": self.cut,
            "cut_unexplained": self.cut_unexplained,
            "retried": self.retried,
            "cached_share": round(sums.cached_share, 4),
            "too_many_tokens": sums.too_many_tokens,
            "too_few_tokens": sums.too_few_tokens,
            "error_percent": round(sums.error_percent, 4),
            "ttft_p50_s": None if self.ttft_p50_s is None else round(self.ttft_p50_s, 3),
            "away_s": {name: round(time_s, 2) for name, time_s in self.away_s.items()},
            "degraded_s": {name: round(time_s, 2) for name, time_s in self.degraded_s.items()},
            "affinity_back_s": None if self.affinity_back_s is None else round(self.affinity_back_s, 2),
        }


def figures_of(
    phases: Sequence[Phase], seen: Sequence[Seen], health: Sequence[Health], *, usual_share: float
) -> list[Figures]:
    """Each phase in figures. O(phases × (seen + health)), and O(seen × WINDOW) for the affinity."""
    return [_figures(phase, phases, seen, health, usual_share) for phase in phases]


def seconds_of(seen: Sequence[Seen], epoch_s: float) -> list[dict[str, object]]:
    """The same by the second in which requests ended, seconds without any left out."""
    by_second: dict[int, list[Seen]] = {}
    for one in seen:
        by_second.setdefault(int(one.ended_s - epoch_s), []).append(one)
    return [
        {
            "second": second,
            "requests": len(ended),
            "failed": _count(ended, Outcome.FAILED),
            "cut": _count(ended, Outcome.CUT),
            "retried": sum(one.retries > 0 for one in ended),
            "cached_share": round(accuracy_of(ended).cached_share, 3),
            "error_percent": round(accuracy_of(ended).error_percent, 3),
        }
        for second, ended in sorted(by_second.items())
    ]


def affinity_back_s(seen: Sequence[Seen], after_s: float, until_s: float, usual_share: float) -> float | None:
    """Seconds from `after_s` until the first window of requests that found as much as usual; None: none ended in time.

    0 where no window was worse: affinity was never gone.
    """
    begun = sorted(
        (one for one in seen if one.outcome is Outcome.SERVED and one.started_s >= after_s and one.ended_s <= until_s),
        key=lambda one: one.started_s,
    )
    for at in range(len(begun) - WINDOW + 1):
        window = begun[at : at + WINDOW]
        if accuracy_of(window).cached_share >= usual_share - WITHIN:
            return window[0].started_s - after_s if at else 0.0
    return None


def is_explained(one: Seen, faults: Sequence[Fault]) -> bool:
    """Whether a cut answer was under way at a process that was killed meanwhile."""
    answering = {one.endpoint, f"replica-{one.replica}"}
    return any(fault.target in answering and one.started_s <= fault.at_s <= one.ended_s for fault in faults)


def _figures(
    phase: Phase, phases: Sequence[Phase], seen: Sequence[Seen], health: Sequence[Health], usual_share: float
) -> Figures:
    ended = [one for one in seen if phase.from_s <= one.ended_s < phase.to_s]
    faults = [one.fault for one in phases if one.fault is not None]
    cut = [one for one in ended if one.outcome is Outcome.CUT]
    away_s, degraded_s = _unwell_s([one for one in health if phase.from_s <= one.at_s < phase.to_s])
    fault = phase.fault
    ttft_s = [one.first_s - one.started_s for one in ended if one.first_s is not None]
    return Figures(
        phase=phase,
        requests=len(ended),
        served=_count(ended, Outcome.SERVED),
        failed=_count(ended, Outcome.FAILED),
        cut=len(cut),
        cut_unexplained=sum(not is_explained(one, faults) for one in cut),
        retried=sum(one.retries > 0 for one in ended),
        accuracy=accuracy_of([one for one in ended if one.outcome is Outcome.SERVED]),
        ttft_p50_s=median(ttft_s) if ttft_s else None,
        away_s=away_s,
        degraded_s=degraded_s,
        affinity_back_s=None if fault is None else affinity_back_s(seen, fault.at_s, phase.to_s, usual_share),
    )


def _unwell_s(health: Sequence[Health]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds without an answer, by replica, and seconds degraded, by `replica part`; a look counts until the next."""
    away_s: dict[str, float] = {}
    degraded_s: dict[str, float] = {}
    for replica in sorted({one.replica for one in health}):
        looks = sorted((one for one in health if one.replica == replica), key=lambda one: one.at_s)
        for look, following in pairwise(looks):
            took_s = following.at_s - look.at_s
            if look.degraded is None:
                away_s[replica] = away_s.get(replica, 0.0) + took_s
            for part in look.degraded or ():
                name = f"{replica} {part}"
                degraded_s[name] = degraded_s.get(name, 0.0) + took_s
    return away_s, degraded_s


def _count(seen: Sequence[Seen], outcome: Outcome) -> int:
    return sum(one.outcome is outcome for one in seen)
