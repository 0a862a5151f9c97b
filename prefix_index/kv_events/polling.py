"""The feed of an engine that is polled for its events, each of which it tells once (TensorRT-LLM).

    lease ─> poll, once a second ─> runs of events by rank ─> a follower for each rank ─> index

A poll takes the events away, so what is lost is lost: an answer that did not arrive, or one that another reader took,
shows as a gap of the numbers, and the holder is cleared. A lease keeps replicas from taking each other's events;
anybody else who polls the engine shows as gaps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from prefix_index.errors import EventsUnavailable, MalformedBatch
from prefix_index.kv_events.catching_up import LOOP_SAFE_BYTES
from prefix_index.kv_events.feed import FeedParts
from prefix_index.kv_events.feed_types import FeedCounters, FeedState
from prefix_index.kv_events.follower import Follower
from prefix_index.kv_events.lease import Lease
from prefix_index.kv_events.mirror import Mirror
from prefix_index.kv_events.sequence import Arrival
from prefix_index.kv_events.trtllm import PollDecoder
from prefix_index.kv_events.types import PolledBatch
from prefix_index.kv_events.watch import Silence

Poll = Callable[[], Awaitable[bytes]]
"""The body of one answer. Raises EventsUnavailable, OSError or TimeoutError where there is none."""

_LOOK_ROUND_S = 1.0
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class PolledCache:
    """The cache of one rank: whose it is, and an empty mirror of it. Engines of this kind keep each block once."""

    holder: str
    mirror: Mirror


class PollFeed:
    """Follows all ranks of one endpoint, as `Feed` follows one. Where the engine names no rank, it is rank 0.

    Events of a rank that has no cache here are counted as skipped.
    """

    def __init__(
        self,
        poll: Poll,
        *,
        name: str,
        caches: Mapping[int, PolledCache],
        parts: FeedParts,
        decoder: PollDecoder | None = None,
    ) -> None:
        self.name = name
        self._poll = poll
        self._parts = parts
        self._options = parts.options
        self._decoder = decoder or PollDecoder()
        self._wake = asyncio.Event()
        self._lease: Lease = parts.leases.lease(name, self._wake.set)
        self._followers = {
            rank: Follower(cache.holder, cache.mirror, parts.sink, parts.options, self._may_write)
            for rank, cache in caches.items()
        }
        self._silence = Silence(parts.clock, parts.options)
        self._heard_at_s = _NEVER
        self._answered_at_s = parts.clock()
        self._failure: str | None = None
        self._has_begun = False
        self._term = 0
        self._begun_anew: set[int] = set()
        """Ranks that another process was seen to speak for, since their holders got their names."""
        self._renamed: dict[int, str] | None = None
        self.malformed_answers = 0
        """Answers that were no list of events."""
        self.skipped_events = 0
        """Events of ranks that have no cache here."""

    @property
    def counters(self) -> Mapping[int, FeedCounters]:
        """What happened so far, by rank; there is no lag, as these events carry no time."""
        return {rank: follower.counters for rank, follower in self._followers.items()}

    @property
    def state(self) -> FeedState:
        """How it stands now, the worst of its ranks."""
        if not self._lease.is_held:
            return FeedState.NOT_CONSUMER
        if self._failure is not None and self._parts.clock() - self._answered_at_s >= self._options.away_after_s:
            return FeedState.AWAY
        if self._silence.lasts(self._heard_at_s):
            return FeedState.SILENT
        if not self._has_begun:
            return FeedState.CONNECTING
        is_complete = all(follower.is_complete for follower in self._followers.values())
        return FeedState.IN_STEP if is_complete else FeedState.PARTIAL

    @property
    def why(self) -> str | None:
        """What the state may come from and what would help; None where all is well or it is too early to say."""
        match self.state:
            case FeedState.AWAY:
                return self._failure
            case FeedState.SILENT:
                return "the engine computes, and has no events: are event_buffer_max_size and block reuse set there?"
            case FeedState.PARTIAL:
                return "what the cache held before the first poll is not known, as the engine tells each event once"
        return None

    def worked(self, computed_tokens: int, took_s: float) -> None:
        """The engine has computed so many tokens; see `Feed.worked`."""
        self._silence.worked(computed_tokens, took_s, self._heard_at_s)

    def resync(self, holders: Mapping[int, str] | None = None) -> None:
        """The engine was replaced, or its holders have other names, by rank."""
        self._renamed = dict(holders or {})
        self._wake.set()

    async def run(self) -> None:
        """Poll, until cancelled; then the lease is given back."""
        try:
            self._parts.leases.want(self._lease)
            while True:
                self._wake.clear()
                await self._turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._options.poll_s if self._lease.is_held else _LOOK_ROUND_S):
                        await self._wake.wait()
        finally:
            self._parts.leases.give_back(self._lease)

    async def _turn(self) -> None:
        if self._term != self._lease.term or not self._lease.is_held:
            self._term, self._has_begun = self._lease.term, False
        if not self._lease.is_held:
            return
        if not self._has_begun:
            for follower in self._followers.values():
                follower.begin(None)
                follower.clear_index()
        if self._renamed is not None:
            await self._rename()
        for follower in self._followers.values():
            await follower.make_good()
        body = await self._answer()
        if body is None:
            return
        self._has_begun = True
        try:
            batches = await self._decoded(body)
        except MalformedBatch:
            self.malformed_answers += 1  # its events are gone, and the next numbers show it
            return
        for batch in batches:
            await self._take(batch)

    def _may_write(self) -> bool:
        """Whether the lease is still the one that this was begun with."""
        return self._lease.is_held and self._lease.term == self._term

    async def _answer(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._options.poll_deadline_s):
                body = await self._poll()
        except (EventsUnavailable, OSError) as failure:  # TimeoutError is an OSError
            self._failure = str(failure) or type(failure).__name__
            return None
        self._failure, self._answered_at_s = None, self._parts.clock()
        return body

    async def _decoded(self, body: bytes) -> tuple[PolledBatch, ...]:
        """The events of an answer; a long one is read in a thread. Raises MalformedBatch."""
        if len(body) > LOOP_SAFE_BYTES:
            return await asyncio.to_thread(self._decoder.decode_poll, body)
        return self._decoder.decode_poll(body)

    async def _take(self, batch: PolledBatch) -> None:
        self._heard_at_s = self._parts.clock()
        rank = batch.rank or 0
        follower = self._followers.get(rank)
        if follower is None:
            self.skipped_events += batch.last - batch.first + 1
            return
        arrival = follower.admit(batch.first, last=batch.last)
        if arrival in {Arrival.GAP, Arrival.RESTARTED}:
            is_restart = arrival is Arrival.RESTARTED
            follower.counters.gaps += not is_restart
            follower.counters.restarts += is_restart
            follower.counters.resyncs += 1
            if is_restart:
                self._begun_anew.add(rank)
            follower.begin(None)
            follower.clear_index(even_if_untold=is_restart)
            follower.admit(batch.first, last=batch.last)
        follower.counters.batches += 1
        follower.counters.skipped += batch.skipped
        await follower.apply(batch.events)

    async def _rename(self) -> None:
        """Other names for processes that were seen to come keep what is known of them."""
        holders, self._renamed = self._renamed or {}, None
        for rank, follower in self._followers.items():
            if holders.get(rank, follower.holder) != follower.holder:
                follower.rename(holders[rank])
            else:
                follower.clear_index(even_if_untold=True)
            if rank in self._begun_anew and self._failure is None:
                await follower.retell()
            else:
                follower.begin(None)
        self._begun_anew.clear()
