"""An index that follows one engine by its KV events alone, and what it expects of the engine's next prompt.

engine ──events──> Feed ──> RadixIndex ──match──> expected tokens
       `─replays──'         in one loop, on a thread of its own: tests ask from theirs
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from struct import pack
from types import TracebackType
from typing import Any, Self, TypeVar

from backends import EndpointFacts
from gateway.roots import root_of_event
from prefix_index import RadixIndex, TokenIds, chain_of
from prefix_index.kv_events import Change, Cleared, Event, Mirror, Removed, Stored
from prefix_index.kv_events.feed import Feed, FeedParts
from prefix_index.kv_events.feed_types import FeedCounters, FeedState
from prefix_index.kv_events.lease import Leases
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import EventSockets
from prefix_index.types import Chain, Claim

QUIET_S = 0.3
"""An engine that has said nothing for so long has said all of what it did."""
LOOK_S = 0.01
WITHIN_S = 60.0
MAX_BLOCKS = 10_000
HOLDER = "engine"

T = TypeVar("T")


@dataclass(slots=True)
class Heard:
    """What has come in, for the table."""

    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0


class CountingMirror(Mirror):
    """A mirror that counts what it takes in."""

    heard: Heard

    def apply(self, events: Iterable[Event]) -> list[Change]:
        """As any mirror."""
        taken = list(events)
        self.heard.stored_blocks += sum(len(one.hashes) for one in taken if isinstance(one, Stored))
        self.heard.removed_blocks += sum(len(one.hashes) for one in taken if isinstance(one, Removed))
        self.heard.clears += sum(isinstance(one, Cleared) for one in taken)
        return super().apply(taken)


@dataclass(frozen=True, slots=True)
class IndexSink:
    """An index in process that is never behind."""

    index: RadixIndex[str] = field(default_factory=RadixIndex)
    queued_writes: int = 0

    def losses_of(self, holder: str) -> int:
        """As `EventSink` says, and so the others: nothing is lost."""
        del holder
        return 0

    def observe(self, holder: str, chain: Chain, claim: Claim) -> None:
        """See above."""
        self.index.observe(holder, chain, claim)

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim) -> None:
        """See above."""
        self.index.forget(holder, chain, from_block, claim)

    def clear(self, holder: str) -> None:
        """See above."""
        self.index.clear(holder)


class Loop:
    """An event loop on a thread of its own, with the sockets of all feeds."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="feeds", daemon=True)
        self._tasks: list[Future[None]] = []
        self.sockets = EventSockets()
        self.leases = Leases(None, pool="test", replica="test")

    def __enter__(self) -> Self:
        self._thread.start()
        self.run_on(self.sockets.run())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The feeds before the sockets that they use.
        for task in reversed(self._tasks):
            task.cancel()
        self.do(_all_others_ended())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run_on(self, forever: Coroutine[Any, Any, None]) -> None:
        """Run it until the end."""
        self._tasks.append(asyncio.run_coroutine_threadsafe(forever, self._loop))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result, once it is there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _all_others_ended() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*others, return_exceptions=True)


class KvFollower:
    """Follows the first source of an endpoint, as the gateway does, while the loop runs."""

    def __init__(self, loop: Loop, facts: EndpointFacts) -> None:
        [source] = facts.event_sources
        assert facts.block_size is not None
        assert facts.capacity_blocks is not None
        self.heard = Heard()
        self._loop = loop
        self._facts = facts
        self._block_size = facts.block_size
        mirror = CountingMirror(self._root, facts.block_size, MAX_BLOCKS)
        mirror.heard = self.heard
        self._sink = IndexSink()
        self._sink.index.set_capacity(HOLDER, facts.capacity_blocks)
        # An address to be bound says all of the machine; a test listens to itself alone.
        url = source.url.replace("*", "127.0.0.1")
        self._feed = Feed(
            EventSource(url, source.replay_url, source.topic, source.rank, bind=source.is_bound),
            name=source.topic,
            holder=HOLDER,
            mirror=mirror,
            parts=FeedParts(loop.sockets, loop.leases, self._sink),
        )
        loop.run_on(self._feed.run())

    @property
    def counters(self) -> FeedCounters:
        """What the feed counted."""
        return self._feed.counters

    @property
    def is_in_step(self) -> bool:
        """Whether the feed says that it knows everything."""
        return self._feed.state is FeedState.IN_STEP

    def expected_tokens(self, prompt: list[int], salt: str | None) -> int:
        """The tokens of a prompt that the engine will find in its cache: whole blocks, never the last token's."""
        root = self._root(None, salt)
        assert root is not None
        chain = chain_of(TokenIds(pack(f"<{len(prompt)}I", *prompt)), root, self._block_size)
        blocks = min(self._loop.do(self._run_of(chain)), (len(prompt) - 1) // self._block_size)
        return blocks * self._block_size

    def wait_in_step(self) -> None:
        """Wait until the feed says that it knows everything."""
        self.until(lambda: self.is_in_step)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        self._loop.do(_until(condition))

    def catch_up(self) -> None:
        """Wait until the engine is quiet and all that it said is in the index."""
        self._loop.do(self._quiet())

    async def _run_of(self, chain: Chain) -> int:
        return self._sink.index.match(chain).blocks.get(HOLDER, 0)

    async def _quiet(self) -> None:
        loop = asyncio.get_running_loop()
        seen, since_s = self.counters.batches, loop.time()
        while loop.time() < since_s + QUIET_S:
            await asyncio.sleep(LOOK_S)
            if self.counters.batches != seen:
                seen, since_s = self.counters.batches, loop.time()

    def _root(self, adapter: str | None, salt: str | None) -> bytes | None:
        return root_of_event(self._facts, adapter, salt, self._block_size)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(LOOK_S)
