"""The radix index in Redis: the contract of `RadixIndex`, shared by all replicas. The structure is in `lua/nodes.lua`.

    replica 1 ──match, observe──┐
    replica 2 ──match, observe──┼──> functions prefixgate_1_<digest>_* over the keys {pg:1:<pool>}:*
    replica 3 ──match, observe──┘

One match is one round trip: leading runs, the loads of other replicas, and, only when they changed, the names of the
holders. A call that Redis cannot answer raises IndexUnavailable; deadlines and stand-ins are the business of
`SharedIndex`.
"""

from collections.abc import Mapping

import msgspec
from redis.asyncio import Redis

from prefix_index.errors import IndexUnavailable
from prefix_index.load_book import LoadBook
from prefix_index.radix import DEFAULT_CAPACITY_BLOCKS
from prefix_index.redis_link import RedisLink
from prefix_index.redis_wire import Call, MatchReply, Registry, match_call, pack_loads, pool_keys, read_match
from prefix_index.types import Chain, DegradedReason, Evidence, Load, Match

DEFAULT_TTL_S = 24 * 3600
"""What nobody used for a day goes, and the keys of a pool that nobody writes to."""


class RedisRadix:
    """Leading runs per holder and loads, in Redis ≥ 7 or Valkey. The client must not decode responses."""

    def __init__(
        self,
        client: Redis,
        pool: str,
        *,
        capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS,
        ttl_s: float = DEFAULT_TTL_S,
        loads: LoadBook | None = None,
    ) -> None:
        self._link = RedisLink(client, pool_keys(pool))
        self._capacity_blocks = capacity_blocks
        self._ttl_ms = int(ttl_s * 1000)
        self._loads = loads or LoadBook(stale_after_s=10.0)
        self.registry = Registry()
        """Holders and generations as of the last match."""

    async def match(self, chain: Chain) -> Match[str]:
        """Leading runs of `chain` and the fresh loads, in one round trip shared with all matches of this tick."""
        known = self.registry
        reply = await self._link.call(match_call(chain, known, self._loads.beat_us))
        try:
            read = read_match(reply, known)
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as failure:
            raise IndexUnavailable(f"reply to match: {failure}", DegradedReason.BAD_ANSWER) from failure
        return self._learn(read)

    async def observe(
        self, holder: str, chain: Chain, evidence: Evidence = Evidence.CONFIRMED, *, generation: int | None = None
    ) -> int:
        """`holder` has all of `chain`; ignored where `generation` is given and has passed. Returns blocks new."""
        return await self._number(self.observe_call(holder, chain, evidence, generation=generation))

    async def forget(self, holder: str, chain: Chain, from_block: int) -> int:
        """`holder` lost `chain[from_block]` and all that comes after, on all branches. Returns blocks lost."""
        return await self._number(self.forget_call(holder, chain, from_block))

    async def evict(self, holder: str, to_blocks: int) -> int:
        """Take tails, least recently used first, down to `to_blocks`, in slices. Returns what `holder` has then."""
        left: int | None = None
        while True:
            before, left = left, await self._number(Call("evict", (self._ttl_ms, holder, to_blocks)))
            if left <= to_blocks or left == before:
                return left

    async def clear(self, holder: str) -> None:
        """`holder` has nothing any more."""
        await self._number(self.clear_call(holder))

    async def raise_generation(self, holder: str, *, ended: int | None = None) -> int:
        """`holder` was restarted. Does nothing where the generation `ended` is not the present one. Returns that."""
        return await self._number(self.raise_call(holder, ended=ended))

    async def set_capacity(self, holder: str, blocks: int) -> None:
        """Set how many blocks `holder` can keep; the next `observe` enforces it."""
        await self._number(self.capacity_call(holder, blocks))

    async def publish_loads(self, replica: str, loads: Mapping[str, Load]) -> None:
        """Replace what `replica` has outstanding, as a whole; also its sign of life."""
        await self._number(self.publish_call(replica, loads))

    async def blocks_of(self, holder: str) -> int:
        """How many blocks `holder` is known to have."""
        return await self._number(Call("count", (holder,), read_only=True))

    async def send(self, calls: list[Call]) -> list[object]:
        """Many calls in one pipeline; see `RedisLink.send`."""
        return await self._link.send(calls)

    def observe_call(
        self, holder: str, chain: Chain, evidence: Evidence = Evidence.CONFIRMED, *, generation: int | None = None
    ) -> Call:
        """`observe`, to be sent later. Both kinds of evidence count as coverage for now."""
        del evidence
        fence = "" if generation is None else generation
        return Call("observe", (self._ttl_ms, holder, chain.hashes, fence, self._capacity_blocks))

    def forget_call(self, holder: str, chain: Chain, from_block: int) -> Call:
        """`forget`, to be sent later."""
        return Call("forget", (self._ttl_ms, holder, chain.hashes, from_block))

    def clear_call(self, holder: str) -> Call:
        """`clear`, to be sent later."""
        return Call("clear", (self._ttl_ms, holder))

    def raise_call(self, holder: str, *, ended: int | None = None) -> Call:
        """`raise_generation`, to be sent later."""
        return Call("raise", (self._ttl_ms, holder, "" if ended is None else ended))

    def capacity_call(self, holder: str, blocks: int) -> Call:
        """`set_capacity`, to be sent later."""
        return Call("capacity", (self._ttl_ms, holder, blocks))

    def publish_call(self, replica: str, loads: Mapping[str, Load]) -> Call:
        """`publish_loads`, to be sent later."""
        return Call("publish", (self._ttl_ms, replica, pack_loads(loads)))

    def _learn(self, read: MatchReply) -> Match[str]:
        self.registry = read.registry
        self._loads.learn(read.news, read.now_us)
        found = read.match
        return Match(found.blocks, self._loads.merged(read.now_us), found.walked_blocks, found.truncated)

    async def _number(self, call: Call) -> int:
        reply = await self._link.call(call)
        if not isinstance(reply, int):
            raise IndexUnavailable(f"reply to {call.function}: {type(reply).__name__}", DegradedReason.BAD_ANSWER)
        return reply
