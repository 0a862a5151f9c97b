"""What a feed says of itself: whoever set it up the wrong way round is told so."""

import asyncio

import pytest

from prefix_index.errors import EventSourceInvalid
from prefix_index.kv_events.feed import Feed
from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.sources import EventSource
from tests.prefix_index.kv_events.feeding import PATIENT, QUICK, Sink, fed, letters, mirror, parts_of
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.prefix_index.servers import free_ports
from tests.until import until


def url() -> str:
    return f"tcp://127.0.0.1:{free_ports(1)[0]}"


async def test_both_ends_connect() -> None:
    there = url()
    async with (
        publishing(Publisher(there, connects=True)),
        fed(EventSource(there), Sink(), options=QUICK) as feed,
    ):
        assert (feed.state, feed.why) == (FeedState.CONNECTING, None)
        await until(lambda: feed.state is FeedState.AWAY)
        assert feed.why == (
            f"nobody listens at {there}; if the engine was given this address it connects out: "
            "give a URL with * to bind"
        )


async def test_both_ends_bind() -> None:
    here = url()
    async with publishing(Publisher(url())), fed(EventSource(here, bind=True), Sink(), options=QUICK) as feed:
        await until(lambda: feed.state is FeedState.AWAY)
        assert feed.why == (
            f"nobody connects to {here}; if the engine was given an address with * it waits for us: "
            "give the address of the engine, without *"
        )


async def test_both_ends_bind_the_same_address() -> None:
    there = url()
    async with publishing(Publisher(there)), fed(EventSource(there, bind=True), Sink(), options=PATIENT) as feed:
        await until(lambda: feed.state is FeedState.AWAY)
        assert feed.why == f"{there} cannot be used: Address already in use"


async def test_what_listens_is_no_publisher() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    there = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, fed(EventSource(there), Sink(), options=QUICK) as feed:
        await until(lambda: feed.state is FeedState.AWAY and "does not speak" in str(feed.why))
    assert feed.state is FeedState.CONNECTING  # it does not run


async def test_an_engine_that_leaves_is_away_and_then_in_step_again() -> None:
    there, replay = url(), url()
    engine, sink = letters(), Sink()
    async with fed(EventSource(there, replay), sink, options=QUICK) as feed:
        async with publishing(Publisher(there, replay)) as publisher:
            publisher.publish(engine.store("ab", 0))
            await until(lambda: feed.state is FeedState.IN_STEP and sink.run_of("ab") == 2)
        await until(lambda: feed.state is FeedState.AWAY)
        async with publishing(Publisher(there, replay)) as publisher:
            publisher.publish(letters().store("x", 0))
            await until(lambda: feed.state is FeedState.IN_STEP and sink.run_of("x") == 1)
            assert sink.run_of("ab") == 0


async def test_another_topic_is_told_as_soon_as_it_is_heard() -> None:
    there = url()
    async with (
        publishing(Publisher(there, topic=b"kv@pod@model")) as publisher,
        fed(EventSource(there, topic="kv"), Sink()) as feed,
    ):
        await publisher.subscribed()
        for _ in range(9):
            publisher.publish(letters().store("a", 0))
        await until(lambda: feed.state is FeedState.SILENT)
        assert feed.why == f"what arrives at {there} has other topics: 'kv@pod@model' instead of 'kv'"


async def test_an_engine_that_computes_and_says_nothing_is_silent_until_it_speaks() -> None:
    there = url()
    async with publishing(Publisher(there)) as publisher, fed(EventSource(there), Sink(), options=QUICK) as feed:
        feed.worked(5_000, took_s=0.1)  # before there was anybody to say so
        await publisher.subscribed()
        await until(lambda: str(feed.state) == "partial")
        feed.worked(2_000, took_s=0.1)
        assert str(feed.state) == "partial"  # too little to be sure
        feed.worked(2_000, took_s=0.1)
        await until(lambda: feed.state is FeedState.SILENT)
        assert "enabled" in str(feed.why)
        publisher.publish(letters().store("x", 0))
        await until(lambda: feed.state is FeedState.IN_STEP)
        feed.worked(9_000, took_s=60.0)  # what has just arrived may have been of that
        publisher.publish(letters().store("y", 0))
        await until(lambda: feed.counters.batches == 2)
        assert str(feed.state) == "in_step"


async def test_two_publishers_of_one_topic_at_one_address_are_told() -> None:
    there = url()
    async with (
        fed(EventSource(there, bind=True), Sink(), options=QUICK) as feed,
        publishing(Publisher(there, connects=True)) as first,
        publishing(Publisher(there, connects=True)) as second,
    ):
        await first.subscribed()
        await second.subscribed()
        await until(lambda: feed.state is FeedState.PARTIAL and feed.why is not None and "2 publishers" in feed.why)


async def test_sources_that_would_take_each_others_messages_are_refused() -> None:
    parts = parts_of(Sink())
    there = url()
    async with asyncio.TaskGroup() as group:
        sockets = group.create_task(parts.sockets.run())
        first = EventSource(there, topic="a")
        async with parts.sockets.subscribed(first, lambda: None) as inbox:
            for topic in ("a", ""):
                feed = Feed(EventSource(there, topic=topic), name="e", holder="h", mirror=mirror(), parts=parts)
                with pytest.raises(EventSourceInvalid, match="topic of its own"):
                    await feed.run()
            async with parts.sockets.subscribed(EventSource(there, topic="b"), lambda: None):
                assert inbox.connection.inboxes == 2
            assert inbox.connection.inboxes == 1
        sockets.cancel()


async def test_while_writes_wait_in_a_slow_index_the_feed_waits_too() -> None:
    there, replay = url(), url()
    sink = Sink(waiting=10_000)
    async with (
        publishing(Publisher(there, replay)) as publisher,
        fed(EventSource(there, replay), sink) as feed,
    ):
        publisher.publish(letters().store("ab", 0))
        await until(lambda: feed.mirror.blocks == 2 and sink.looks > 2)
        assert "observe" not in sink.asked
        sink.waiting = 0
        await until(lambda: sink.run_of("ab") == 2)
