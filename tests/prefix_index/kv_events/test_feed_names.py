"""Holders that get another name while nothing can be replayed: nothing of a dead process is told under it."""

from functools import partial

from prefix_index.kv_events.feed import Feed
from prefix_index.kv_events.sources import EventSource
from tests.prefix_index.kv_events.feeding import Sink, fed, letters, speaking_until, urls
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.until import until


async def named(feed: Feed, holder: str) -> None:
    """The holder gets another name, and the feed has done with it."""
    resyncs = feed.counters.resyncs
    feed.resync(holder)
    await until(lambda: feed.counters.resyncs > resyncs and feed.is_idle)


async def test_a_name_given_before_the_next_process_is_heard_has_nothing_of_the_last_one() -> None:
    url, _ = urls()
    sink = Sink()
    async with publishing(Publisher(url)) as publisher, fed(EventSource(url), sink) as feed:
        await publisher.subscribed()
        publisher.publish(letters().store("abc", 0))
        await until(lambda: sink.run_of("abc") == 3)
        for life in range(2, 4):
            holder = f"engine@{life}"
            await publisher.die()
            await until(lambda: not connected(feed))
            await named(feed, holder)
            assert (sink.run_of("abc", holder), sink.run_of("xyz", holder)) == (0, 0)
            await publisher.restart()
            await publisher.subscribed()
            await speaking_until(
                publisher,
                lambda: letters().store("xyz", 0),
                partial(lambda name: sink.run_of("xyz", name) == 3, holder),
            )


async def test_another_engines_coming_is_no_sign_of_a_restart() -> None:
    url, _ = urls()
    sink = Sink()
    one, other = EventSource(url, topic="a", bind=True), EventSource(url, topic="b", bind=True)
    async with (
        fed(one, sink, others=[other]) as feed,
        publishing(Publisher(url, topic=b"a", connects=True)) as first,
    ):
        await first.subscribed()
        first.publish(letters().store("abc", 0))
        await until(lambda: sink.run_of("abc") == 3)
        async with publishing(Publisher(url, topic=b"b", connects=True)) as second:
            await second.subscribed()
            second.publish(letters().store("xy", 0))
            await until(lambda: sink.run_of("xy", "other") == 2)
            await first.restart()
            await first.subscribed()
            await named(feed, "engine@2")
            assert (sink.run_of("abc"), sink.run_of("abc", "engine@2")) == (0, 0)


def connected(feed: Feed) -> bool:
    assert feed._inbox is not None
    return feed._inbox.connection.publishers > 0
