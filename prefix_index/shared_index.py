"""The index that the gateway uses: the one in Redis, with a deadline, and the one in process as its stand-in.

    chain ──first block──> shard 0 .. n-1, each: Redis in front, its twin in this process behind   (index_shard)
    clear, loads ────────> all shards

A *shard* is a pool of its own in a slot of its own, `{pg:VERSION:POOL:N}`; one shard alone is `{pg:VERSION:POOL}`. A
match asks one shard, once. All prompts that begin alike lie in one shard, so a holder may have its whole capacity in
each: divided, it would evict what a fleet with one system prompt has, and an index that claims too much is put right by
receipts. The bytes of the pool are divided.

Every replica follows the others: holders and generations come with each match, and where another replica has ended a
generation the twin forgets it too. An index that Redis lost is filled again by traffic.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping

from prefix_index import inspection
from prefix_index.index_options import SharedIndexOptions
from prefix_index.index_shard import IndexShard
from prefix_index.load_book import LoadBook
from prefix_index.quiet_log import QuietLog
from prefix_index.radix import RadixIndex
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_census import Census, Hottest
from prefix_index.redis_clients import RedisClient, follow_primary
from prefix_index.redis_radix import RedisRadix
from prefix_index.types import HASH_BYTES, Chain, Claim, DegradedReason, Load, Match

log = logging.getLogger("prefix_index")


class SharedIndex:
    """Match and write without ever raising or blocking; `run` carries the writes to Redis.

    `redis` is a client, or what carries the calls of others on it too. With None the twin is all there is; that is a
    degradation only where `stand_in_reason` says why there is no Redis. The client must not decode responses (`connect`
    makes one); closing it is its owner's business.
    """

    def __init__(
        self,
        redis: RedisClient | Carrier | None,
        *,
        pool: str,
        replica: str,
        options: SharedIndexOptions | None = None,
        stand_in_reason: DegradedReason | None = None,
    ) -> None:
        self._options = options = options or SharedIndexOptions()
        clock = time.monotonic
        quiet_log = QuietLog(log, options.log_every_s, clock)
        self._stand_in_reason = stand_in_reason
        carrier = redis if redis is None or isinstance(redis, Carrier) else Carrier(redis, options.write_deadline_s)
        self._redis = None if carrier is None else carrier.client
        self._names = shard_names(pool, options.shards)
        self._shards = [
            IndexShard(
                None if carrier is None else _remote(carrier, name, replica, options),
                replica=replica,
                options=options,
                quiet_log=quiet_log,
                clock=clock,
            )
            for name in self._names
        ]

    @property
    def degraded_reason(self) -> DegradedReason | None:
        """Why Redis is not in use at present, all of it; None while it is, and where none is wanted."""
        reasons = (shard.degraded_reason for shard in self._shards)
        return next((reason for reason in reasons if reason is not None), self._stand_in_reason)

    @property
    def is_in_redis(self) -> bool:
        """Whether there is a Redis for it, which may be away; else this process has all of it."""
        return self._redis is not None

    @property
    def max_bytes(self) -> int:
        """Most memory in Redis, all shards."""
        return self._options.max_bytes

    @property
    def dropped_writes(self) -> int:
        """Writes that never reached Redis: the queue was full, or Redis refused them."""
        return sum(shard.dropped_writes for shard in self._shards)

    @property
    def queued_writes(self) -> int:
        """Writes on their way to Redis."""
        return sum(shard.queued_writes for shard in self._shards)

    @property
    def stand_in_matches(self) -> int:
        """Matches that the twin answered although Redis is configured."""
        return sum(shard.stand_in_matches for shard in self._shards)

    def match(self, chain: Chain) -> Coroutine[object, object, Match[str]]:
        """Leading runs of `chain` at all holders, and what is outstanding at each. Never raises, never late."""
        return self._shard_of(chain).match(chain)

    def observe(self, holder: str, chain: Chain, claim: Claim = Claim.CONFIRMED) -> None:
        """`holder` has all of `chain`. After an answer with fewer cached tokens than expected, `forget` first."""
        self._shard_of(chain).observe(holder, chain, claim)

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None = None) -> None:
        """`holder` lost `chain[from_block]` and all that comes after, on all branches; None: for all claims."""
        self._shard_of(chain).forget(holder, chain, from_block, claim)

    def observe_here(self, holder: str, chain: Chain, claim: Claim) -> None:
        """`holder` has all of `chain`, as Redis is told by somebody else: for this process alone, while Redis is away.

        Nothing where there is no Redis: then who tells, tells this process.
        """
        self._shard_of(chain).observe_here(holder, chain, claim)

    def forget_here(self, holder: str, chain: Chain, from_block: int, claim: Claim) -> None:
        """The same for what `holder` lost."""
        self._shard_of(chain).forget_here(holder, chain, from_block, claim)

    def clear(self, holder: str, *, fenced: bool = True) -> None:
        """`holder` has nothing any more: it was restarted or has left. Its load stays; what is outstanding still is.

        Replicas that see one restart together end one generation together: the one that this replica last heard of.
        With `fenced` False whatever generation there is ends, also one that this replica has not heard of yet.
        """
        for shard in self._shards:
            shard.clear(holder, fenced=fenced)

    def losses_of(self, holder: str) -> int:
        """Rises whenever what was written for `holder` may be lost: dropped here, refused, ended by another replica, or
        gone with all that Redis had. Who knows by itself what `holder` has tells it again then.
        """
        return sum(shard.losses_of(holder) for shard in self._shards)

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks `holder` can keep. Local; observations carry it."""
        for shard in self._shards:
            shard.set_capacity(holder, blocks)

    def capacity_of(self, holder: str) -> int | None:
        """How many blocks `holder` can keep in the memory it computes from, as far as this replica was told."""
        return self._shards[0].capacity_of(holder)

    def set_load(self, holder: str, load: Load) -> None:
        """What this replica has outstanding at `holder`, as a whole, not as a change."""
        for shard in self._shards:
            shard.set_load(holder, load)

    def others(self) -> tuple[Mapping[str, Load], int]:
        """What the other replicas have outstanding, as last heard, and how many replicas there are with this one.

        The same object while it is the same. Heard with each match, and at least each `heartbeat_s`. O(1).
        """
        return self._shards[0].others()

    async def run(self) -> None:
        """Carry writes to Redis, publish loads, probe Redis after a failure; until cancelled.

        Without Redis there is nothing to do, and it returns.
        """
        async with asyncio.TaskGroup() as group:
            for shard in self._shards:
                group.create_task(shard.run())
            if self._redis is not None:
                group.create_task(follow_primary(self._redis, self._options.probe_every_s))

    async def drain(self, within_s: float = 1.0) -> None:
        """Give queued writes a last chance and take this replica's loads back; at shutdown, after `run` has ended."""
        async with asyncio.TaskGroup() as group:
            for shard in self._shards:
                group.create_task(shard.drain(within_s))

    async def census(self) -> list[Census]:
        """What each shard holds: in Redis, or in this process where there is none. Raises IndexUnavailable."""
        return await inspection.census(self._redis, self._names, self._twins, self._patience_s)

    async def hottest(
        self, top: int, max_nodes: int = 100_000, block_tokens: Callable[[str], int] | None = None
    ) -> Hottest:
        """The `top` heaviest prefixes among `max_nodes` that are read of each shard. Raises IndexUnavailable.

        `block_tokens` says how many tokens a block of a holder has; without it prefixes are compared by blocks.
        """
        return await inspection.hottest(
            self._redis,
            self._names,
            top=top,
            max_nodes=max_nodes,
            block_tokens=block_tokens,
            within_s=self._patience_s,
        )

    async def extent(self) -> inspection.Extent:
        """What `check` would read. Raises IndexUnavailable."""
        return await inspection.extent(self._redis, self._names, self._twins, self._patience_s)

    async def check(self, within_s: float | None = None) -> list[str]:
        """Every broken invariant, in Redis and in this process, in words. Blocks both. Raises IndexUnavailable.

        `within_s` is for each shard's nodes to arrive.
        """
        patience_s = self._patience_s if within_s is None else within_s
        return await inspection.check(self._redis, self._names, self._twins, patience_s)

    @property
    def _patience_s(self) -> float:
        """For each shard, when people ask."""
        return inspection.patience_s(self.degraded_reason)

    @property
    def _twins(self) -> list[RadixIndex[str]]:
        return [shard.twin for shard in self._shards]

    def _shard_of(self, chain: Chain) -> IndexShard:
        if len(self._shards) == 1:
            return self._shards[0]
        return self._shards[int.from_bytes(chain.hashes[:HASH_BYTES], "little") % len(self._shards)]


def shard_names(pool: str, shards: int) -> list[str]:
    """The pools in Redis that make up one pool."""
    return [pool] if shards == 1 else [f"{pool}:{number}" for number in range(shards)]


def _remote(carrier: Carrier, name: str, replica: str, options: SharedIndexOptions) -> RedisRadix:
    return RedisRadix(
        carrier,
        name,
        capacity_blocks=options.capacity_blocks,
        loads=LoadBook(stale_after_s=options.stale_after_s, own_replica=replica),
        speculative_s=options.speculative_s,
        max_bytes=options.max_bytes // options.shards,
    )
