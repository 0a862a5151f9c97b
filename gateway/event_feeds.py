"""Who follows which engine's KV events: a feed for each cache that tells of itself, started as engines become known.

    config: url, poll, off --+
                             +--> sources --> feeds (one a rank), one consumer among the replicas --> index
    facts: where it publishes-+                 |
                                                `--> followed(holder): its coverage comes from events, in step

An endpoint whose feed is not in step is believed by its answers' receipts, as if it had no events; so a wrong address
costs nothing but the line that says so.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from backends import (
    BackendError,
    Deadlines,
    EndpointFacts,
    EndpointId,
    EndpointSnapshot,
    EventSourceKind,
    UpstreamClient,
    UpstreamRequest,
)
from gateway.config import KvEvents
from gateway.fleet import Fleet
from gateway.known import cache_name
from gateway.log_lines import LOGGER
from gateway.roots import root_of_event
from prefix_index import RedisClient, SharedIndex
from prefix_index.errors import EventSourceInvalid, EventsUnavailable
from prefix_index.kv_events import Mirror
from prefix_index.kv_events.feed import Feed, FeedParts
from prefix_index.kv_events.feed_types import FeedCounters, FeedState
from prefix_index.kv_events.lease import Leases
from prefix_index.kv_events.polling import PolledCache, PollFeed
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import EventSockets

LOOK_ROUND_S: Final = 0.5
"""Between two looks at what engines say of themselves."""
MOST_BLOCKS: Final = 1 << 20
"""Of an engine's that a mirror follows, where its capacity is not known."""
COUNTED_ENGINES: Final = frozenset({"vllm", "reference"})
"""Engines that announce every physical block, also where two hold the same."""
POLL_PATH: Final = "/kv_cache_events"
POLL_DEADLINES: Final = Deadlines(connect_s=2.0, first_byte_s=5.0, idle_s=5.0)
MOST_POLLED_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class EventFeedParts:
    """What feeds work with. `unsalted` is the salt of prompts for engines that are given none."""

    fleet: Fleet
    index: SharedIndex
    client: UpstreamClient
    redis: RedisClient | None
    pool: str
    replica: str
    unsalted: str


