"""The index that the gateway uses: the one in Redis, with a deadline, and the one in process as its stand-in.

    match ──────> Redis ── in time ──────────────> leading runs of all replicas, everybody's loads
                    └───── late, away, nonsense ─> twin: what this replica saw itself, its own loads

    observe, forget, clear, ... ──> twin, at once
                                └─> bounded queue ──run()──> Redis, pipelined

A failure opens the breaker: `degraded_reason` says why, matches go straight to the twin, and `run` probes Redis until
it answers within the deadline again. Nothing here raises on the request path, and no write waits.

Every replica follows the others: holders and generations come with each match, and where another replica has ended a
generation the twin forgets it too. Writes carry the generation they were made under, so that an observation made before
a restart does not count after it. An index that Redis lost is filled again by traffic; capacities are sent again.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from redis.asyncio import Redis

from prefix_index.errors import IndexUnavailable
from prefix_index.load_book import LoadBook, add_loads
from prefix_index.radix import DEFAULT_CAPACITY_BLOCKS, RadixIndex
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import Call, Registry
from prefix_index.types import Chain, DegradedReason, Evidence, Load, Match
from prefix_index.write_queue import Write, WriteQueue

log = logging.getLogger("prefix_index")

_NOTHING = Chain(hashes=b"", block_size=1, prompt_tokens=0)
_WRITES_PER_FLUSH = 256


@dataclass(frozen=True, slots=True)
class SharedIndexOptions:
    """How patient the shared index is, and how much it keeps."""

    deadline_s: float = 0.005
    """A match that Redis has not answered by then is answered by the twin."""
    write_deadline_s: float = 1.0
    """A pipeline of writes that Redis has not answered by then is sent again later."""
    stale_after_s: float = 10.0
    """Loads of a replica that has not published for so long no longer count."""
    heartbeat_s: float = 1.0
    """Longest time between two publications of this replica's loads."""
    load_interval_s: float = 0.05
    """Shortest time between two publications of this replica's loads."""
    probe_every_s: float = 1.0
    """Longest time between two probes of a Redis that failed; the first come sooner."""
    capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS
    """Capacity of a holder whose own is not known."""
    max_queued_writes: int = 10_000
    """Writes kept while Redis is away; further observations are dropped."""
    max_queued_bytes: int = 64 << 20
    """Bytes of chains kept while Redis is away."""
    log_every_s: float = 10.0
    """Shortest time between two log lines of one kind, however often Redis comes and goes."""


