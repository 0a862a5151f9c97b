"""Engines that are polled: each event comes once, so what is lost is cleared."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from prefix_index.errors import EventsUnavailable
from prefix_index.kv_events import PollDecoder, PolledBatch
from prefix_index.kv_events.catching_up import LOOP_SAFE_BYTES
from prefix_index.kv_events.feed_types import FeedOptions, FeedState
from prefix_index.kv_events.lease import LeaseOptions, Leases
from prefix_index.kv_events.polling import PolledCache, PollFeed
from prefix_index.redis_clients import connect
from prefix_index.types import Claim
from tests.prefix_index.door import Door
from tests.prefix_index.kv_events.feeding import HOLDER, Sink, letters, mirror, parts_of
from tests.prefix_index.kv_events.letters import name_of, tokens_of
from tests.until import until

QUICK = FeedOptions(poll_s=0.005, away_after_s=0.02, silent_after_s=0.02)
BLOCK = 16


class Engine:
    """Hands out its events, once."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.next_id = 0
        self.failure: Exception | None = None
        self.polls = 0

    async def poll(self) -> bytes:
        await asyncio.sleep(0)
        self.polls += 1
        if self.failure is not None:
            raise self.failure
        events, self.events = self.events, []
        return json.dumps(events).encode()

    def tell(self, data: dict[str, object], *, rank: int | None = None, lost: bool = False) -> None:
        event: dict[str, object] = {"event_id": self.next_id, "data": data}
        if rank is not None:
            event["attention_dp_rank"] = rank
        self.next_id += 1
        if not lost:
            self.events.append(event)


def stored(path: str, first: int = 0, level: int = 0) -> dict[str, object]:
    blocks = []
    for end in range(first + 1, len(path) + 1):
        packed = tokens_of(path[end - 1 : end], BLOCK)
        ids = [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]
        tokens = [{"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in ids]
        blocks.append(
            {"type": "stored_block", "block_hash": name_of(path[:end]), "tokens": tokens, "cache_level": level}
        )
    return {"type": "stored", "parent_hash": name_of(path[:first]) if first else None, "blocks": blocks}


def removed(path: str) -> dict[str, object]:
    return {"type": "removed", "block_hashes": [name_of(path)]}


CREATED: dict[str, object] = {"type": "created", "num_blocks_per_cache_level": [100, 0]}


@asynccontextmanager
async def polled(engine: Engine, sink: Sink, ranks: int = 1, options: FeedOptions = QUICK) -> AsyncIterator[PollFeed]:
    caches = {rank: PolledCache(HOLDER if not rank else f"{HOLDER}/{rank}", mirror()) for rank in range(ranks)}
    feed = PollFeed(engine.poll, name="engine", caches=caches, parts=parts_of(sink, options))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feed.run())
        try:
            yield feed
        finally:
            task.cancel()


async def test_what_an_engine_tells_from_its_beginning_is_all() -> None:
    engine, sink = Engine(), Sink()
    sink.observe(HOLDER, letters().chain("from an earlier life"), Claim.CONFIRMED)
    engine.tell(CREATED)
    engine.tell(stored("ab"))
    async with polled(engine, sink) as feed:
        await until(lambda: sink.run_of("ab") == 2)
        assert (feed.state, feed.why, sink.run_of("from an earlier life")) == (FeedState.IN_STEP, None, 0)
        engine.tell(removed("ab"))
        engine.tell(stored("ac", 1))
        await until(lambda: (sink.run_of("ab"), sink.run_of("ac")) == (1, 2))
    assert feed.state is FeedState.NOT_CONSUMER


async def test_lost_events_clear_the_holder() -> None:
    engine, sink = Engine(), Sink()
    engine.tell(CREATED)
    engine.tell(stored("ab"))
    async with polled(engine, sink) as feed:
        await until(lambda: sink.run_of("ab") == 2)
        engine.tell(removed("ab"), lost=True)
        engine.tell(stored("x"))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("ab") == 0
        assert feed.state is FeedState.PARTIAL
        assert "once" in str(feed.why)
        assert feed.counters[0].gaps == 1


async def test_a_restarted_engine_leaves_nothing_of_the_life_before_and_keeps_a_new_name() -> None:
    engine, sink = Engine(), Sink()
    engine.tell(CREATED)
    engine.tell(stored("ab"))
    async with polled(engine, sink) as feed:
        await until(lambda: sink.run_of("ab") == 2)
        engine.next_id = 0
        engine.tell(stored("x"))
        await until(lambda: sink.run_of("x") == 1)
        assert sink.run_of("ab") == 0
        assert (feed.state, feed.counters[0].restarts) == (FeedState.IN_STEP, 1)
        feed.resync({0: "engine@2"})
        await until(lambda: sink.run_of("x", "engine@2") == 1)
        assert sink.run_of("x") == 0


async def test_another_life_that_nobody_saw_begin_is_begun_anew() -> None:
    engine, sink = Engine(), Sink()
    engine.tell(CREATED)
    engine.tell(stored("ab"))
    async with polled(engine, sink) as feed:
        await until(lambda: sink.run_of("ab") == 2)
        feed.resync()
        await until(lambda: sink.run_of("ab") == 0)
        engine.tell(stored("x"))
        await until(lambda: sink.run_of("x") == 1)


async def test_ranks_are_caches_of_their_own() -> None:
    engine, sink = Engine(), Sink()
    for rank, path in ((0, "ab"), (1, "xyz"), (7, "q")):
        engine.next_id = 0
        engine.tell(stored(path), rank=rank)
    async with polled(engine, sink, ranks=2) as feed:
        await until(lambda: feed.skipped_events == 1)
        assert (sink.run_of("ab"), sink.run_of("xyz"), sink.run_of("xyz", f"{HOLDER}/1")) == (2, 0, 3)


async def test_an_engine_that_does_not_answer_is_away_until_it_does() -> None:
    engine, sink = Engine(), Sink()
    engine.failure = EventsUnavailable("503 from the engine")
    async with polled(engine, sink) as feed:
        await until(lambda: feed.state is FeedState.AWAY)
        assert feed.why == "KV events: 503 from the engine"
        engine.failure = TimeoutError()
        await until(lambda: feed.why == "TimeoutError")
        engine.failure = None
        engine.tell(stored("ab"))
        await until(lambda: sink.run_of("ab") == 2)
        assert str(feed.state) == "in_step"


async def test_an_answer_that_is_no_list_of_events_is_counted() -> None:
    engine, sink = Engine(), Sink()
    engine.tell(stored("ab"))

    async def poll() -> bytes:
        body = await engine.poll()
        return body if engine.polls != 2 else b"<html>"

    feed = PollFeed(poll, name="e", caches={0: PolledCache(HOLDER, mirror())}, parts=parts_of(sink, QUICK))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feed.run())
        await until(lambda: feed.malformed_answers == 1 and sink.run_of("ab") == 2)
        task.cancel()


