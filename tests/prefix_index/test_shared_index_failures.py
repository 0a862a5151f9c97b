"""The shared index while Redis is not well: late, away, refusing, talking nonsense, or with its memory gone."""

import asyncio
import logging

import pytest

from prefix_index.embedded import EmbeddedServer
from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_clients import connect_one
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import Call, pool_keys
from prefix_index.shared_index import SharedIndex
from prefix_index.types import DegradedReason, Load
from tests.prefix_index.door import WITHIN_S, Door
from tests.prefix_index.replicas import PATIENT, match_until, running
from tests.prefix_index.subjects import chain
from tests.until import until

DEADLINE_S = 0.2
OPTIONS = SharedIndexOptions(deadline_s=DEADLINE_S, write_deadline_s=0.5, probe_every_s=0.05, load_interval_s=0.005)


async def test_redis_down_at_the_start_is_stood_in_for_and_may_come_later(door: Door) -> None:
    await door.choose_port()
    async with (
        connect_one(door.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=OPTIONS)) as index,
    ):
        index.observe("a", chain("xxx"))
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        await until(lambda: index.degraded_reason is DegradedReason.UNREACHABLE)
        await door.open()
        await until(lambda: index.degraded_reason is None and index.queued_writes == 0)
        before = index.stand_in_matches
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
        assert index.stand_in_matches == before
        assert index.dropped_writes == 0


@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n", b":1\r\n" * 8]
)
async def test_nonsense_from_the_port_is_answered_by_the_twin(door: Door, nonsense: bytes) -> None:
    await door.babble(nonsense)
    async with (
        connect_one(door.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=OPTIONS)) as index,
    ):
        index.observe("a", chain("xx"))
        await until(lambda: index.degraded_reason)
        assert (await index.match(chain("xx"))).blocks == {"a": 2}
        assert index.degraded_reason in (DegradedReason.BAD_ANSWER, DegradedReason.UNREACHABLE)
        await door.open()
        await until(lambda: index.degraded_reason is None)


async def test_a_redis_that_takes_no_writes_is_not_in_use_until_it_does(server: EmbeddedServer) -> None:
    async with (
        connect_one(server.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=OPTIONS)) as index,
    ):
        index.observe("a", chain("xx"))
        await match_until(index, "xx", lambda found: found.blocks == {"a": 2} and not index.queued_writes)
        await client.slaveof("127.0.0.1", 1)
        index.observe("a", chain("xxx"))
        await until(lambda: index.degraded_reason is DegradedReason.REFUSED)
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        await client.slaveof()
        await until(lambda: index.degraded_reason is None and not index.queued_writes)
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})


async def test_redis_flush_empties_the_index_and_traffic_fills_it_again(server: EmbeddedServer) -> None:
    async with (
        connect_one(server.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=PATIENT)) as index,
    ):
        index.observe("a", chain("xxx"))
        index.clear("a")
        index.observe("a", chain("xx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 2} and not index.queued_writes)
        await client.flushall()
        await client.function_flush()
        await match_until(index, "xxx", lambda found: found.blocks == {})
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3})
        assert index.degraded_reason is None
        assert index.dropped_writes == 0


async def test_another_server_behind_the_same_address_is_taken_as_it_is(door: Door) -> None:
    await door.open()
    async with (
        connect_one(door.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=OPTIONS)) as index,
    ):
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3} and not index.queued_writes)
        async with EmbeddedServer() as successor:
            door.server_url = successor.url
            await door.open()
            index.observe("b", chain("xx"))
            async with asyncio.timeout(WITHIN_S):
                while (await index.match(chain("xxx"))).blocks != {"b": 2} or index.degraded_reason is not None:
                    index.observe("b", chain("xx"))
                    await asyncio.sleep(0.002)
            await door.shut()


async def test_while_redis_is_away_writes_are_bounded_and_their_loss_is_loud_once(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    await door.choose_port()
    options = SharedIndexOptions(deadline_s=DEADLINE_S, probe_every_s=0.05, max_queued_writes=100)
    async with (
        connect_one(door.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=options)) as index,
    ):
        await until(lambda: index.degraded_reason)
        with caplog.at_level(logging.WARNING, logger="prefix_index"):
            for number in range(1000):
                index.observe("a" if number % 2 else "b", chain(f"x{number}"))
        assert index.queued_writes == 100
        assert index.dropped_writes > 700
        assert len([record for record in caplog.records if "dropped" in record.message]) == 1
        index.forget("a", chain("x"), 0)
        await door.open()
        await until(lambda: index.degraded_reason is None and not index.queued_writes)
        found = await match_until(index, "x", lambda found: found.blocks)
        assert found.blocks == {"b": 1}


async def test_loads_last_heard_count_for_a_while_after_redis_went(door: Door) -> None:
    await door.open()
    options = SharedIndexOptions(deadline_s=DEADLINE_S, stale_after_s=0.5, heartbeat_s=0.02, probe_every_s=0.05)
    async with connect_one(door.url) as client, connect_one(door.server_url) as direct:
        other = SharedIndex(direct, pool="p", replica="other", options=PATIENT)
        async with running(other), running(SharedIndex(client, pool="p", replica="r", options=options)) as index:
            other.set_load("a", Load(1, 2, 3))
            await match_until(index, "x", lambda found: found.loads == {"a": Load(1, 2, 3)})
            await door.shut()
            await until(lambda: index.degraded_reason)
            assert (await index.match(chain("x"))).loads == {"a": Load(1, 2, 3)}
            await match_until(index, "x", lambda found: found.loads == {})


