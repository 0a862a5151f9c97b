"""A feed and a publisher on real sockets: whatever gets lost between them, the index claims what the engine has."""

import pytest

from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.sources import EventSource
from tests.prefix_index.kv_events.feeding import Sink, fed, letters, until
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.prefix_index.servers import free_ports


def urls() -> tuple[str, str]:
    live, replay = free_ports(2)
    return f"tcp://127.0.0.1:{live}", f"tcp://127.0.0.1:{replay}"


@pytest.mark.parametrize("is_old", [False, True])
async def test_who_comes_late_learns_everything_by_a_replay(is_old: bool) -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url, is_old=is_old)) as publisher:
        publisher.publish(engine.store("abc", 0))
        publisher.publish(engine.store("abcd", 3), engine.store("x", 0))
        async with fed(EventSource(url, replay_url), sink) as feed:
            await until(lambda: feed.state is FeedState.IN_STEP)
            assert (sink.run_of("abcd"), sink.run_of("x")) == (4, 1)
            assert sink.asked == ["clear", "observe", "observe"]
            publisher.publish(engine.remove("abcd"))
            await until(lambda: sink.run_of("abcd") == 3)
        assert publisher.asked == [0]
