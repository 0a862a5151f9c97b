"""The radix index in Redis: the contract of `RadixIndex`, shared by all replicas. The structure is in `lua/nodes.lua`.

    replica 1 ──match, observe──┐
    replica 2 ──match, observe──┼──> functions prefixgate_2_<digest>_* over the keys {pg:2:<pool>}:*
    replica 3 ──match, observe──┘

One match is one round trip: leading runs, the loads of other replicas, and, only when they changed, the names of the
holders. A call that Redis cannot answer raises IndexUnavailable; deadlines and stand-ins are the business of
`SharedIndex`.

Fences. A holder's generation begins with the first thing observed of it and ends with `clear`; `registry` knows those
of the last match. A write that carries a generation does nothing where that is not the present one: so what was
observed before a clear does not count after it, and replicas that see one restart together clear once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from prefix_index.errors import IndexUnavailable
from prefix_index.load_book import LoadBook
from prefix_index.radix import DEFAULT_CAPACITY_BLOCKS, IN_ENGINE_MEMORY, SPECULATIVE_S
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_clients import RedisClient
from prefix_index.redis_link import RedisLink
from prefix_index.redis_wire import (
    NONSENSE,
    Call,
    MatchReply,
    Registry,
    bulks,
    call_of,
    letters,
    match_call,
    pack_loads,
    pool_keys,
    read_match,
)
from prefix_index.types import Chain, Claim, DegradedReason, Load, Match

DEFAULT_TTL_S = 24 * 3600
"""What nobody used for a day goes, and the keys of a pool that nobody writes to."""

DEFAULT_MAX_BYTES = 4 << 30
"""Memory for one pool: 10 million prompts of 8 blocks that share nothing."""

_KEPT_SEATS: Final = 4096


class RedisRadix:
    """Leading runs per holder and loads, in Redis ≥ 7 or Valkey, over a client or what carries for several.

    `speculative_s` is how long a speculation counts that nobody renews; `max_bytes` is what the whole pool may take, as
    estimated from what is stored (0: no limit). Both travel with each write, as does the time to live.
    """

    def __init__(
        self,
        redis: RedisClient | Carrier,
        pool: str,
        *,
        capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS,
        speculative_s: float = SPECULATIVE_S,
        max_bytes: int = DEFAULT_MAX_BYTES,
        loads: LoadBook | None = None,
    ) -> None:
        self._link = RedisLink(redis, pool_keys(pool))
        self._capacity_blocks = capacity_blocks
        self._speculative_s = speculative_s
        self._max_bytes = max_bytes
        self._loads = loads or LoadBook(stale_after_s=10.0)
        self._seats: dict[tuple[str, Claim | None, float], bytes] = {}
        self.ttl_s: float = DEFAULT_TTL_S
        """How long what nobody uses stays."""
        self.registry = Registry()
        """Holders and generations as of the last match."""
        self.unreadable_loads = 0
        """How often a replica's loads were not of our format."""

    async def ready(self) -> None:
        """Connect ahead of the first call. Raises IndexUnavailable; no deadline of its own."""
        await self._link.ready()

    async def match(self, chain: Chain) -> Match[str]:
        """Leading runs of `chain` and the fresh loads, in one round trip shared with all matches of this tick."""
        read = await self.ask(chain)
        return replace(read.match, loads=self.loads_at(read.now_us))

    async def ask(self, chain: Chain, within_s: float | None = None) -> MatchReply:
        """The same as it was answered, with no loads in the match: `loads_at` has them. Raises IndexUnavailable."""
        known = self.registry
        reply = await self._link.call(match_call(chain, known, self._loads.beat_us), within_s)
        try:
            read = read_match(reply, known)
        except NONSENSE as failure:
            raise IndexUnavailable(f"reply to match: {failure}", DegradedReason.BAD_ANSWER) from failure
        self.registry = read.registry
        self.unreadable_loads += read.unreadable
        self._loads.learn(read.news, read.now_us)
        return read

    @property
    def other_replicas(self) -> int:
        """How many other replicas have told of themselves lately."""
        return self._loads.other_replicas

    def loads_at(self, now_us: int) -> Mapping[str, Load]:
        """What the other replicas have outstanding, by the server's time."""
        return self._loads.merged(now_us)

    async def observe(
        self,
        holder: str,
        chain: Chain,
        claim: Claim = Claim.CONFIRMED,
        *,
        capacity_blocks: int | None = None,
        generation: int | None = None,
    ) -> int:
        """`holder` has all of `chain`; ignored where `generation` is given and has passed. Returns blocks new.

        Beyond `capacity_blocks` the least recently used tails of this claim go. It is the capacity of the memory that
        the holder computes from: what it has in the host's memory and on disk is bounded by the default alone.
        """
        return await self._number(
            self.observe_call(holder, chain, claim, capacity_blocks=capacity_blocks, generation=generation)
        )

    async def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None = None) -> int:
        """`holder` lost `chain[from_block]` and all that comes after, on all branches. Returns blocks lost.

        None means all claims; their losses are summed.
        """
        return await self._number(self.forget_call(holder, chain, from_block, claim))

    async def evict(self, holder: str, to_blocks: int, claim: Claim = Claim.CONFIRMED) -> int:
        """Take tails, least recently used first, down to `to_blocks`, in slices. Returns what `holder` has then.

        Part of the contract for who knows better than the index how much a holder keeps; the gateway leaves it to
        capacities.
        """
        left: int | None = None
        while True:
            call = call_of("evict", *self._limits, holder, letters([claim]), to_blocks)
            before, left = left, await self._number(call)
            if left <= to_blocks or left == before:
                return left

    async def clear(self, holder: str, claim: Claim | None = None, *, generation: int | None = None) -> None:
        """`holder` has nothing any more, or nothing of one claim; ignored where `generation` has passed.

        The generation ends when no claim is left.
        """
        await self._number(self.clear_call(holder, claim, generation=generation))

    async def publish_loads(self, replica: str, loads: Mapping[str, Load]) -> None:
        """Replace what `replica` has outstanding, as a whole; also its sign of life.

        For audits: `SharedIndex` sends `publish_call` with its other writes.
        """
        await self._number(self.publish_call(replica, loads))

    async def blocks_of(self, holder: str, claim: Claim = Claim.CONFIRMED) -> int:
        """How many blocks `holder` is known to have. For audits, and the contract of all implementations."""
        return await self._number(call_of("count", holder, letters([claim]), read_only=True))

    async def send(self, calls: list[Call], within_s: float | None = None) -> list[object]:
        """Many calls in one pipeline; see `RedisLink.send`."""
        return await self._link.send(calls, within_s)

    def observe_call(
        self,
        holder: str,
        chain: Chain,
        claim: Claim = Claim.CONFIRMED,
        *,
        capacity_blocks: int | None = None,
        generation: int | None = None,
    ) -> Call:
        """`observe`, to be sent later."""
        capacity = self._capacity_blocks
        if capacity_blocks is not None and claim in IN_ENGINE_MEMORY:
            capacity = capacity_blocks
        hashes, fence, most = chain.hashes, _fence(generation), b"%d" % capacity
        return Call(
            "observe",
            8,
            b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
            % (self._seat(holder, claim), len(hashes), hashes, len(fence), fence, len(most), most),
        )

    def forget_call(self, holder: str, chain: Chain, from_block: int, claim: Claim | None = None) -> Call:
        """`forget`, to be sent later."""
        hashes, first = chain.hashes, b"%d" % from_block
        seat = self._seat(holder, claim)
        return Call("forget", 7, b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n" % (seat, len(hashes), hashes, len(first), first))

    def clear_call(self, holder: str, claim: Claim | None = None, *, generation: int | None = None) -> Call:
        """`clear`, to be sent later."""
        return Call("clear", 6, self._seat(holder, claim) + bulks(_fence(generation)))

    def publish_call(self, replica: str, loads: Mapping[str, Load]) -> Call:
        """`publish_loads`, to be sent later."""
        return call_of("publish", *self._limits, replica, pack_loads(loads))

    def _seat(self, holder: str, claim: Claim | None) -> bytes:
        """What all writes about one claim of a holder begin with, packed once: limits, holder, claim; None: all."""
        name = (holder, claim, self.ttl_s)
        seat = self._seats.get(name)
        if seat is None:
            if len(self._seats) >= _KEPT_SEATS:
                self._seats.clear()
            seat = self._seats[name] = bulks(*self._limits, holder, letters(Claim if claim is None else [claim]))
        return seat

    @property
    def _limits(self) -> tuple[int, int, int]:
        return int(self.ttl_s * 1000), int(self._speculative_s * 1000), self._max_bytes

    async def _number(self, call: Call) -> int:
        reply = await self._link.call(call)
        if not isinstance(reply, int):
            raise IndexUnavailable(f"reply to {call.function}: {type(reply).__name__}", DegradedReason.BAD_ANSWER)
        return reply


def _fence(generation: int | None) -> bytes:
    return b"" if generation is None else b"%d" % generation
