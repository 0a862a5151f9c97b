"""An odd word of one engine ends the following of that engine, and of no other."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

import pytest

from backends import EndpointFacts, ServedModel, UpstreamClient
from backends.types import EventSourceFacts
from gateway.config import KvEvents
from gateway.event_feeds import EventFeedParts, EventFeeds
from gateway.fleet import Fleet
from prefix_index import SharedIndex
from prefix_index.kv_events.feed_types import FeedState
from tests.prefix_index.kv_events.feeding import Sink, letters, urls
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.until import until


@dataclass
class Index(Sink):
    degraded_reason: str | None = None


@dataclass
class Engines:
    """A fleet of engines that publish what they say."""

    said: dict[str, EndpointFacts] = field(default_factory=dict)

    def publish(self, name: str, url: str, replay_url: str | None = None, topic: str = "", model: str = "m") -> None:
        source = EventSourceFacts(0, url, replay_url, topic)
        self.said[name] = EndpointFacts("vllm", (ServedModel(model),), event_sources=(source,))

    def snapshot(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=name, facts=facts) for name, facts in self.said.items()]

    def holder_of(self, endpoint_id: str) -> str:
        return f"{endpoint_id}@1"

    def block_size_of(self, _facts: EndpointFacts) -> int:
        return 16


@asynccontextmanager
async def followed(engines: Engines) -> AsyncIterator[EventFeeds]:
    fleet, index, client = cast(Fleet, engines), cast(SharedIndex, Index()), cast(UpstreamClient, None)
    feeds = EventFeeds(EventFeedParts(fleet, index, client, None, "pool", "replica", ""), {"well": KvEvents()})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feeds.run())
        try:
            yield feeds
        finally:
            task.cancel()


def reasons(feeds: EventFeeds) -> dict[str, str | None]:
    return {report.endpoint_id: report.why for report in feeds.reports() if report.state is FeedState.AWAY}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"replay_url": "ipc:///run/kv-*"}, "ipc:///run/kv-*: the engine binds it"),
        ({"replay_url": "tcp://*eth0:5558"}, "tcp://*eth0:5558: the engine binds it"),
        ({"topic": "\ud800"}, "its topic is no text"),
    ],
)
async def test_a_source_that_cannot_be_is_said_once_and_the_others_are_followed(
    said: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    url, replay_url = urls()
    engines = Engines()
    engines.publish("odd", "tcp://127.0.0.1:1", **said)
    engines.publish("well", url, replay_url)
    async with publishing(Publisher(url, replay_url)) as publisher, followed(engines) as feeds:
        await until(lambda: feeds.is_followed("well"))
        publisher.publish(letters().store("ab", 0))
        await until(lambda: any(report.blocks == 2 for report in feeds.reports()))
        assert not feeds.is_followed("odd")
        assert why in str(reasons(feeds)["odd"])
        lines = [record for record in caplog.records if record.message == "KV events are not followed"]
        assert [record.levelno for record in lines] == [logging.ERROR]


async def test_an_engine_that_thinks_better_of_it_is_followed_and_one_that_gets_worse_no_more() -> None:
    url, replay_url = urls()
    engines = Engines()
    async with publishing(Publisher(url, replay_url)), followed(engines) as feeds:
        for _ in range(2):
            engines.publish("odd", url, "ipc:///kv-*")
            await until(lambda: "odd" in reasons(feeds))
            assert not feeds.is_followed("odd")
            engines.publish("odd", url, replay_url)
            await until(lambda: feeds.is_followed("odd"))
            assert reasons(feeds) == {}


async def test_a_fault_in_reading_one_engines_events_ends_that_feed_alone() -> None:
    (url, replay_url), (other_url, other_replay_url) = urls(), urls()
    engines = Engines()
    engines.publish("odd", url, replay_url, model="\ud800")
    engines.publish("well", other_url, other_replay_url)
    async with (
        publishing(Publisher(url, replay_url)) as odd,
        publishing(Publisher(other_url, other_replay_url)),
        followed(engines) as feeds,
    ):
        await until(lambda: feeds.is_followed("odd") and feeds.is_followed("well"))
        odd.publish(letters().store("ab", 0))
        await until(lambda: reasons(feeds) == {"odd": "its events cannot be read: UnicodeEncodeError"})
        assert not feeds.is_followed("odd")
        assert feeds.is_followed("well")
