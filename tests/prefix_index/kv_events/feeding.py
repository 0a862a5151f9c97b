"""Feeds in tests: an engine of letters, its publisher, a feed, and an index in process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from prefix_index.kv_events import Event, Mirror
from prefix_index.kv_events.feed import Feed, FeedParts
from prefix_index.kv_events.feed_types import FeedOptions
from prefix_index.kv_events.lease import Leases
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import EventSockets
from prefix_index.radix import RadixIndex
from prefix_index.types import Chain, Claim
from tests.prefix_index.door import WITHIN_S
from tests.prefix_index.kv_events.letters import ROOT, Letters
from tests.prefix_index.kv_events.publisher import Publisher
from tests.prefix_index.servers import free_ports
from tests.until import until

BLOCK = 16
HOLDER = "engine@1"

QUICK = FeedOptions(away_after_s=0.05, silent_after_s=0.05, replay_patience_s=0.3, retry_replay_s=0.05)
"""Patience for tests that wait for it to end."""
QUICK_REPLAY = FeedOptions(replay_patience_s=0.2, retry_replay_s=0.05)
"""Patience for tests in which nobody answers when asked for a replay."""
PATIENT = FeedOptions(replay_patience_s=10.0)
"""Patience that a loaded machine does not use up."""


def urls() -> tuple[str, str]:
    """Addresses for a publisher and its replays."""
    live, replay = free_ports(2)
    return f"tcp://127.0.0.1:{live}", f"tcp://127.0.0.1:{replay}"


@dataclass
class Sink:
    """An index in process that remembers what it was asked."""

    index: RadixIndex[str] = field(default_factory=RadixIndex)
    asked: list[str] = field(default_factory=list)
    waiting: int = 0
    looks: int = 0
    losses: int = 0

    @property
    def queued_writes(self) -> int:
        self.looks += 1
        return self.waiting

    def losses_of(self, holder: str) -> int:
        return self.losses

    def observe(self, holder: str, chain: Chain, claim: Claim) -> None:
        self.asked.append("observe")
        self.index.observe(holder, chain, claim)

    def forget(self, holder: str, chain: Chain, from_block: int, claim: Claim) -> None:
        self.asked.append("forget")
        self.index.forget(holder, chain, from_block, claim)

    def clear(self, holder: str) -> None:
        self.asked.append("clear")
        self.index.clear(holder)

    def run_of(self, prompt: str, holder: str = HOLDER) -> int:
        """Leading blocks that the index claims."""
        return self.index.match(letters().chain(prompt)).blocks.get(holder, 0)


def letters() -> Letters:
    """A cache of letters whose blocks are ours."""
    return Letters(block_size=BLOCK, ours=BLOCK)


def mirror() -> Mirror:
    """An empty mirror of such a cache."""
    return Mirror(lambda adapter, salt: ROOT if adapter is None and salt is None else None, BLOCK, 100_000)


def parts_of(sink: Sink, options: FeedOptions = PATIENT) -> FeedParts:
    """What feeds of one process share; each feed is its own consumer."""
    return FeedParts(EventSockets(), Leases(None, pool="p", replica="r"), sink, options)


@asynccontextmanager
async def fed(
    source: EventSource, sink: Sink, *, options: FeedOptions = PATIENT, others: Sequence[EventSource] = ()
) -> AsyncIterator[Feed]:
    """A feed that runs, and feeds of `others` with a holder of that name; killed at the end."""
    parts = parts_of(sink, options)
    feed = Feed(source, name="engine", holder=HOLDER, mirror=mirror(), parts=parts)
    more = [Feed(other, name="other", holder="other", mirror=mirror(), parts=parts) for other in others]
    async with asyncio.TaskGroup() as group:
        runs = (parts.sockets.run(), feed.run(), *(one.run() for one in more))
        tasks = [group.create_task(run) for run in runs]
        try:
            yield feed
        finally:
            for task in tasks:
                task.cancel()


async def speaking_until(publisher: Publisher, event: Callable[[], Event], condition: Callable[[], object]) -> None:
    """Publish until a condition holds: without a replay, what a new process says first may be dropped unread."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            publisher.publish(event())
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await until(condition)
                    return
