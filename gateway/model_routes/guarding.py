"""Whether a canary does worse than the arms beside it: what the last requests of each came to. Pure.

    watched arm   | ok 0.2 s | failed | ok 0.3 s | ...   at most MOST_KEPT of either side, none older than the window
    other arms    | ok 0.1 s | ok 0.2 s | ...

    stop, where both sides have had `min_requests`, and
      errors   share of the watched - share of the others > most_errors, and more than chance explains (z > 3)
      ttft     median of the watched > most_ttft * median of the others

A canary's cache is colder than that of the arm which has most of the traffic, so its first tokens come later to begin
with; that is why `most_ttft` is a factor well above 1. A test of chance for medians would add nothing at such factors.

Costs: O(1) a request, and O(MOST_KEPT log MOST_KEPT) every JUDGED_EVERY-th of the watched arm: 0.2 ms.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from gateway.model_routes.types import GuardRule

MOST_KEPT: Final = 1000
JUDGED_EVERY: Final = 10
_SURE: Final = 3.0
"""Standard errors: one in 700 comparisons of equal arms is further apart."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request came to; `ttft_s` is None where no first token was seen."""

    at_s: float
    failed: bool
    ttft_s: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison."""

    requests: int
    failed: int
    ttft_s: float | None

    @property
    def error_share(self) -> float:
        """Failed requests among all."""
        return self.failed / self.requests if self.requests else 0.0


class Guard:
    """Watches one arm of a name. `clock_s` is monotonic."""

    def __init__(self, rule: GuardRule, clock_s: Callable[[], float]) -> None:
        self.rule = rule
        self._clock_s = clock_s
        self._watched: deque[Outcome] = deque(maxlen=MOST_KEPT)
        self._others: deque[Outcome] = deque(maxlen=MOST_KEPT)
        self._seen = 0

    def note(self, arm: str, *, failed: bool, ttft_s: float | None) -> str | None:
        """A request of an arm has ended. Returns why the watched arm is to be stopped, None where it is not."""
        side = self._watched if arm == self.rule.arm else self._others
        side.append(Outcome(self._clock_s(), failed, ttft_s))
        if side is self._others:
            return None
        self._seen += 1
        return self._judged() if self._seen % JUDGED_EVERY == 0 else None

    def forget(self) -> None:
        """What was is over: the arm is tried anew."""
        self._watched.clear()
        self._others.clear()

    def sides(self) -> tuple[Side, Side]:
        """The watched arm and the others, as of now."""
        return self._side(self._watched), self._side(self._others)

    def _judged(self) -> str | None:
        rule = self.rule
        watched, others = self.sides()
        if min(watched.requests, others.requests) < rule.min_requests:
            return None
        if watched.error_share - others.error_share > max(rule.most_errors, _SURE * _standard_error(watched, others)):
            return f"errors: {watched.error_share:.3f} of its requests failed, {others.error_share:.3f} of the others"
        if watched.ttft_s is not None and others.ttft_s is not None and watched.ttft_s > rule.most_ttft * others.ttft_s:
            return f"ttft: its median is {watched.ttft_s:.3f} s, that of the others {others.ttft_s:.3f} s"
        return None

    def _side(self, outcomes: deque[Outcome]) -> Side:
        oldest_s = self._clock_s() - self.rule.window_s
        while outcomes and outcomes[0].at_s < oldest_s:
            outcomes.popleft()
        times_s = [one.ttft_s for one in outcomes if one.ttft_s is not None]
        failed = sum(one.failed for one in outcomes)
        return Side(len(outcomes), failed, median(times_s) if times_s else None)


def _standard_error(one: Side, other: Side) -> float:
    """Of the difference of two shares, were they equal in truth."""
    together = (one.failed + other.failed) / (one.requests + other.requests)
    return math.sqrt(together * (1 - together) * (1 / one.requests + 1 / other.requests))