async def test_a_write_that_redis_alone_refuses_is_counted_and_holds_nobody_up(
    server: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        connect_one(server.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=PATIENT)) as index,
    ):
        for number in range(2054):
            index.observe(f"e{number}", chain("x"))
        await until(lambda: not index.queued_writes and index.dropped_writes)
        assert len((await match_until(index, "x", lambda found: len(found.blocks) >= 2048)).blocks) == 2048
        assert index.dropped_writes == 6
        assert "PGFULL" in caplog.text


async def test_an_ending_refused_by_a_server_that_is_deposed_in_the_midst_of_a_pipeline_is_not_lost(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect_one(server.url) as client, connect_one(server.url) as operator:
        whole = RedisRadix.send
        refused: list[object] = []

        async def in_two_parts(remote: RedisRadix, calls: list[Call], within_s: float | None = None) -> list[object]:
            if len(calls) < 4:
                return await whole(remote, calls)
            monkeypatch.setattr(RedisRadix, "send", whole)
            replies = await whole(remote, calls[:2])
            await operator.slaveof("127.0.0.1", 1)
            refused.extend(await whole(remote, calls[2:3]))
            await operator.slaveof()
            replies += [*refused, *await whole(remote, calls[3:])]
            await operator.slaveof("127.0.0.1", 1)
            return replies

        monkeypatch.setattr(RedisRadix, "send", in_two_parts)
        async with running(SharedIndex(client, pool="p", replica="r", options=OPTIONS)) as index:
            await until(lambda: index.degraded_reason is None)
            for holder in "abc":
                index.observe(holder, chain("xx"))
            index.clear("b")
            index.observe("b", chain("x"))
            index.clear("a")
            index.observe("a", chain("y"))
            await until(lambda: index.degraded_reason is DegradedReason.REFUSED)
            assert refused
            assert index.queued_writes == 5
            await operator.slaveof()
            await until(lambda: index.degraded_reason is None and not index.queued_writes)
            assert (await index.match(chain("xx"))).blocks == {"b": 1, "c": 2}
            assert (await index.match(chain("y"))).blocks == {"a": 1}
            assert index.dropped_writes == 0


async def test_a_server_without_memory_takes_no_observations_but_every_loss_and_ending(server: EmbeddedServer) -> None:
    async with (
        connect_one(server.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=PATIENT)) as index,
    ):
        index.observe("a", chain("xxx"))
        index.observe("b", chain("xxx"))
        await match_until(index, "xxx", lambda found: len(found.blocks) == 2 and not index.queued_writes)
        await index.match(chain("xxx"))  # hears of the pool's birth, which counts too
        before = index.losses_of("a")
        await client.config_set("maxmemory", 1)
        index.observe("c", chain("xxx"))
        index.forget("a", chain("xxx"), 1)
        index.clear("b")
        index.set_load("a", Load(1, 2, 3))
        await until(lambda: not index.queued_writes)
        assert (await match_until(index, "xxx", lambda found: found.loads)).blocks == {"a": 1}
        assert index.dropped_writes == 1
        assert index.losses_of("a") == before + 1
        assert index.degraded_reason is None
        await client.config_set("maxmemory", 0)
        other = SharedIndex(client, pool="p", replica="other", options=PATIENT)
        async with running(other):
            await match_until(other, "x", lambda found: found.loads == {"a": Load(1, 2, 3)})


async def test_an_observation_that_fails_over_what_is_stored_is_dropped_and_holds_nobody_up(
    server: EmbeddedServer,
) -> None:
    async with (
        connect_one(server.url) as client,
        running(SharedIndex(client, pool="p", replica="r", options=PATIENT)) as index,
    ):
        index.observe("a", chain("xxx"))
        await match_until(index, "xxx", lambda found: found.blocks and not index.queued_writes)
        await client.hset(pool_keys("p")[0].decode(), chain("x").hashes, b"")
        index.observe("a", chain("xxxx"))
        index.observe("b", chain("y"))
        await until(lambda: not index.queued_writes)
        assert (await index.match(chain("y"))).blocks == {"b": 1}
        assert index.dropped_writes == 1


async def test_draining_gives_up_in_time_when_redis_is_away(door: Door) -> None:
    await door.stall()
    async with connect_one(door.url) as client:
        index = SharedIndex(client, pool="p", replica="r", options=OPTIONS)
        index.observe("a", chain("x"))
        async with asyncio.timeout(5):
            await index.drain(within_s=0.05)
        assert index.queued_writes == 1
        (shard,) = index._shards
        shard._breaker.open(DegradedReason.TIMEOUT)
        await index.drain()
        assert index.queued_writes == 1


async def test_a_cancelled_match_stays_cancelled(door: Door) -> None:
    await door.stall()
    async with connect_one(door.url) as client:
        index = SharedIndex(client, pool="p", replica="r", options=OPTIONS)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(index.match(chain("x")))
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert index.degraded_reason is None


async def test_writes_in_flight_when_run_is_cancelled_are_drained(door: Door) -> None:
    await door.stall()
    async with connect_one(door.url) as client:
        index = SharedIndex(client, pool="p", replica="r", options=PATIENT)
        index.observe("a", chain("xxx"))
        async with running(index):
            await until(lambda: door.entered)  # on their way
        assert index.queued_writes == 1
        await door.open()
        await index.drain(within_s=WITHIN_S)
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        assert index.stand_in_matches == 0
