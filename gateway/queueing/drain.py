"""How fast what waits is served, and so how long it will take. Pure; times are of one monotonic clock, seconds.

    served   ──┬────┬──┬─────┬──> now       tokens of each, fading with a time of `FADING_S`, by the time that
    waiting  ████████████    ████           somebody waited, which fades alike: what is idle has no rate

An endpoint has a rate of its own; a request that waits can hope for the sum of those that may serve it.
"""

import math
from collections.abc import Sequence
from typing import Final

FADING_S: Final = 30.0
LEAST_SERVED: Final = 4
"""Requests that must have been served of late before a rate is believed."""


class DrainRate:
    """What one endpoint takes of what waits for it, in tokens a second."""

    __slots__ = ("_at_s", "_requests", "_seconds", "_tokens")

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._tokens = self._requests = self._seconds = 0.0

    def waits(self, now_s: float) -> None:
        """Somebody waits for it from now on; more often is harmless."""
        if self._at_s is None:
            self._at_s = now_s

    def served(self, tokens: int, now_s: float) -> None:
        """It has taken a request of so many tokens."""
        self._fade(now_s)
        self._tokens += tokens
        self._requests += 1

    def rests(self, now_s: float) -> None:
        """Nobody waits for it any more."""
        self._fade(now_s)
        self._at_s = None

    def tokens_per_s(self, now_s: float) -> float | None:
        """The rate; None where too little was served to say. Falls while nothing is served."""
        self._fade(now_s)
        if self._requests < LEAST_SERVED or self._seconds <= 0:
            return None
        return self._tokens / self._seconds

    def _fade(self, now_s: float) -> None:
        if self._at_s is None:
            return
        passed_s, self._at_s = max(now_s - self._at_s, 0.0), now_s
        kept = math.exp(-passed_s / FADING_S)
        self._tokens *= kept
        self._requests *= kept
        self._seconds = self._seconds * kept + FADING_S * (1 - kept)


def wait_s(tokens: int, rates: Sequence[float | None]) -> float | None:
    """How long so many tokens take at endpoints of these rates; who has none is thought to be as fast as the others.
    None where nobody has one."""
    known = [rate for rate in rates if rate is not None]
    together = sum(known) / len(known) * len(rates) if known else 0.0
    return tokens / together if together > 0 else None
