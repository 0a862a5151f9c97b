"""A feed and a publisher on real sockets: whatever gets lost between them, the index claims what the engine has."""

import asyncio
import logging

import pytest
import uvloop

from prefix_index.kv_events import Cleared, Message, Observe, decode_batch
from prefix_index.kv_events.feed_types import FeedState
from prefix_index.kv_events.sources import EventSource
from prefix_index.types import Claim
from tests.prefix_index.kv_events.captures import frames_of
from tests.prefix_index.kv_events.feeding import HOLDER, Sink, fed, letters, mirror, speaking_until, urls
from tests.prefix_index.kv_events.publisher import Publisher, publishing
from tests.until import until


async def test_an_engine_that_connects_to_us_is_heard() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with (
        fed(EventSource(url, replay_url, bind=True), sink) as feed,
        publishing(Publisher(url, replay_url, connects=True)) as publisher,
    ):
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        assert feed.counters.gaps == 0


async def test_without_a_replay_what_was_stored_before_stays_unknown_and_what_comes_is_known() -> None:
    url, _ = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url)) as publisher:
        publisher.publish(engine.store("ab", 0), lost=True)
        async with fed(EventSource(url), sink) as feed:
            await publisher.subscribed()
            publisher.publish(engine.store("abc", 2), engine.store("xy", 0))
            await until(lambda: sink.run_of("xy") == 2)
            assert str(feed.state) == "partial"
            assert "replay_endpoint" in str(feed.why)
            assert feed.mirror.orphans == 1
            assert sink.run_of("abc") == 0
            publisher.publish(Cleared(), engine.store("ab", 0))
            await until(lambda: sink.run_of("ab") == 2)
            assert feed.state is FeedState.IN_STEP
            assert sink.run_of("xy") == 0


async def test_who_hears_the_first_message_knows_everything_without_a_replay() -> None:
    url, _ = urls()
    engine, sink = letters(), Sink()
    sink.observe(HOLDER, engine.chain("from an earlier life"), Claim.CONFIRMED)
    async with publishing(Publisher(url)) as publisher, fed(EventSource(url), sink) as feed:
        await publisher.subscribed()
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        assert feed.state is FeedState.IN_STEP
        assert sink.run_of("from an earlier life") == 0


@pytest.mark.parametrize("has_replay", [True, False])
async def test_a_restart_leaves_nothing_of_the_life_before(has_replay: bool) -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    source = EventSource(url, replay_url if has_replay else None)
    async with (
        publishing(Publisher(url, replay_url if has_replay else None)) as publisher,
        fed(source, sink) as feed,
    ):
        await publisher.subscribed()
        publisher.publish(engine.store("ab", 0))
        publisher.publish(engine.store("cd", 0))
        await until(lambda: sink.run_of("cd") == 2)
        await publisher.restart()
        # As many batches as before, so that the numbers alone would fit.
        publisher.publish(engine.store("x", 0), lost=True)
        publisher.publish(engine.store("xy", 1), lost=True)
        await publisher.subscribed()
        await speaking_until(publisher, lambda: engine.store("z", 0), lambda: sink.run_of("z") == 1)
        assert (sink.run_of("ab"), sink.run_of("cd")) == (0, 0)
        assert sink.run_of("xy") == (2 if has_replay else 0)
        assert feed.state is (FeedState.IN_STEP if has_replay else FeedState.PARTIAL)


async def test_a_broken_connection_to_the_same_engine_costs_nothing() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with (
        fed(EventSource(url, replay_url, bind=True), sink) as feed,
        publishing(Publisher(url, replay_url, connects=True, keeps=2)) as publisher,
    ):
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        publisher.publish(engine.store("abc", 2))
        await until(lambda: sink.run_of("abc") == 3)
        await publisher.subscribed()
        publisher.hang_up()
        await publisher.subscribed()
        publisher.publish(engine.store("abcd", 3))
        await until(lambda: sink.run_of("abcd") == 4)
        assert feed.counters.resyncs == 2
        assert feed.state is FeedState.IN_STEP  # though the buffer no longer has what it began with
        assert sink.asked.count("clear") == 1


async def test_a_batch_of_many_blocks_is_taken_in_pieces() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    prompt = "abcdefghij" * 200
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store(prompt, 0))
        await until(lambda: sink.run_of(prompt) == len(prompt))
        assert feed.mirror.blocks == len(prompt)


async def test_what_many_batches_said_is_told_as_their_sum() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    prompt = "abcdefghijklmnopqrst".replace("m", "M")
    async with publishing(Publisher(url, replay_url)) as publisher:
        for end in range(len(prompt)):
            publisher.publish(engine.store(prompt[: end + 1], end))
        async with fed(EventSource(url, replay_url), sink) as feed:
            await until(lambda: feed.state is FeedState.IN_STEP)
            await until(lambda: "observe" in sink.asked)
            assert sink.asked == ["clear", "observe"]


