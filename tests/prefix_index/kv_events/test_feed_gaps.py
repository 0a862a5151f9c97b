"""Messages that are lost, repeated, out of order or unreadable, and the replays that make up for them."""

import asyncio
from dataclasses import replace

import pytest
import uvloop

from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.sources import EventSource
from tests.prefix_index.kv_events.feeding import QUICK_REPLAY, Sink, fed, letters, speaking_until, urls
from tests.prefix_index.kv_events.publisher import Publisher, payload_of, publishing
from tests.until import until


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


async def test_a_lost_message_is_fetched_and_nothing_is_cleared() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        publisher.publish(engine.store("abc", 2), lost=True)
        publisher.publish(engine.remove("abc"), engine.store("x", 0), lost=True)
        publisher.publish(engine.store("abd", 2))
        await until(lambda: sink.run_of("abd") == 3)
        assert (sink.run_of("abc"), sink.run_of("x")) == (2, 1)
        assert feed.counters.gaps == 1
        assert sink.asked.count("clear") == 1  # that of the beginning
        assert feed.state is FeedState.IN_STEP


async def test_a_replay_whose_buffer_is_too_short_clears_and_goes_on_from_what_there_is() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with (
        publishing(Publisher(url, replay_url, keeps=2)) as publisher,
        fed(EventSource(url, replay_url), sink) as feed,
    ):
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.publish(engine.remove("ab"), lost=True)
        publisher.publish(engine.store("xy", 0), lost=True)
        publisher.publish(engine.store("xyz", 2))
        await until(lambda: sink.run_of("xyz") == 3)
        assert sink.run_of("ab") == 0
        assert feed.state is FeedState.PARTIAL


async def test_a_gap_without_a_replay_clears_the_holder() -> None:
    url, _ = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url)) as publisher, fed(EventSource(url), sink) as feed:
        await publisher.subscribed()
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.publish(engine.remove("ab"), lost=True)
        publisher.publish(engine.store("x", 0))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("ab") == 0
        assert feed.state is FeedState.PARTIAL


async def test_a_replay_that_nobody_answers_is_asked_for_again_until_it_is() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url, answers_left=0)) as publisher:
        publisher.publish(engine.store("ab", 0))
        async with fed(EventSource(url, replay_url), sink, options=QUICK_REPLAY) as feed:
            await until(lambda: feed.state is FeedState.PARTIAL)
            publisher.publish(engine.store("x", 0))
            await until(lambda: sink.run_of("x") == 1)
            assert sink.run_of("ab") == 0
            await until(lambda: len(publisher.asked) >= 3)
            publisher.answers_left = 1
            await until(lambda: feed.state is FeedState.IN_STEP)
            assert (sink.run_of("ab"), sink.run_of("x")) == (2, 1)


async def test_a_replay_that_comes_late_and_is_short_changes_nothing() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url, keeps=1, answers_left=0)) as publisher:
        publisher.publish(engine.store("ab", 0))
        async with fed(EventSource(url, replay_url), sink, options=QUICK_REPLAY) as feed:
            await publisher.subscribed()
            publisher.publish(engine.store("xy", 0))
            publisher.publish(engine.store("xyz", 2))
            await until(lambda: sink.run_of("xyz") == 3)
            publisher.answers_left = 1
            await until(lambda: publisher.answers_left == 0)
            publisher.publish(engine.store("q", 0))
            await until(lambda: sink.run_of("q") == 1)
            assert (sink.run_of("xyz"), sink.run_of("ab"), feed.state) == (3, 0, FeedState.PARTIAL)


async def test_a_new_process_that_does_not_answer_either_is_followed_from_where_it_is() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with (
        publishing(Publisher(url, replay_url)) as publisher,
        fed(EventSource(url, replay_url), sink, options=QUICK_REPLAY) as feed,
    ):
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.answers_left = 1  # "nothing yet", and then no more
        await publisher.restart()
        await until(lambda: sink.run_of("ab") == 0)
        await publisher.subscribed()
        await speaking_until(publisher, lambda: engine.store("z", 0), lambda: sink.run_of("z") == 1)


async def test_a_number_that_no_replay_explains_loses_what_was_known() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.send(7, payload_of([engine.store("x", 0)]))
        await until(lambda: sink.run_of("x") == 1)
        assert (sink.run_of("ab"), feed.expected_sequence, feed.counters.gaps) == (0, 8, 2)


async def test_what_piles_up_is_taken_turn_by_turn() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    prompt = "abcdefghij" * 20
    async with (
        publishing(Publisher(url, replay_url, answers_left=0)) as publisher,
        fed(EventSource(url, replay_url), sink, options=replace(QUICK_REPLAY, turn_s=60.0)),
    ):
        await publisher.subscribed()
        await until(lambda: publisher.asked)
        for end in range(len(prompt)):
            publisher.publish(engine.store(prompt[: end + 1], end))
        await until(lambda: sink.run_of(prompt) == len(prompt))
        assert sink.asked.count("observe") < len(prompt)


async def test_numbers_that_the_engine_itself_lost_are_passed_over_as_lost() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.publish(engine.remove("ab"), lost=True)
        del publisher.buffer[-1]
        publisher.publish(engine.store("x", 0))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("ab") == 0
        assert feed.state is FeedState.PARTIAL


async def test_second_copies_and_messages_out_of_order_do_no_harm() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        publisher.send_again(0)
        publisher.publish(engine.store("abc", 2), lost=True)
        publisher.publish(engine.remove("abc"))
        publisher.send_again(1)
        publisher.publish(engine.store("x", 0))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("abc") == 2
        assert feed.state is FeedState.IN_STEP


async def test_a_message_that_cannot_be_read_loses_what_was_known_and_no_more() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        publisher.publish(payload=b"\xc1 no msgpack")
        publisher.publish(engine.store("x", 0))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("ab") == 0
        assert (feed.state, feed.counters.malformed) == (FeedState.PARTIAL, 1)
        publisher.publish(engine.store("xy", 1), lost=True)
        publisher.publish(engine.store("xyz", 2))
        await until(lambda: sink.run_of("xyz") == 3)


async def test_messages_that_are_none_are_dropped() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.send_frames([b""])
        publisher.send_frames([b"", b"short", b""])
        publisher.publish(engine.store("x", 0))
        await until(lambda: sink.run_of("x") == 1)
        assert feed.dropped_messages == 2


def test_replays_work_on_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_who_comes_late_learns_everything_by_a_replay(is_old=False))
        runner.run(test_a_lost_message_is_fetched_and_nothing_is_cleared())
