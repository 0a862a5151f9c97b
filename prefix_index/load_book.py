"""What the other replicas have outstanding at each holder, as last heard.

    replica r1, beat 12:00:03.2   {a: Load, b: Load}      fresh
    replica r2, beat 11:59:41.0   {a: Load}               stale: it died, or lost its way to Redis; not counted

Beats are the time of the server that keeps them, so clocks of replicas do not matter. Its own may jump: a beat that is
further in its future than a fresh one is in its past belongs to a time that was taken back, and is no sign of life.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from prefix_index.types import Load

STEP_BACK_US: Final = 1_000_000
"""How far back the server's time has to go to be a clock that was set: two replies that overtake each other look like a
step of milliseconds, and a reply that is later than a match may be is not read."""


class LoadBook:
    """The latest word of each replica. `merged` costs nothing while nothing changed."""

    def __init__(self, *, stale_after_s: float, own_replica: str | None = None) -> None:
        self._stale_after_us = int(stale_after_s * 1_000_000)
        self._own_replica = own_replica
        self._said: dict[str, tuple[int, Mapping[str, Load]]] = {}
        self._merged: Mapping[str, Load] = {}
        self._merged_from: list[tuple[str, int]] = []
        self.beat_us = 0
        """The latest beat heard; what came later is news."""

    def learn(self, news: Iterable[tuple[str, int, Mapping[str, Load]]], now_us: int) -> None:
        """Take in what replicas said; `now_us` is the server's time with it. Older word never replaces newer."""
        if now_us < self.beat_us - STEP_BACK_US:
            # The server's clock went back (a failover, or an empty server): its beats start over.
            self._said.clear()
            self.beat_us = 0
        for replica, beat_us, loads in news:
            if beat_us > self._said.get(replica, (0, loads))[0]:
                self._said[replica] = (beat_us, loads)
                self.beat_us = max(self.beat_us, beat_us)

    @property
    def other_replicas(self) -> int:
        """How many others were fresh when `merged` was last asked."""
        return len(self._merged_from)

    def merged(self, now_us: int) -> Mapping[str, Load]:
        """Sums over all replicas that are fresh at `now_us`, our own left out."""
        for replica in [r for r, (beat_us, _) in self._said.items() if abs(now_us - beat_us) > self._stale_after_us]:
            del self._said[replica]
        fresh = [(replica, beat_us) for replica, (beat_us, _) in self._said.items() if replica != self._own_replica]
        if fresh != self._merged_from:
            self._merged_from = fresh
            total: dict[str, Load] = {}
            for replica, _ in fresh:
                add_loads(total, self._said[replica][1])
            self._merged = total
        return self._merged


def add_loads(total: dict[str, Load], more: Mapping[str, Load]) -> None:
    """Add `more` into `total`, holder by holder."""
    for holder, load in more.items():
        total[holder] = total[holder] + load if holder in total else load