async def test_what_the_index_has_lost_is_told_again() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        publisher.publish(engine.store("ab", 0), engine.store("xyz", 0))
        await until(lambda: sink.run_of("xyz") == 3)
        publisher.publish(engine.remove("xyz"))
        await until(lambda: sink.run_of("xyz") == 2)
        resyncs = feed.counters.resyncs
        sink.index.clear(HOLDER)
        sink.losses += 1
        await until(lambda: (sink.run_of("ab"), sink.run_of("xyz")) == (2, 2))
        assert feed.counters.resyncs == resyncs, "the engine is not asked again for what is known"
        assert feed.state is FeedState.IN_STEP


async def test_another_name_for_the_holder_takes_everything_along() -> None:
    url, replay_url = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url, replay_url)) as publisher, fed(EventSource(url, replay_url), sink) as feed:
        await until(lambda: feed.state is FeedState.IN_STEP)
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        feed.resync("engine@2")
        assert feed.holder == "engine@2"
        await until(lambda: sink.run_of("ab", "engine@2") == 2)
        assert sink.run_of("ab") == 0


@pytest.mark.parametrize("restarts", [True, False])
async def test_another_name_without_a_replay_keeps_what_is_known_of_a_process_that_was_seen_to_come(
    restarts: bool,
) -> None:
    url, _ = urls()
    engine, sink = letters(), Sink()
    async with publishing(Publisher(url)) as publisher, fed(EventSource(url), sink) as feed:
        await publisher.subscribed()
        publisher.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        if restarts:
            await publisher.restart()
            await publisher.subscribed()
            await speaking_until(publisher, lambda: engine.store("xy", 0), lambda: sink.run_of("xy") == 2)
            feed.resync("engine@2")
            await until(lambda: sink.run_of("xy", "engine@2") == 2)
        else:
            feed.resync("engine@2")
            await until(lambda: feed.state is FeedState.PARTIAL)
        assert (sink.run_of("ab"), sink.run_of("ab", "engine@2")) == (0, 0)


async def test_two_engines_at_one_address_are_told_apart_by_topic() -> None:
    url, _ = urls()
    engine, other, sink = letters(), letters(), Sink()
    async with (
        fed(EventSource(url, topic="a", bind=True), sink, others=[EventSource(url, topic="b", bind=True)]) as feed,
        publishing(Publisher(url, topic=b"a", connects=True)) as first,
    ):
        await first.subscribed()
        first.publish(engine.store("ab", 0))
        await until(lambda: sink.run_of("ab") == 2)
        async with publishing(Publisher(url, topic=b"b", connects=True)) as second:
            await second.subscribed()
            second.publish(other.store("xy", 0))
            await until(lambda: sink.run_of("xy", "other") == 2)
            first.publish(engine.store("abc", 2))
            await until(lambda: sink.run_of("abc") == 3)
        # Nothing was lost by the other one's coming and going.
        assert (sink.run_of("xy"), feed.counters.gaps, feed.counters.resyncs) == (0, 0, 1)


async def test_what_a_real_engine_published_is_followed() -> None:
    url, _ = urls()
    recorded = [Message.from_frames(frames) for frames in frames_of("kv-events")]
    oracle = mirror()
    expected = [
        change
        for message in recorded
        for change in oracle.apply(decode_batch(message.payload).events)
        if isinstance(change, Observe)
    ]
    sink = Sink()
    async with (
        publishing(Publisher(url, topic=b"kv-events")) as publisher,
        fed(EventSource(url, topic="kv-events"), sink) as feed,
    ):
        await publisher.subscribed()
        for message in recorded:
            publisher.send(message.sequence, message.payload)
        await until(lambda: feed.counters.batches == len(recorded))
        assert expected
        for change in expected:
            assert sink.index.match(change.chain).blocks == {HOLDER: len(change.chain)}
        assert feed.counters.lag_s is not None


async def test_states_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    url, replay_url = urls()
    with caplog.at_level(logging.INFO, "prefix_index"):
        async with (
            publishing(Publisher(url, replay_url)) as publisher,
            fed(EventSource(url, replay_url), Sink()) as feed,
        ):
            await until(lambda: feed.state is FeedState.IN_STEP)
            publisher.publish(letters().store("x", 0))
            await until(lambda: feed.expected_sequence == 1)
    assert caplog.messages.count("KV events of engine: in_step") == 1


def test_following_works_on_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_an_engine_that_connects_to_us_is_heard())
        runner.run(test_a_restart_leaves_nothing_of_the_life_before(has_replay=True))
