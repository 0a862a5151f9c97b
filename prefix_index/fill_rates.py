"""How fast caches are filled: sums that fade, several of them, since a cache's past is looked at over any length.

    note(a, 100 blocks) ...      sums that fade over   10 s   1 min   10 min   1 h   8 h
    rate over the last 40 s  -------------------------------> this one

A night without requests must not make yesterday's runs look fresh, nor a burst just now make those of this minute look
old: so a rate is asked for over a time, and answered from the sum that fades over at least as long.

Costs: five floats a holder; all calls O(1). The clock is an argument.
"""

import math
from typing import Final, Generic

from prefix_index.types import H

FADING_S: Final = (10.0, 60.0, 600.0, 3600.0, 8 * 3600.0)
MOST_HOLDERS: Final = 4096
"""Holders that are remembered; the first noted is forgotten first."""


class _Sums:
    __slots__ = ("at_s", "since_s", "sums")

    def __init__(self, now_s: float) -> None:
        self.since_s = self.at_s = now_s
        self.sums = [0.0] * len(FADING_S)


class FillRates(Generic[H]):
    """Blocks (or tokens: whatever the capacity is counted in) that were newly computed at each holder."""

    def __init__(self) -> None:
        self._sums: dict[H, _Sums] = {}

    def note(self, holder: H, blocks: float, now_s: float) -> None:
        """`blocks` that were not cached are computed there."""
        sums = self._sums.get(holder)
        if sums is None:
            if len(self._sums) >= MOST_HOLDERS:
                del self._sums[next(iter(self._sums))]
            sums = self._sums[holder] = _Sums(now_s)
        passed_s = max(now_s - sums.at_s, 0.0)
        sums.sums = [
            kept * math.exp(-passed_s / fading_s) + blocks for kept, fading_s in zip(sums.sums, FADING_S, strict=True)
        ]
        sums.at_s += passed_s

    def rate(self, holder: H, over_s: float, now_s: float) -> float | None:
        """Blocks a second over about the last `over_s`; None where nothing was ever noted."""
        sums = self._sums.get(holder)
        if sums is None:
            return None
        at = next((at for at, fading_s in enumerate(FADING_S) if fading_s >= over_s), len(FADING_S) - 1)
        fading_s = FADING_S[at]
        kept = sums.sums[at] * math.exp(-max(now_s - sums.at_s, 0.0) / fading_s)
        # Since we look on for a shorter time than it takes to fade, the sum is not full yet.
        looked_on_s = max(now_s - sums.since_s, FADING_S[0])
        return kept / (fading_s * -math.expm1(-looked_on_s / fading_s))

    def turnovers(self, holder: H, age_s: float | None, capacity_blocks: float | None, now_s: float) -> float | None:
        """How many times the holder was filled in the last `age_s`; None where that cannot be known."""
        if age_s is None or not capacity_blocks:
            return None
        rate = self.rate(holder, age_s, now_s)
        return None if rate is None else max(age_s, 0.0) * rate / capacity_blocks

    def forget(self, holder: H) -> None:
        """The holder is gone."""
        self._sums.pop(holder, None)