class SharedIndex:
    """Match and write without ever raising or blocking; `run` carries the writes to Redis.

    With `redis` None the twin is all there is, and that is not a degradation. The client must not decode responses
    (`connect` makes one); closing it is its owner's business.
    """

    def __init__(
        self, redis: Redis | None, *, pool: str, replica: str, options: SharedIndexOptions | None = None
    ) -> None:
        self._options = options or SharedIndexOptions()
        self._replica = replica
        self._twin: RadixIndex[str] = RadixIndex(capacity_blocks=self._options.capacity_blocks)
        self._remote: RedisRadix | None = None
        if redis is not None:
            book = LoadBook(stale_after_s=self._options.stale_after_s, own_replica=replica)
            self._remote = RedisRadix(redis, pool, capacity_blocks=self._options.capacity_blocks, loads=book)
        self._queue = WriteQueue(max_writes=self._options.max_queued_writes, max_bytes=self._options.max_queued_bytes)
        self._capacities: dict[str, int] = {}
        self._unsent_capacities: set[str] = set()
        self._own_loads: dict[str, Load] = {}
        self._other_loads: Mapping[str, Load] = {}
        self._heard_at_s = float("-inf")
        self._published_at_s = float("-inf")
        self._loads_changed = False
        self._registry = Registry()
        self._ended_here: set[str] = set()
        self._wake = asyncio.Event()
        self._probe_delay_s = 0.0
        self._logged_at_s: dict[str, float] = {}
        self.degraded_reason: DegradedReason | None = None
        """Why Redis is not in use at present; None while it is, and where none is configured."""
        self.stand_in_matches = 0
        """Matches that the twin answered although Redis is configured."""

    @property
    def dropped_writes(self) -> int:
        """Writes that never reached Redis: the queue was full, or Redis refused them."""
        return self._queue.dropped

    @property
    def queued_writes(self) -> int:
        """Writes on their way to Redis."""
        return len(self._queue)

    async def match(self, chain: Chain) -> Match[str]:
        """Leading runs of `chain` at all holders, and what is outstanding at each. Never raises, never late."""
        found = None
        if self._remote is not None:
            found = await self._match_remote(self._remote, chain) if self.degraded_reason is None else None
            self.stand_in_matches += found is None
        if found is None:
            found = self._twin.match(chain)
        return Match(found.blocks, self._all_loads(), found.walked_blocks, found.truncated)

    def observe(self, holder: str, chain: Chain, evidence: Evidence = Evidence.CONFIRMED) -> None:
        """`holder` has all of `chain`. After an answer with fewer cached tokens than expected, `forget` first."""
        self._twin.observe(holder, chain, evidence)
        if self._remote is not None and chain.hashes:
            call = self._remote.observe_call(holder, chain, evidence, generation=self._generation(holder))
            self._put(Write(holder, call))

    def forget(self, holder: str, chain: Chain, from_block: int) -> None:
        """`holder` lost `chain[from_block]` and all that comes after, on all branches."""
        self._twin.forget(holder, chain, from_block)
        if self._remote is None:
            return
        if self._queue.full:
            self._put(Write(holder, self._remote.clear_call(holder), ending=True))
        else:
            self._put(Write(holder, self._remote.forget_call(holder, chain, from_block)))

    def clear(self, holder: str) -> None:
        """`holder` has nothing any more, or has left. Its load stays: what is outstanding there still is."""
        self._twin.clear(holder)
        if self._remote is not None:
            self._end(holder, self._remote.clear_call(holder))

    def raise_generation(self, holder: str) -> None:
        """`holder` was restarted. Replicas that see one restart together raise its generation once."""
        self._twin.raise_generation(holder)
        if self._remote is not None:
            self._end(holder, self._remote.raise_call(holder, ended=self._generation(holder)))

    def set_capacity(self, holder: str, blocks: int) -> None:
        """How many blocks `holder` can keep."""
        self._twin.set_capacity(holder, blocks)
        if self._capacities.get(holder) != blocks:
            self._capacities[holder] = blocks
            self._unsent_capacities.add(holder)
            self._wake.set()

    def set_load(self, holder: str, load: Load) -> None:
        """What this replica has outstanding at `holder`, as a whole, not as a change."""
        if load == Load():
            self._own_loads.pop(holder, None)
        else:
            self._own_loads[holder] = load
        if not self._loads_changed:
            self._loads_changed = True
            self._wake.set()

    async def run(self) -> None:
        """Carry writes to Redis, publish loads, probe Redis after a failure; until cancelled.

        Without Redis there is nothing to do, and it returns.
        """
        if self._remote is None:
            return
        await self._probe(self._remote)
        while True:
            if self.degraded_reason is None:
                await self._work()
                await self._flush(self._remote)
            else:
                await asyncio.sleep(self._probe_delay_s)
                await self._probe(self._remote)

    async def drain(self, within_s: float = 1.0) -> None:
        """Give queued writes a last chance and take this replica's loads back; at shutdown, after `run` has ended."""
        if self._remote is None:
            return
        self._own_loads.clear()
        self._published_at_s = float("-inf")
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.degraded_reason is None:
                    await self._flush(self._remote)
                    if not self._queue:
                        return

    async def _match_remote(self, remote: RedisRadix, chain: Chain) -> Match[str] | None:
        try:
            async with asyncio.timeout(self._options.deadline_s):
                found = await remote.match(chain)
        except TimeoutError:
            self._degrade(DegradedReason.TIMEOUT)
            return None
        except IndexUnavailable as failure:
            self._degrade(failure.reason)
            return None
        self._other_loads = found.loads
        self._heard_at_s = asyncio.get_running_loop().time()
        self._follow(remote.registry)
        return found

    def _all_loads(self) -> Mapping[str, Load]:
        others = self._other_loads
        if others and asyncio.get_running_loop().time() - self._heard_at_s > self._options.stale_after_s:
            others = self._other_loads = {}
        if not others:
            return dict(self._own_loads)
        total = dict(others)
        add_loads(total, self._own_loads)
        return total

    def _follow(self, registry: Registry) -> None:
        """Take over what other replicas did to holders since the last match."""
        before, self._registry = self._registry, registry
        if registry is before:
            return
        if registry.born != before.born:
            self._ended_here.clear()
            self._unsent_capacities.update(self._capacities)
            self._wake.set()
            return
        for holder, generation in before.generations.items():
            if registry.generations.get(holder) == generation:
                continue
            if holder in self._ended_here:
                self._ended_here.remove(holder)
            else:
                self._twin.clear(holder)

    def _generation(self, holder: str) -> int | None:
        """The generation that a write made now belongs to; None where it is not known, or has just ended here."""
        return None if holder in self._ended_here else self._registry.generations.get(holder)

    def _end(self, holder: str, call: Call) -> None:
        if holder in self._registry.generations:
            self._ended_here.add(holder)
        self._put(Write(holder, call, ending=True))

    def _put(self, write: Write) -> None:
        if not self._queue.put(write):
            self._say("prefix index: writes to Redis are dropped, %d so far", self.dropped_writes)
        self._wake.set()

    async def _work(self) -> None:
        """Wait until there is something to send."""
        patience_s = self._options.load_interval_s if self._loads_changed else self._options.heartbeat_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._published_at_s + patience_s):
                await self._wake.wait()
        self._wake.clear()

    async def _flush(self, remote: RedisRadix) -> None:
        """Send what is due, once. What Redis did not take in goes back into the queue."""
        writes = self._queue.take(_WRITES_PER_FLUSH)
        capacities, self._unsent_capacities = self._unsent_capacities, set()
        publication = self._publication(remote)
        calls = [
            *(remote.capacity_call(holder, self._capacities[holder]) for holder in capacities),
            *(write.call for write in writes),
            *publication,
        ]
        if self._queue:
            self._wake.set()
        if not calls:
            return
        delivered = False
        try:
            delivered = await self._send(remote, calls)
        finally:
            if not delivered:
                self._queue.give_back(writes)
                self._unsent_capacities |= capacities
                self._loads_changed = True

    def _publication(self, remote: RedisRadix) -> list[Call]:
        now_s = asyncio.get_running_loop().time()
        patience_s = self._options.load_interval_s if self._loads_changed else self._options.heartbeat_s
        if now_s < self._published_at_s + patience_s:
            return []
        self._published_at_s = now_s
        self._loads_changed = False
        return [remote.publish_call(self._replica, self._own_loads)]

    async def _send(self, remote: RedisRadix, calls: list[Call]) -> bool:
        """Whether Redis took the calls in, or refused them one by one, which sending again would not change."""
        try:
            async with asyncio.timeout(self._options.write_deadline_s):
                replies = await remote.send(calls)
        except TimeoutError:
            self._degrade(DegradedReason.TIMEOUT)
            return False
        except IndexUnavailable as failure:
            self._degrade(failure.reason)
            return False
        refusals = [reply for reply in replies if isinstance(reply, Exception)]
        if len(refusals) == len(calls):
            self._degrade(DegradedReason.REFUSED)
            return False
        if refusals:
            self._queue.dropped += len(refusals)
            self._say("prefix index: Redis refused writes, %d dropped so far: %s", self.dropped_writes, refusals[0])
        return True

    async def _probe(self, remote: RedisRadix) -> None:
        """Try one write with patience, which also connects, then one match within the deadline."""
        publication = [remote.publish_call(self._replica, self._own_loads)]
        if await self._send(remote, publication) and await self._match_in_time(remote):
            if self.degraded_reason is not None:
                self._say("prefix index: Redis is back")
            self.degraded_reason = None
            self._probe_delay_s = 0.0
        else:
            self._probe_delay_s = min(max(0.01, 2 * self._probe_delay_s), self._options.probe_every_s)

    async def _match_in_time(self, remote: RedisRadix) -> bool:
        return await self._match_remote(remote, _NOTHING) is not None

    def _degrade(self, reason: DegradedReason) -> None:
        if self.degraded_reason is None:
            self._say("prefix index: Redis is not in use (%s), matches come from this replica alone", reason)
        self.degraded_reason = reason
        self._wake.set()

    def _say(self, message: str, *args: object) -> None:
        """One log line of a kind per `log_every_s`, so that a flapping Redis does not fill the log."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_at_s.get(message, float("-inf")) >= self._options.log_every_s:
            self._logged_at_s[message] = now_s
            log.warning(message, *args)
