"""What was observed a moment ago, so that it need not be told again.

    first token   observe a b c   --> told
    the end       observe a b c   --> no news, where the answer took less than a moment

An observation that is left out changes nothing but the order of use, by a moment at most, and the time to live, a day,
by as much. If the first one was lost on its way, the index knows less than it could until the next one. Whoever counts
on what was written (KV events, by `losses_of`) hears of losses, and everything here is forgotten then: as it is where
something confirmed was forgotten or has ended, or where another replica ended something.
"""

from collections.abc import Callable
from typing import Final

from prefix_index.types import HASH_BYTES, Chain

MOMENT_S: Final = 1.0
"""Longest time in which an observation is not told again; a third of it at least."""
_TURN_S: Final = MOMENT_S / 3


class RecentClaims:
    """Confirmed runs by holder, last hash and length, of this part of a moment and the one before. O(1)."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now: set[tuple[str, bytes, int]] = set()
        self._before: set[tuple[str, bytes, int]] = set()
        self._turned_s = clock()

    def is_news(self, holder: str, chain: Chain) -> bool:
        """Whether this was not observed a moment ago; from now on it was."""
        now_s = self._clock()
        if now_s - self._turned_s >= _TURN_S:
            self._before = self._now if now_s - self._turned_s < 2 * _TURN_S else set()
            self._now = set()
            self._turned_s = now_s
        name = (holder, chain.hashes[-HASH_BYTES:], len(chain.hashes))
        if name in self._now or name in self._before:
            return False
        self._now.add(name)
        return True

    def forget(self) -> None:
        """Everything is news again."""
        self._now.clear()
        self._before.clear()
