"""When to stop asking Redis: at once where it is away or talks nonsense, after a pattern where it is only late.

    closed ──away, refusing, nonsense, 3 late in a row, half of the last 20 late──> open, with a reason
       └──────────────────────── probes answered in time ───────────────────────────────┘

One hiccup of the server makes all matches late that wait for it, and is one lateness: a match counts as late only if it
began after the last one that did. That a deadline says nothing of Redis while this process itself is late is seen to
where it is measured (`redis_lane`).
"""

from collections import deque
from typing import Final

from prefix_index.types import DegradedReason

LATE_IN_A_ROW: Final = 3
"""Latenesses that open it: one or two are hiccups."""
_REMEMBERED: Final = 20
"""Answers and latenesses that are looked back on."""
_LATE_OF_REMEMBERED: Final = 10
"""Latenesses among these that open it: every other match would wait in vain for the deadline."""


class Breaker:
    """`reason` is why Redis is not asked at present, None while it is. Times are of one monotonic clock, seconds."""

    def __init__(self) -> None:
        self.reason: DegradedReason | None = None
        self._late: deque[bool] = deque(maxlen=_REMEMBERED)
        self._row = 0
        self._last_late_at_s = float("-inf")

    def in_time(self) -> None:
        """An answer came within the deadline."""
        self._late.append(False)
        self._row = 0

    def late(self, began_at_s: float, now_s: float) -> bool:
        """A question asked at `began_at_s` has no answer at `now_s`, after the deadline. Whether that opens it."""
        if began_at_s < self._last_late_at_s:
            return False
        self._last_late_at_s = now_s
        self._late.append(True)
        self._row += 1
        if self._row >= LATE_IN_A_ROW or sum(self._late) >= _LATE_OF_REMEMBERED:
            return self.open(DegradedReason.TIMEOUT)
        return False

    def open(self, reason: DegradedReason) -> bool:
        """Ask no more, until `close`. Whether it was closed until now."""
        before, self.reason = self.reason, reason
        return before is None

    def close(self) -> None:
        """Ask again; what was late before is forgotten."""
        self.reason = None
        self._late.clear()
        self._row = 0
