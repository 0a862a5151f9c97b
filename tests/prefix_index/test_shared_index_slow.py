"""The shared index while Redis is slow: nobody waits longer than the deadline, and nothing piles up."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_clients import connect_one
from prefix_index.shared_index import SharedIndex
from prefix_index.types import DegradedReason
from tests.prefix_index.busy import busy_loop
from tests.prefix_index.door import Door
from tests.prefix_index.replicas import match_until, running
from tests.prefix_index.subjects import chain
from tests.until import until

OPTIONS = SharedIndexOptions(deadline_s=0.2, write_deadline_s=60.0, probe_every_s=0.01, heartbeat_s=60.0)
"""Writes are patient here, so that only matches say anything about Redis."""


@asynccontextmanager
async def an_index_that_knows_xxx(door: Door, options: SharedIndexOptions = OPTIONS) -> AsyncIterator[SharedIndex]:
    await door.open()
    async with (
        connect_one(door.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=options)) as index,
    ):
        index.observe("a", chain("xxx"))
        await until(lambda: not index.queued_writes)
        await until_redis_answers(index)
        yield index


async def until_redis_answers(index: SharedIndex) -> None:
    """Until a match was answered by Redis itself."""

    async def answered() -> bool:
        before = index.stand_in_matches
        return (await index.match(chain("xxx"))).blocks == {"a": 3} and index.stand_in_matches == before

    await until(answered)


async def until_lanes_are_free(index: SharedIndex) -> None:
    """Until no call is under way."""
    (shard,) = index._shards
    assert shard._remote is not None
    tracks = shard._remote._link._carrier._tracks.values()
    await until(lambda: not any(track.lane and track.lane.under_way for pair in tracks for track in pair))


async def test_redis_slow_once_is_answered_by_the_twin_and_redis_is_asked_again(door: Door) -> None:
    async with an_index_that_knows_xxx(door) as index:
        connections, before = door.entered, index.stand_in_matches
        door.hold()
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        assert index.stand_in_matches == before + 1
        assert index.degraded_reason is None
        door.release()
        await until_lanes_are_free(index)
        await until_redis_answers(index)
        assert door.entered == connections


async def test_redis_slow_for_all_at_once_is_one_lateness(door: Door) -> None:
    async with an_index_that_knows_xxx(door) as index:
        door.hold()
        found = await asyncio.gather(*(index.match(chain("xxx")) for _ in range(50)))
        assert [match.blocks for match in found] == [{"a": 3}] * 50
        assert index.degraded_reason is None
        door.release()
        await until_redis_answers(index)


async def test_a_busy_process_does_not_take_redis_for_slow_nor_keeps_writes_back(server_url: str) -> None:
    options = SharedIndexOptions(deadline_s=0.005)
    async with (
        connect_one(server_url) as client,
        running(SharedIndex(client, pool="busy", replica="r", options=options)) as index,
    ):
        index.observe("a", chain("xxx"))
        await until(lambda: not index.queued_writes)
        await until_redis_answers(index)
        before = index.stand_in_matches
        async with busy_loop():
            for turn in range(4, 18):
                index.observe("a", chain("x" * turn))
                found = await asyncio.gather(*(index.match(chain("x" * turn)) for _ in range(5)))
                assert [match.blocks for match in found] == [{"a": turn}] * 5
            await until(lambda: not index.queued_writes)
        assert (index.stand_in_matches - before, index.dropped_writes) == (0, 0)
        assert index.degraded_reason is None


async def test_redis_slow_for_long_is_not_asked_until_it_answers_in_time(door: Door) -> None:
    async with an_index_that_knows_xxx(door) as index:
        door.hold()
        async with asyncio.timeout(10):
            while index.degraded_reason is None:
                assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        assert index.degraded_reason is DegradedReason.TIMEOUT
        requests = door.passed_bytes
        for _ in range(50):
            assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        assert door.passed_bytes - requests < 50 * 8, "matches still go to a Redis that is late"
        door.release()
        await until(lambda: index.degraded_reason is None)
        await until_redis_answers(index)


async def test_redis_slow_opens_no_further_connections_however_many_ask(door: Door) -> None:
    async with an_index_that_knows_xxx(door) as index:
        connections = door.entered
        for _ in range(20):
            door.hold()
            await asyncio.gather(*(index.match(chain("xxx")) for _ in range(20)))
            door.release()
            await until_redis_answers(index)
        assert door.entered == connections


async def test_redis_slow_has_a_bounded_number_of_matches_waiting_for_it(door: Door) -> None:
    options = SharedIndexOptions(deadline_s=60.0, write_deadline_s=60.0, heartbeat_s=60.0, max_matches_in_flight=10)
    async with an_index_that_knows_xxx(door, options) as index, asyncio.TaskGroup() as group:
        door.hold()
        before = index.stand_in_matches
        waiting = [group.create_task(index.match(chain("xxx"))) for _ in range(100)]
        await until(lambda: sum(task.done() for task in waiting) >= 90)
        assert index.stand_in_matches >= before + 90, "the first probes may be among those that wait"
        door.release()


async def test_redis_slow_to_take_writes_keeps_them_and_is_not_in_use(door: Door) -> None:
    options = SharedIndexOptions(deadline_s=0.2, write_deadline_s=0.2, probe_every_s=0.01, heartbeat_s=60.0)
    async with an_index_that_knows_xxx(door, options) as index:
        door.hold()
        index.observe("b", chain("xx"))
        await until(lambda: index.degraded_reason is DegradedReason.TIMEOUT)
        await until(lambda: index.queued_writes == 1)  # between two probes that try to send it
        door.release()
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 2})
        await until(lambda: index.degraded_reason is None)
        assert index.dropped_writes == 0


async def test_redis_slow_leaves_no_reply_of_a_cancelled_call_for_the_next_one(door: Door) -> None:
    await door.open()
    async with connect_one(door.url) as client:

        async def echo(text: str) -> bytes:
            return cast(bytes, await client.echo(text))

        for number in range(30):
            assert await echo(f"before {number}") == f"before {number}".encode()
            door.hold()
            async with asyncio.TaskGroup() as group:
                cancelled = group.create_task(echo(f"cancelled {number}"))
                await until(lambda: door.held)
                cancelled.cancel()
            door.release()
            async with asyncio.TaskGroup() as group:
                answers = [group.create_task(echo(f"{number} {again}")) for again in range(5)]
            assert [answer.result() for answer in answers] == [f"{number} {again}".encode() for again in range(5)]
