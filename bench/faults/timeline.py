"""How long what hurt: each step of a run in figures. Pure.

p50 of before      of the first bytes of the streams that began in the calm before the step
recovery           from the first fault until WINDOW requests in a row, all begun later, have a p50 that is no more
                   than SLOWER times that, and SLACK_S more; 0 where no window was worse
left after         from the fault to the last attempt that was sent to the faulty endpoint while it lasted
back after         from the end of the fault to the next attempt that it answered
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from bench.faults.types import Acted, Asked, Outcome, Row, Step
from billing import ANSWERED

WINDOW: Final = 10
SLOWER: Final = 1.5
SLACK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Sent:
    """An attempt at an endpoint, in the run's own seconds."""

    endpoint: str
    at_s: float
    answered: bool
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """What became of the work for one faulty endpoint; None: it got none in that time."""

    fault: str
    attempts: int
    left_after_s: float | None
    back_after_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """One step. Times in seconds; None: it did not come to that."""

    step: Step
    requests: int
    failed: int
    cut: int
    again: int
    p50_before_s: float | None
    p50_during_s: float | None
    slowest_s: float | None
    p50_back_s: float | None
    aims: tuple[Aim, ...]

    def row(self, epoch_s: float) -> dict[str, object]:
        """For the result file."""
        return {
            "faults": [one.fault.name for one in self.step.acted],
            "from_s": _rounded(self.step.from_s - epoch_s),
            "until_s": _rounded(self.step.until_s - epoch_s),
            "requests": self.requests,
            "failed": self.failed,
            "cut": self.cut,
            "tried_again_by_clients": self.again,
            "ttft_p50_before_s": _rounded(self.p50_before_s),
            "ttft_p50_during_s": _rounded(self.p50_during_s),
            "ttft_slowest_s": _rounded(self.slowest_s),
            "ttft_p50_back_after_s": _rounded(self.p50_back_s),
            "all_well_after_s": _rounded(self.step.recovered_s),
            "endpoints": [
                {
                    "fault": aim.fault,
                    "attempts_during": aim.attempts,
                    "no_new_work_after_s": _rounded(aim.left_after_s),
                    "work_again_after_s": _rounded(aim.back_after_s),
                }
                for aim in self.aims
            ],
        }


def figures_of(
    steps: Sequence[Step],
    asked: Sequence[Asked],
    rows: Sequence[Row],
    endpoints: Sequence[str],
    wall_less_mono_s: float,
) -> list[Figures]:
    """Each step. `wall_less_mono_s` turns the ledger's wall seconds into the run's. O(steps · (asked + attempts))."""
    by = {one.id: one.gateway for request in asked for one in request.tries}
    sent = [
        Sent(one.endpoint, one.began_wall_s - wall_less_mono_s, one.outcome == ANSWERED, by.get(row.job or ""))
        for row in rows
        for one in row.attempts
    ]
    sent.sort(key=lambda one: one.at_s)
    ends = [following.from_s for _, following in pairwise(steps)] + [float("inf")]
    return [_figures(step, end_s, asked, sent, endpoints) for step, end_s in zip(steps, ends, strict=True)]


def back_to_s(waits: Sequence[tuple[float, float]], from_s: float, usual_s: float) -> float | None:
    """Seconds from `from_s` until WINDOW requests, by (began, waited), are as quick as usual; None: never."""
    begun = sorted(one for one in waits if one[0] >= from_s)
    bound_s = usual_s * SLOWER + SLACK_S
    worse_until = None
    for at in range(len(begun) - WINDOW + 1):
        window = begun[at : at + WINDOW]
        if median(wait for _, wait in window) > bound_s:
            worse_until = at
    if worse_until is None:
        return 0.0 if len(begun) >= WINDOW else None
    after = worse_until + 1
    return begun[after][0] - from_s if after + WINDOW <= len(begun) else None


def _figures(
    step: Step, end_s: float, asked: Sequence[Asked], sent: Sequence[Sent], endpoints: Sequence[str]
) -> Figures:
    hit = [one for one in asked if step.from_s <= one.ended_s and one.began_s < step.ended_s]
    waits = [(one.began_s, wait) for one in asked if one.is_stream and (wait := _waited_s(one)) is not None]
    before = [wait for began_s, wait in waits if step.calm_from_s <= began_s < step.from_s]
    during = [wait for began_s, wait in waits if step.from_s <= began_s < step.until_s]
    later = [(began_s, wait) for began_s, wait in waits if began_s < end_s]
    usual_s = median(before) if before else None
    return Figures(
        step=step,
        requests=len(hit),
        failed=sum(one.outcome is Outcome.FAILED for one in hit),
        cut=sum(one.outcome is Outcome.CUT for one in hit),
        again=sum(len(one.tries) > 1 for one in hit),
        p50_before_s=usual_s,
        p50_during_s=median(during) if during else None,
        slowest_s=max(during, default=None),
        p50_back_s=None if usual_s is None else back_to_s(later, step.from_s, usual_s),
        aims=tuple(_aim(one, end_s, sent) for one in step.acted if one.fault.part in endpoints),
    )


def _waited_s(asked: Asked) -> float | None:
    """From the beginning of a request, with all its tries, to its first byte."""
    last = asked.last
    return None if last is None or last.first_s is None else last.first_s - asked.began_s


def _aim(acted: Acted, end_s: float, sent: Sequence[Sent]) -> Aim:
    fault = acted.fault
    at_it = [one for one in sent if one.endpoint == fault.part and fault.gateway in (None, one.gateway)]
    during = [one.at_s for one in at_it if acted.from_s <= one.at_s < acted.until_s]
    after = [one.at_s for one in at_it if acted.until_s <= one.at_s < end_s and one.answered]
    return Aim(
        fault=acted.fault.name,
        attempts=len(during),
        left_after_s=during[-1] - acted.from_s if during else None,
        back_after_s=after[0] - acted.until_s if after else None,
    )


def _rounded(time_s: float | None) -> float | None:
    return None if time_s is None else round(time_s, 2)
