"""Whether a canary does worse than the arms beside it: what the last requests of each came to. Pure.

    watched arm   | ok 0.2 s | failed | ok 0.3 s | ...   at most MOST_KEPT of either side, none older than the window
    other arms    | ok 0.1 s | ok 0.2 s | ...

    stop, where both sides have had `min_requests`, and
      errors   share of the watched - share of the others > most_errors, and more than chance explains (z > 3)
      ttft     median of the watched > most_ttft * median of the others, of LEAST_TIMED on either side

Whose client left before the first token would have waited longer: it counts, on either side, where it had waited longer
than is borne already. So an arm that never answers is seen, though all its clients give up.

A canary's cache is colder than that of the arm which has most of the traffic, so its first tokens come later to begin
with; that is why `most_ttft` is a factor well above 1. A test of chance for medians would add nothing at such factors.

Costs: O(1) a request, and O(MOST_KEPT log MOST_KEPT) every JUDGED_EVERY-th of the watched arm: 0.2 ms.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from gateway.model_routes.types import GuardRule

MOST_KEPT: Final = 1000
JUDGED_EVERY: Final = 10
LEAST_TIMED: Final = 20
"""First tokens that a median is of: one slow stream among plain answers is none."""
_SURE: Final = 3.0
"""Standard errors: one in 700 comparisons of equal arms is further apart."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request came to; `ttft_s` is None where no first token was seen, `left_s` how long its client had waited
    for one that left then."""

    at_s: float
    failed: bool
    ttft_s: float | None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison."""

    requests: int
    failed: int
    ttft_s: float | None
    timed: int
    """Requests that `ttft_s` is the median of."""

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

    def note(self, arm: str, *, failed: bool, ttft_s: float | None, left_s: float | None = None) -> str | None:
        """A request of an arm has ended. Returns why the watched arm is to be stopped, None where it is not."""
        side = self._watched if arm == self.rule.arm else self._others
        side.append(Outcome(self._clock_s(), failed, ttft_s, left_s))
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
        if others.ttft_s is None or others.timed < LEAST_TIMED:
            return None
        borne_s = rule.most_ttft * others.ttft_s
        waited_s = _waited(self._watched, borne_s)
        if len(waited_s) >= LEAST_TIMED and median(waited_s) > borne_s >= median(_waited(self._others, borne_s)):
            return f"ttft: its median is {median(waited_s):.3f} s, that of the others {others.ttft_s:.3f} s"
        return None

    def _side(self, outcomes: deque[Outcome]) -> Side:
        oldest_s = self._clock_s() - self.rule.window_s
        while outcomes and outcomes[0].at_s < oldest_s:
            outcomes.popleft()
        times_s = [one.ttft_s for one in outcomes if one.ttft_s is not None]
        failed = sum(one.failed for one in outcomes)
        return Side(len(outcomes), failed, median(times_s) if times_s else None, len(times_s))


def _waited(outcomes: Iterable[Outcome], borne_s: float) -> list[float]:
    """How long clients waited for a first token; of those that left before it, who waited longer than `borne_s`."""
    left_s = [one.left_s for one in outcomes if one.left_s is not None and one.left_s > borne_s]
    return [one.ttft_s for one in outcomes if one.ttft_s is not None] + left_s


def _standard_error(one: Side, other: Side) -> float:
    """Of the difference of two shares, were they equal in truth."""
    together = (one.failed + other.failed) / (one.requests + other.requests)
    return math.sqrt(together * (1 - together) * (1 / one.requests + 1 / other.requests))