async def test_an_engine_that_computes_and_has_no_events_is_silent() -> None:
    engine, sink = Engine(), Sink()
    async with polled(engine, sink) as feed:
        await until(lambda: feed.state is FeedState.PARTIAL)
        feed.worked(5_000, took_s=0.1)
        await until(lambda: feed.state is FeedState.SILENT)
        assert "event_buffer_max_size" in str(feed.why)


async def test_before_the_first_answer_nothing_is_known() -> None:
    engine, sink = Engine(), Sink()
    engine.failure = EventsUnavailable("503 from the engine")
    async with polled(engine, sink, options=FeedOptions(poll_s=0.005)) as feed:
        await until(lambda: engine.polls > 1)
        assert (feed.state, feed.why) == (FeedState.CONNECTING, None)


async def test_without_a_lease_nothing_is_polled(door: Door) -> None:
    engine, sink = Engine(), Sink()
    await door.choose_port()
    async with connect(door.url) as client, asyncio.TaskGroup() as group:
        leases = Leases(client, pool="polled", replica="r", options=LeaseOptions(renew_s=0.01))
        parts = replace(parts_of(sink, QUICK), leases=leases)
        feed = PollFeed(engine.poll, name="e", caches={0: PolledCache(HOLDER, mirror())}, parts=parts)
        tasks = [group.create_task(leases.run()), group.create_task(feed.run())]
        assert (feed.state, engine.polls) == (FeedState.NOT_CONSUMER, 0)
        await door.open()
        await until(lambda: engine.polls > 0)
        for task in tasks:
            task.cancel()


async def test_a_rank_that_was_not_seen_to_restart_is_begun_anew_under_its_other_name() -> None:
    engine, sink = Engine(), Sink()
    for rank, path in ((0, "ab"), (1, "xy")):
        engine.next_id = 0
        engine.tell(stored(path), rank=rank)
    async with polled(engine, sink, ranks=2) as feed:
        await until(lambda: sink.run_of("xy", f"{HOLDER}/1") == 2)
        engine.next_id = 0
        engine.tell(stored("c"), rank=0)  # its second rank has not spoken yet
        await until(lambda: sink.run_of("c") == 1)
        feed.resync({0: "engine@2", 1: "engine@2/1"})
        await until(lambda: sink.run_of("c", "engine@2") == 1)
        polls = engine.polls
        await until(lambda: engine.polls > polls)
        assert sink.run_of("xy", "engine@2/1") == 0


async def test_what_is_known_of_an_engine_that_no_longer_answers_is_not_told_under_another_name() -> None:
    engine, sink = Engine(), Sink()
    engine.tell(stored("ab"))
    async with polled(engine, sink) as feed:
        await until(lambda: sink.run_of("ab") == 2)
        engine.next_id = 0
        engine.tell(stored("x"))
        await until(lambda: sink.run_of("x") == 1)
        engine.failure = EventsUnavailable("503 from the engine")
        await until(lambda: feed.why is not None)
        feed.resync({0: "engine@2"})
        await until(lambda: sink.run_of("x") == 0)
        polls = engine.polls
        await until(lambda: engine.polls > polls)
        assert sink.run_of("x", "engine@2") == 0


async def test_a_long_answer_is_read_in_a_thread() -> None:
    threads: set[int] = set()

    class Decoder(PollDecoder):
        def decode_poll(self, body: bytes) -> tuple[PolledBatch, ...]:
            if len(body) > LOOP_SAFE_BYTES:
                threads.add(threading.get_ident())
            return super().decode_poll(body)

    engine, sink = Engine(), Sink()
    engine.tell(stored("ab" * 100))
    caches = {0: PolledCache(HOLDER, mirror())}
    feed = PollFeed(engine.poll, name="e", caches=caches, parts=parts_of(sink, QUICK), decoder=Decoder())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(feed.run())
        await until(lambda: sink.run_of("ab" * 100) == 200)
        task.cancel()
    assert threads
    assert threading.get_ident() not in threads
