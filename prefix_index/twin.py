"""The stand-in of a shard in this process, which is told what was written only once it matters.

    write ──> untold ──(a flush to Redis, a look into it, or many)──> RadixIndex
                 └─ what another write has taken the place of meanwhile (`moot`) is never told

While Redis answers nothing is read of it, so it is told what Redis is told, and when: a request that observes one
prompt four times costs it one change of the tree.
"""

from collections.abc import Callable
from typing import Final

from prefix_index.radix import RadixIndex
from prefix_index.types import Chain, Claim, Match
from prefix_index.write_queue import Write

_MOST_UNTOLD: Final = 256


class Twin:
    """What this replica saw itself. Calls are O(1), but for what they tell it."""

    def __init__(self, *, capacity_blocks: int, clock: Callable[[], float], speculative_s: float) -> None:
        self._index: RadixIndex[str] = RadixIndex(
            capacity_blocks=capacity_blocks, clock=clock, speculative_s=speculative_s
        )
        self._untold: list[Write] = []

    @property
    def index(self) -> RadixIndex[str]:
        """All that was seen."""
        self.catch_up()
        return self._index

    def match(self, chain: Chain) -> Match[str]:
        """Leading runs of `chain` as seen here."""
        return self.index.match(chain)

    def observe(self, holder: str, chain: Chain, claim: Claim) -> None:
        """Seen at once."""
        self.index.observe(holder, chain, claim)

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None) -> None:
        """Gone at once."""
        self.index.forget(holder, chain, from_block, claim)

    def clear(self, holder: str) -> None:
        """`holder` has nothing any more."""
        self.index.clear(holder)

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks `holder` can keep."""
        self._index.set_capacity(holder, blocks)

    def learn(self, write: Write) -> None:
        """See an observation or a loss, sooner or later."""
        self._untold.append(write)
        if len(self._untold) >= _MOST_UNTOLD:
            self.catch_up()

    def catch_up(self) -> None:
        """Be told all that was written."""
        if not self._untold:
            return
        untold, self._untold = self._untold, []
        for write in untold:
            if write.moot:
                continue
            if write.from_block is not None:
                self._index.forget(write.holder, write.chain, write.from_block, write.claim)
            elif write.claim is not None:
                self._index.observe(write.holder, write.chain, write.claim)
