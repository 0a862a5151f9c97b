"""One shard of the shared index: the part of it in Redis, with a deadline, and its stand-in in this process.

    match ──────> Redis ── in time ──────────────> leading runs of all replicas, everybody's loads
                    └───── late, away, nonsense ─> twin: what this replica saw itself, its own loads

    observe, forget, clear ──> bounded queue ──run()──> Redis, pipelined; until then laid over what Redis says
                           └─> twin, with the same writes: together, and before anything is read of it

The breaker says whether Redis is asked at all; while it is open, `run` probes Redis until it answers in time again.
Nothing here raises on the request path, and no write waits for Redis. Writes wait a little for each other: those of two
milliseconds travel together, and what one of them makes another say in vain is never sent (`write_queue`).
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from prefix_index.breaker import Breaker
from prefix_index.errors import IndexUnavailable
from prefix_index.generations import Generations
from prefix_index.index_options import SharedIndexOptions
from prefix_index.load_exchange import LoadExchange
from prefix_index.pending import MOST_PENDING, with_pending
from prefix_index.quiet_log import QuietLog
from prefix_index.radix import RadixIndex
from prefix_index.recent_claims import RecentClaims
from prefix_index.redis_link import is_dropped
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import Call
from prefix_index.twin import Twin
from prefix_index.types import Chain, Claim, DegradedReason, Load, Match
from prefix_index.write_queue import NO_CHAIN, Write, WriteQueue

_WRITES_PER_FLUSH: Final = 256
_PACE_S: Final = 0.002
"""Between two flushes. Who has written nothing for so long writes at once."""
_ANSWERS_TO_CLOSE: Final = 3
"""Probes that have to be answered in time, one after the other."""
_FIRST_PROBE_S: Final = 0.01
_KEPT_HOLDERS: Final = 4096
_CONFIRMED: Final = Claim.CONFIRMED  # an attribute of an enumeration takes longer than all else that is done with it


class IndexShard:
    """See `SharedIndex`, whose methods these are, for the chains of one shard. Without `remote` the twin is all."""

    def __init__(
        self,
        remote: RedisRadix | None,
        *,
        replica: str,
        options: SharedIndexOptions,
        quiet_log: QuietLog,
        clock: Callable[[], float],
    ) -> None:
        self._remote = remote
        self._replica = replica
        self._options = options
        self._log = quiet_log
        self._clock = clock
        self._twin = Twin(capacity_blocks=options.capacity_blocks, clock=clock, speculative_s=options.speculative_s)
        self._recent = RecentClaims(clock)
        self._queue = WriteQueue(
            max_writes=options.max_queued_writes, max_bytes=options.max_queued_bytes // options.shards
        )
        self._loads = LoadExchange(
            interval_s=options.load_interval_s, heartbeat_s=options.heartbeat_s, stale_after_s=options.stale_after_s
        )
        self._generations = Generations()
        self._breaker = Breaker()
        self._capacities: dict[str, int] = {}
        self._in_flight = 0
        self._sent: list[Write] = []
        """Writes that Redis has not answered yet."""
        self._losses: dict[str, int] = {}
        self._refused = 0
        self._heard_at_s = float("-inf")
        self._wake = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = float("inf")
        self._flushed_at_s = float("-inf")
        self._probe_delay_s = 0.0
        self.stand_in_matches = 0

    @property
    def degraded_reason(self) -> DegradedReason | None:
        """Why Redis is not asked."""
        return self._breaker.reason

    @property
    def dropped_writes(self) -> int:
        """Writes that never reached Redis."""
        return self._queue.dropped

    @property
    def queued_writes(self) -> int:
        """Writes on their way to Redis."""
        return len(self._queue) + len(self._sent)

    @property
    def twin(self) -> RadixIndex[str]:
        """What this replica saw itself."""
        return self._twin.index

    async def match(self, chain: Chain) -> Match[str]:
        """Leading runs and loads, from Redis or from the twin."""
        found = None
        if self._remote is not None:
            if self._breaker.reason is None and self._in_flight < self._options.max_matches_in_flight:
                found = await self._ask(self._remote, chain)
            self.stand_in_matches += found is None
        if found is None:
            found = self._twin.match(chain)
        return Match(
            found.blocks,
            self._loads.total(self._clock()),
            found.walked_blocks,
            found.truncated,
            found.speculative,
            found.host,
            found.disk,
            found.ages_s,
        )

    def observe(self, holder: str, chain: Chain, claim: Claim) -> None:
        """`holder` has all of `chain`."""
        if self._remote is None:
            self._twin.observe(holder, chain, claim)
            return
        if not chain.hashes or (claim is _CONFIRMED and not self._recent.is_news(holder, chain)):
            return
        capacity, generation = self._capacities.get(holder), self._generations.of(holder)
        write = Write(holder, claim, chain, capacity=capacity, generation=generation)
        self._put(write)
        self._twin.learn(write)

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim | None) -> None:
        """`holder` lost `chain[from_block]` and all that comes after."""
        if self._remote is None:
            self._twin.forget(holder, chain, from_block, claim)
            return
        if claim is None or claim is _CONFIRMED:
            self._recent.forget()
        write = Write(holder, claim, chain, from_block)
        if self._queue.full:
            self._end(holder, fenced=False)  # as the loss would not have been
        else:
            self._put(write)
        self._twin.learn(write)

    def observe_here(self, holder: str, chain: Chain, claim: Claim) -> None:
        """See `SharedIndex.observe_here`."""
        if self._remote is not None:
            self._twin.observe(holder, chain, claim)

    def forget_here(self, holder: str, chain: Chain, from_block: int, claim: Claim) -> None:
        """See `SharedIndex.forget_here`."""
        if self._remote is not None:
            self._twin.forget(holder, chain, from_block, claim)

    def clear(self, holder: str, *, fenced: bool) -> None:
        """The generation of `holder` has ended, or with `fenced` False whatever generation there is."""
        self._twin.clear(holder)
        if self._remote is not None:
            self._recent.forget()
            self._end(holder, fenced=fenced)

    def losses_of(self, holder: str) -> int:
        """Rises whenever something that was written for `holder` is lost otherwise than by its own writes."""
        return self._losses.get(holder, 0) + self._generations.births + self._refused

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks `holder` can keep; goes to Redis with its observations."""
        self._twin.set_capacity(holder, blocks)
        self._capacities[holder] = blocks
        if len(self._capacities) > _KEPT_HOLDERS:
            del self._capacities[next(iter(self._capacities))]

    def capacity_of(self, holder: str) -> int | None:
        """How many blocks `holder` can keep, where this replica was told."""
        return self._capacities.get(holder)

    def others(self) -> tuple[Mapping[str, Load], int]:
        """What the other replicas have outstanding, as last heard, and how many replicas there are with this one."""
        loads, remote = self._loads.others(self._clock()), self._remote
        return loads, 1 if remote is None else 1 + remote.other_replicas

    def set_load(self, holder: str, load: Load) -> None:
        """What this replica has outstanding at `holder`."""
        if self._loads.set(holder, load):
            self._wake.set()

    async def run(self) -> None:
        """Carry calls to Redis and probe it after a failure, until cancelled."""
        if self._remote is None:
            return
        try:
            await self._serve(self._remote)
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    async def drain(self, within_s: float) -> None:
        """Give queued writes a last chance and take this replica's loads back."""
        if self._remote is None:
            return
        self._loads.withdraw()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._breaker.reason is None:
                    await self._flush(self._remote)
                    if not self._queue:
                        return

    async def _serve(self, remote: RedisRadix) -> None:
        await self._probe(remote)
        while True:
            if self._breaker.reason is None:
                await self._work()
                await self._flush(remote)
                if self._clock() - self._heard_at_s > self._options.heartbeat_s:
                    await self._ask(remote, NO_CHAIN)  # who has no traffic hears all the same what others did
            else:
                await asyncio.sleep(self._probe_delay_s)
                await self._probe(remote)

    async def _ask(self, remote: RedisRadix, chain: Chain) -> Match[str] | None:
        """What Redis says; None where it does not within the deadline."""
        began_at_s, unreadable_before = self._clock(), remote.unreadable_loads
        pending = [*self._sent, *self._queue.latest(MOST_PENDING)]
        ending = {*self._queue.ending, *[write.holder for write in self._sent if write.ending]}
        self._in_flight += 1
        try:
            read = await remote.ask(chain, self._options.deadline_s)
        except IndexUnavailable as failure:
            if failure.reason is not DegradedReason.TIMEOUT:
                self._open(failure.reason, failure.why)
            elif self._breaker.late(began_at_s, self._clock()):
                self._say_open("matches are late")
            return None
        finally:
            self._in_flight -= 1
        self._breaker.in_time()
        if remote.unreadable_loads > unreadable_before:
            self._log.warn("prefix index: another replica's loads are of another format, and are left out")
        self._heard_at_s = self._clock()
        self._loads.heard(remote.loads_at(read.now_us), self._heard_at_s)
        self._follow(remote)
        return with_pending(read.match, chain, pending, ending)

    def _follow(self, remote: RedisRadix) -> None:
        """Let holders end here that other replicas have ended."""
        births = self._generations.births
        ended = self._generations.learn(remote.registry)
        for holder in ended:
            self._twin.clear(holder)
            self._lost(holder)
        if ended or births != self._generations.births:
            self._recent.forget()

    def _end(self, holder: str, *, fenced: bool) -> None:
        known = self._generations.end(holder)
        self._put(Write(holder, None, ending=True, generation=known if fenced else None))

    def _lost(self, holder: str) -> None:
        self._recent.forget()
        self._losses[holder] = self._losses.pop(holder, 0) + 1
        if len(self._losses) > _KEPT_HOLDERS:
            del self._losses[next(iter(self._losses))]

    def _put(self, write: Write) -> None:
        if not self._queue.put(write):
            self._lost(write.holder)
            self._log.warn("prefix index: writes to Redis are dropped, %d so far", self.dropped_writes)
        self._wake.set()

    async def _work(self) -> None:
        """Wait until there is something to send, and until it is time to."""
        due_at_s, now_s = self._loads.due_at_s, self._clock()
        if self._alarm is None or due_at_s < self._alarm_at_s:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at_s = due_at_s
            self._alarm = asyncio.get_running_loop().call_later(max(0.0, due_at_s - now_s), self._ring)
        await self._wake.wait()
        early_s = self._flushed_at_s + _PACE_S - self._clock()
        if early_s > 0:
            await asyncio.sleep(early_s)
        self._wake.clear()

    def _ring(self) -> None:
        self._alarm = None
        self._wake.set()

    async def _flush(self, remote: RedisRadix, *, publish: bool = False) -> bool:
        """Send what is due, once; whether Redis took all of it in. What it did not goes back into the queue."""
        self._twin.catch_up()
        writes = self._queue.take(_WRITES_PER_FLUSH)
        if self._queue:
            self._wake.set()
        calls = [_call_of(remote, write) for write in writes]
        now_s = self._flushed_at_s = self._clock()
        publish = publish or now_s >= self._loads.due_at_s
        if publish:
            self._loads.publishing(now_s)
            calls.append(remote.publish_call(self._replica, self._loads.own))
        done = 0
        self._sent = writes
        try:
            if calls:
                done = await self._send(remote, calls)
        finally:
            self._sent = []
            if done < len(calls):
                self._queue.give_back(writes[done:])
                self._loads.undelivered()
        return done == len(calls)

    async def _send(self, remote: RedisRadix, calls: list[Call]) -> int:
        """How many of the calls, from the first on, need not be sent again.

        A server may refuse in the midst of a pipeline, where it is deposed. What it took in after that is sent again
        too: in their order, writes that come twice leave what they leave when they come once.
        """
        try:
            replies = await remote.send(calls, self._options.write_deadline_s)
        except IndexUnavailable as failure:
            self._open(failure.reason, failure.why)
            return 0
        for at, (call, reply) in enumerate(zip(calls, replies, strict=True)):
            if not isinstance(reply, Exception):
                continue
            if not is_dropped(call, reply):
                self._open(DegradedReason.REFUSED, str(reply))
                return at
            self._drop(call, reply)
        return len(calls)

    def _drop(self, call: Call, refusal: Exception) -> None:
        if call.function == "publish":
            self._loads.undelivered()
        else:
            self._queue.dropped += 1
            self._refused += 1
            self._recent.forget()
        self._log.warn("prefix index: Redis refused writes, %d dropped so far: %s", self.dropped_writes, refusal)

    async def _probe(self, remote: RedisRadix) -> None:
        """Try writes with patience, all that wait, then matches within the deadline."""
        took = await self._flush(remote, publish=True)
        while took and len(self._queue) >= _WRITES_PER_FLUSH:
            took = await self._flush(remote)
        if took and await self._answers_in_time(remote):
            if self._breaker.reason is not None:
                self._log.warn("prefix index: Redis is back")
            self._breaker.close()
            self._probe_delay_s = 0.0
        else:
            self._probe_delay_s = min(max(_FIRST_PROBE_S, 2 * self._probe_delay_s), self._options.probe_every_s)

    async def _answers_in_time(self, remote: RedisRadix) -> bool:
        for _ in range(_ANSWERS_TO_CLOSE):
            if await self._ask(remote, NO_CHAIN) is None:
                return False
        return True

    def _open(self, reason: DegradedReason, why: str) -> None:
        if self._breaker.open(reason):
            self._say_open(why)

    def _say_open(self, why: str) -> None:
        self._log.warn("prefix index: Redis is not in use, matches come from this replica alone: %s", why)
        self._wake.set()


def _call_of(remote: RedisRadix, write: Write) -> Call:
    if write.ending:
        return remote.clear_call(write.holder, write.claim, generation=write.generation)
    if write.from_block is not None:
        return remote.forget_call(write.holder, write.chain, write.from_block, write.claim)
    assert write.claim is not None, "an observation is about one claim"
    capacity, generation = write.capacity, write.generation
    return remote.observe_call(write.holder, write.chain, write.claim, capacity_blocks=capacity, generation=generation)