@dataclass(frozen=True, slots=True)
class FeedReport:
    """How the feed of one cache stands, for people and metrics."""

    endpoint_id: str
    rank: int
    source: str
    state: FeedState
    why: str | None
    counts: dict[str, int]
    blocks: int | None = None
    lag_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the feeds of an endpoint are made of; others are started where it changes."""

    sources: tuple[EventSource, ...]
    polled: bool
    facts: EndpointFacts
    block_size: int

    def differs_from(self, other: "_Wanted") -> bool:
        return (self.sources, self.polled, self.block_size, self.facts.models, self.facts.engine) != (
            *(other.sources, other.polled, other.block_size, other.facts.models, other.facts.engine),
        )


@dataclass(slots=True)
class _Running:
    wanted: _Wanted
    feeds: Sequence[Feed | PollFeed]
    task: asyncio.Task[None]


class EventFeeds:
    """All feeds of one replica. `run` must be under way; all else is plain and makes no I/O."""

    def __init__(self, parts: EventFeedParts, configured: dict[str, KvEvents]) -> None:
        self._parts = parts
        self._configured = configured
        self._leases = Leases(parts.redis, pool=parts.pool, replica=parts.replica)
        self._sockets = EventSockets()
        self._running: dict[str, _Running] = {}
        self._refused: dict[str, str] = {}
        """Why the sources of an endpoint cannot be read."""

    async def run(self) -> None:
        """Follow the engines that tell of their caches, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sockets.run())
                group.create_task(self._leases.run())
                while True:
                    for endpoint in self._parts.fleet.snapshot():
                        self._look_at(endpoint, group)
                    await asyncio.sleep(LOOK_ROUND_S)
        finally:
            await self._leases.release()

    def is_followed(self, endpoint_id: str) -> bool:
        """Whether what an endpoint holds is told by its events, here or at the replica that consumes them."""
        running = self._running.get(endpoint_id)
        if running is None or endpoint_id in self._refused:
            return False
        others_tell = self._parts.index.degraded_reason is None
        return all(
            feed.state is FeedState.IN_STEP or (feed.state is FeedState.NOT_CONSUMER and others_tell)
            for feed in running.feeds
        )

    def worked(self, endpoint_id: str, computed_tokens: int, took_s: float) -> None:
        """An endpoint has computed so many tokens of a prompt, for a request that was sent `took_s` ago."""
        running = self._running.get(endpoint_id)
        for feed in running.feeds if running is not None else ():
            feed.worked(computed_tokens, took_s)

    def new_generation(self, endpoint_id: EndpointId, _generation: int) -> None:
        """The engine of an endpoint is another one now; its holder has another name already."""
        self.resync(endpoint_id)

    def configure(self, endpoint_id: str, configured: KvEvents) -> None:
        """How the events of an endpoint that is new, or another one now, are got. Feeds of one before it end now: what
        that one tells is no word on this one."""
        self._stop(endpoint_id)
        self._refused.pop(endpoint_id, None)
        self._configured[endpoint_id] = configured

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more: its feeds end."""
        self._stop(endpoint_id)
        self._configured.pop(endpoint_id, None)
        self._refused.pop(endpoint_id, None)

    def resync(self, endpoint_id: str) -> None:
        """Read anew what an endpoint holds, and tell the index, which has nothing of it any more."""
        running = self._running.get(endpoint_id)
        for feed in running.feeds if running is not None else ():
            holder = self._parts.fleet.holder_of(endpoint_id)
            if isinstance(feed, Feed):
                feed.resync(cache_name(holder, feed.source.rank))
            else:
                feed.resync({rank: cache_name(holder, rank) for rank in feed.counters})

    def reports(self) -> list[FeedReport]:
        """How every feed stands. O(feeds)."""
        followed = [
            report
            for endpoint_id, running in self._running.items()
            for feed in running.feeds
            for report in _reports(endpoint_id, feed, self._refused.get(endpoint_id))
        ]
        refused = self._refused.items() - {(one, self._refused.get(one)) for one in self._running}
        return followed + [FeedReport(one, 0, "", FeedState.AWAY, why, {}) for one, why in sorted(refused)]

    def _look_at(self, endpoint: EndpointSnapshot, group: asyncio.TaskGroup) -> None:
        """Start feeds for what an engine tells now; where it tells otherwise than before, other ones."""
        try:
            wanted = self._wanted(endpoint)
        except EventSourceInvalid as invalid:
            self._refuse(endpoint.id, str(invalid))
            self._stop(endpoint.id)
            return
        before = self._running.get(endpoint.id)
        if wanted is None or (before is not None and not wanted.differs_from(before.wanted)):
            return
        if before is not None:
            before.task.cancel()
        self._refused.pop(endpoint.id, None)
        feeds = self._feeds(endpoint.id, wanted)
        self._running[endpoint.id] = _Running(wanted, feeds, group.create_task(self._follow(endpoint.id, feeds)))

    def _stop(self, endpoint_id: str) -> None:
        stale = self._running.pop(endpoint_id, None)
        if stale is not None:
            stale.task.cancel()

    async def _follow(self, endpoint_id: str, feeds: Sequence[Feed | PollFeed]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for feed in feeds:
                    group.create_task(feed.run())
        except* EventSourceInvalid as invalid:
            self._refuse(endpoint_id, str(invalid.exceptions[0]))
        except* Exception as fault:  # noqa: BLE001 - the guard of a loop: the other endpoints' feeds go on
            # Its kind alone: the text of an error may repeat what an engine said.
            self._refuse(endpoint_id, f"its events cannot be read: {type(fault.exceptions[0]).__name__}")

    def _refuse(self, endpoint_id: str, why: str) -> None:
        """Follow an endpoint no further, and say so, once."""
        if self._refused.get(endpoint_id) != why:
            self._refused[endpoint_id] = why
            LOGGER.error("KV events are not followed", extra={"fields": {"endpoint": endpoint_id, "why": why}})

    def _wanted(self, endpoint: EndpointSnapshot) -> _Wanted | None:
        facts, configured = endpoint.facts, self._configured.get(endpoint.id, KvEvents())
        if facts is None or configured.mode == "off" or not tells_enough(facts):
            return None
        sources = tuple(configured.sources or _sources_of(facts))
        polled = configured.mode == "poll" or any(s.kind is EventSourceKind.POLL for s in facts.event_sources)
        if not sources and not polled:
            return None
        return _Wanted(sources, polled and not sources, facts, self._parts.fleet.block_size_of(facts))

    def _feeds(self, endpoint_id: str, wanted: _Wanted) -> list[Feed | PollFeed]:
        parts, holder = self._parts, self._parts.fleet.holder_of(endpoint_id)
        feed_parts = FeedParts(self._sockets, self._leases, parts.index)
        if wanted.polled:
            caches = {0: PolledCache(holder, self._mirror(wanted))}
            poll = partial(_polled, parts.client, parts.fleet, endpoint_id)
            return [PollFeed(poll, name=endpoint_id, caches=caches, parts=feed_parts)]
        return [
            Feed(
                source,
                name=cache_name(endpoint_id, source.rank),
                holder=cache_name(holder, source.rank),
                mirror=self._mirror(wanted),
                parts=feed_parts,
            )
            for source in wanted.sources
        ]

    def _mirror(self, wanted: _Wanted) -> Mirror:
        facts, block_size = wanted.facts, wanted.block_size
        unsalted = None if facts.supports_cache_salt else self._parts.unsalted

        def root_of(adapter: str | None, salt: str | None) -> bytes | None:
            return root_of_event(facts, adapter, salt if salt is not None else unsalted, block_size)

        # Blocks out of reach are followed too, for as long as others hang on them: as many again.
        most_blocks = 2 * facts.capacity_blocks if facts.capacity_blocks else MOST_BLOCKS
        return Mirror(root_of, block_size, most_blocks, counted=facts.engine in COUNTED_ENGINES)


def tells_enough(facts: EndpointFacts) -> bool:
    """Whether events tell apart what salts and adapters keep apart. SGLang names salts since 0.5.18, adapters since
    0.5.22; before, an adapter's blocks would pass for those of its base model."""
    if facts.engine != "sglang":
        return True
    has_adapters = any(model.parent is not None for model in facts.models)
    return _version(facts) >= ((0, 5, 22) if has_adapters else (0, 5, 18))


