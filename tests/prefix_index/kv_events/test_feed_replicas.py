"""Two replicas and one engine: one of them consumes, and when it is gone the other one does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from prefix_index.kv_events.feed import Feed, FeedParts
from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.lease import LeaseOptions, Leases
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import EventSockets
from prefix_index.redis_clients import connect
from prefix_index.shared_index import SharedIndex
from tests.prefix_index.door import WITHIN_S, Door
from tests.prefix_index.kv_events.feeding import HOLDER, PATIENT, letters, mirror
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.prefix_index.replicas import PATIENT as PATIENT_INDEX
from tests.prefix_index.servers import free_ports
from tests.until import until

SHORT = LeaseOptions(ttl_s=0.5, renew_s=0.02, deadline_s=0.3)
LONG = LeaseOptions(ttl_s=60.0, renew_s=0.02, deadline_s=10.0)


@dataclass
class Replica:
    """What a gateway has of all this."""

    feed: Feed
    index: SharedIndex
    leases: Leases
    tasks: list[asyncio.Task[None]]

    def kill(self) -> None:
        """Nothing is drained or given back."""
        for task in self.tasks:
            task.cancel()

    async def stop(self) -> None:
        """As at a shutdown."""
        self.kill()
        await asyncio.wait(self.tasks)
        await self.leases.release()

    async def claims(self, prompt: str, blocks: int) -> None:
        """Wait until the index claims so many blocks for the engine."""
        await until(
            lambda: self.index.match(letters().chain(prompt)),
            lambda found: found.blocks.get(HOLDER, 0) == blocks,
            within_s=WITHIN_S,
        )


@asynccontextmanager
async def replica(
    redis_url: str, name: str, source: EventSource, *, pool: str, options: LeaseOptions = SHORT
) -> AsyncIterator[Replica]:
    """A replica with a client of its own; killed at the end."""
    async with connect(redis_url) as client, asyncio.TaskGroup() as group:
        index = SharedIndex(client, pool=pool, replica=name, options=PATIENT_INDEX)
        leases = Leases(client, pool=pool, replica=name, options=options)
        parts = FeedParts(EventSockets(), leases, index, replace(PATIENT, away_after_s=0.3))
        feed = Feed(source, name="engine", holder=HOLDER, mirror=mirror(), parts=parts)
        runs = (parts.sockets.run(), index.run(), leases.run(), feed.run())
        running = Replica(feed, index, leases, [group.create_task(run) for run in runs])
        try:
            yield running
        finally:
            running.kill()


def a_source() -> EventSource:
    live, replay = free_ports(2)
    return EventSource(f"tcp://127.0.0.1:{live}", f"tcp://127.0.0.1:{replay}")


async def test_one_replica_consumes_and_the_other_takes_over_when_it_is_killed(server_url: str) -> None:
    source, engine = a_source(), letters()
    async with (
        publishing(Publisher(source.url, source.replay_url)) as publisher,
        replica(server_url, "one", source, pool="feeds killed") as one,
    ):
        await until(lambda: one.feed.state is FeedState.IN_STEP)
        async with replica(server_url, "two", source, pool="feeds killed") as two:
            await until(lambda: two.feed.state is FeedState.NOT_CONSUMER)
            publisher.publish(engine.store("abc", 0), engine.store("xy", 0))
            await two.claims("abc", 3)
            assert two.feed.counters.batches == 0
            one.kill()
            publisher.publish(engine.remove("abc"), engine.store("xyz", 2))
            await until(lambda: two.feed.state is FeedState.IN_STEP)
            await two.claims("xyz", 3)
            await two.claims("abc", 2)
            assert (one.feed.counters.batches, two.feed.counters.batches) == (1, 2)


async def test_a_replica_that_stops_hands_over_at_once(server_url: str) -> None:
    source, engine = a_source(), letters()
    async with (
        publishing(Publisher(source.url, source.replay_url)) as publisher,
        replica(server_url, "one", source, pool="feeds stopped", options=LONG) as one,
    ):
        await until(lambda: one.feed.state is FeedState.IN_STEP)
        async with replica(server_url, "two", source, pool="feeds stopped", options=LONG) as two:
            await until(lambda: two.feed.state is FeedState.NOT_CONSUMER)
            await one.stop()
            publisher.publish(engine.store("abc", 0))
            await two.claims("abc", 3)


async def test_while_redis_is_away_nobody_consumes_and_then_the_index_is_put_right(door: Door) -> None:
    source, engine = a_source(), letters()
    await door.open()
    async with (
        publishing(Publisher(source.url, source.replay_url)) as publisher,
        replica(door.url, "one", source, pool="feeds away") as one,
    ):
        await until(lambda: one.feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("abc", 0))
        await one.claims("abc", 3)
        await door.shut()
        await until(lambda: one.feed.state is FeedState.NOT_CONSUMER)
        publisher.publish(engine.remove("abc"), engine.store("x", 0))
        await door.open()
        await until(lambda: one.feed.state is FeedState.IN_STEP)
        await one.claims("x", 1)
        await one.claims("abc", 2)


async def test_a_replica_that_does_not_hear_the_engine_leaves_it_to_one_that_does(server_url: str) -> None:
    source, engine = a_source(), letters()
    async with replica(server_url, "deaf", a_source(), pool="feeds deaf", options=LONG) as deaf:
        await until(lambda: deaf.feed.state is FeedState.CONNECTING)
        async with (
            publishing(Publisher(source.url, source.replay_url)) as publisher,
            replica(server_url, "one", source, pool="feeds deaf", options=LONG) as one,
        ):
            publisher.publish(engine.store("abc", 0))
            await deaf.claims("abc", 3)
            assert one.feed.state is FeedState.IN_STEP
            assert deaf.feed.counters.batches == 0


async def test_a_replica_that_hears_the_engine_no_longer_leaves_it_to_one_that_does(server_url: str) -> None:
    source, engine = a_source(), letters()
    async with (
        publishing(Publisher(source.url, source.replay_url)) as publisher,
        replica(server_url, "one", source, pool="feeds cut", options=LONG) as one,
    ):
        publisher.publish(engine.store("abc", 0))
        await one.claims("abc", 3)
        # The same engine by another way, and the first way is cut.
        other = a_source()
        async with (
            publishing(Publisher(other.url, other.replay_url)) as elsewhere,
            replica(server_url, "two", other, pool="feeds cut", options=LONG) as two,
        ):
            await until(lambda: two.feed.state is FeedState.NOT_CONSUMER)
            await publisher.die()
            elsewhere.publish(engine.store("xy", 0))
            await two.claims("xy", 2)
            assert one.feed.state is FeedState.AWAY