def _version(facts: EndpointFacts) -> tuple[int, ...]:
    """The numbers of an engine's version; empty, and so less than any, where it does not say."""
    return tuple(int(number) for number in re.findall(r"\d+", (facts.version or "").partition("+")[0])[:3])


def _sources_of(facts: EndpointFacts) -> Iterator[EventSource]:
    """What an engine publishes where we can connect; an address that we would have to bind must be configured."""
    for source in facts.event_sources:
        if source.kind is EventSourceKind.ZMQ and not source.is_bound:
            yield EventSource(source.url, source.replay_url, source.topic, source.rank, bind=False)


async def _polled(client: UpstreamClient, fleet: Fleet, endpoint_id: str) -> bytes:
    """The events of an engine that is polled. Raises EventsUnavailable."""
    request = UpstreamRequest("POST", POLL_PATH)
    try:
        async with await client.send(fleet.config_of(endpoint_id), request, POLL_DEADLINES) as response:
            body = await response.read(MOST_POLLED_BYTES)
    except BackendError as failure:
        raise EventsUnavailable(f"{POLL_PATH}: {type(failure).__name__}") from failure
    if response.status != 200:
        raise EventsUnavailable(f"{POLL_PATH} answers {response.status}")
    return body


def _reports(endpoint_id: str, feed: Feed | PollFeed, refused: str | None) -> Iterator[FeedReport]:
    state = feed.state if refused is None else FeedState.AWAY
    why = refused or feed.why
    if isinstance(feed, PollFeed):
        for rank, counters in feed.counters.items():
            counts = _counts(counters) | {"malformed": feed.malformed_answers}
            yield FeedReport(endpoint_id, rank, POLL_PATH, state, why, counts)
        return
    mirror, source = feed.mirror, feed.source
    counts = _counts(feed.counters) | {
        "dropped": feed.dropped_messages,
        "orphans": mirror.orphans,
        "untranslated": mirror.untranslated,
    }
    lag_s = feed.counters.lag_s
    yield FeedReport(endpoint_id, source.rank, source.url, state, why, counts, mirror.blocks, lag_s)


def _counts(counters: FeedCounters) -> dict[str, int]:
    return {
        "batches": counters.batches,
        "gaps": counters.gaps,
        "restarts": counters.restarts,
        "replays": counters.replays,
        "resyncs": counters.resyncs,
        "malformed": counters.malformed,
        "skipped": counters.skipped,
    }
