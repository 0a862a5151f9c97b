"""The shared index while Redis is well: replicas see each other, writes never wait, the twin follows."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

import pytest
from redis.asyncio import Redis

from prefix_index import inspection
from prefix_index.errors import IndexUnavailable
from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_check import check_pool
from prefix_index.redis_clients import connect_one
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.shared_index import SharedIndex, shard_names
from prefix_index.types import Claim, DegradedReason, Load
from tests.prefix_index.door import Door
from tests.prefix_index.replicas import PATIENT, match_until, running, twin_of
from tests.prefix_index.servers import until_answered
from tests.prefix_index.subjects import chain
from tests.until import until

pools = (f"shared index {number}" for number in count())

Replica = Callable[..., Awaitable[SharedIndex]]


@pytest.fixture
def pool() -> str:
    return next(pools)


@pytest.fixture
async def client(server_url: str) -> AsyncIterator[Redis]:
    async with connect_one(server_url) as client:
        yield client


@pytest.fixture
async def replica(client: Redis, pool: str) -> AsyncIterator[Replica]:
    async with AsyncExitStack() as stack:

        async def start(name: str, options: SharedIndexOptions = PATIENT) -> SharedIndex:
            return await stack.enter_async_context(
                running(SharedIndex(client, pool=pool, replica=name, options=options))
            )

        yield start


async def test_without_redis_the_twin_is_all_there_is_and_nothing_is_degraded() -> None:
    index = SharedIndex(None, pool="p", replica="r")
    index.observe("a", chain("xxyy"))
    index.observe("b", chain("xxzz"))
    index.forget("a", chain("xxyy"), 3)
    index.set_load("a", Load(1, 2, 3))
    found = await index.match(chain("xxyy"))
    assert (found.blocks, found.loads) == ({"a": 3, "b": 2}, {"a": Load(1, 2, 3)})
    index.clear("b")
    index.set_capacity("a", 1)
    index.observe("a", chain("q"))
    assert (await index.match(chain("xxyy"))).blocks == {}
    index.clear("a")
    index.set_load("a", Load())
    found = await index.match(chain("q"))
    assert (dict(found.blocks), dict(found.loads)) == ({}, {})
    await index.run()
    await index.drain()
    assert (index.degraded_reason, index.dropped_writes, index.stand_in_matches) == (None, 0, 0)


async def test_replicas_see_what_the_others_observed(replica: Replica, client: Redis, pool: str) -> None:
    one, two = await replica("r1"), await replica("r2")
    one.observe("a", chain("xxyy"))
    two.observe("b", chain("xxzzz"))
    for index in (one, two):
        await match_until(index, "xxyy", lambda found: found.blocks == {"a": 4, "b": 2})
    one.forget("a", chain("xxyy"), 3)
    await match_until(two, "xxyy", lambda found: found.blocks == {"a": 3, "b": 2})
    two.clear("b")
    await match_until(one, "xxyy", lambda found: found.blocks == {"a": 3})
    assert await check_pool(client, pool) == []
    assert one.stand_in_matches == two.stand_in_matches == 0


async def test_replicas_see_each_others_loads_and_count_their_own_at_once(replica: Replica) -> None:
    one, two = await replica("r1"), await replica("r2")
    one.set_load("a", Load(1, 10, 100))
    assert (await one.match(chain("x"))).loads == {"a": Load(1, 10, 100)}
    two.set_load("a", Load(2, 20, 200))
    two.set_load("b", Load(1, 1, 1))
    for index in (one, two):
        await match_until(index, "x", lambda found: found.loads == {"a": Load(3, 30, 300), "b": Load(1, 1, 1)})
    two.set_load("b", Load())
    await match_until(one, "x", lambda found: found.loads == {"a": Load(3, 30, 300)})


async def test_loads_of_a_killed_replica_vanish_and_those_of_a_living_one_stay(
    replica: Replica, client: Redis, pool: str
) -> None:
    one = await replica("r1", SharedIndexOptions(deadline_s=1.0, stale_after_s=0.3, heartbeat_s=0.02))
    living = await replica("living")
    living.set_load("a", Load(1, 1, 1))
    async with running(SharedIndex(client, pool=pool, replica="killed", options=PATIENT)) as killed:
        killed.set_load("a", Load(5, 5, 5))
        await match_until(one, "x", lambda found: found.loads == {"a": Load(6, 6, 6)})
    await match_until(one, "x", lambda found: found.loads == {"a": Load(1, 1, 1)})


async def test_a_replica_that_leaves_in_order_takes_its_loads_and_leaves_its_writes(
    replica: Replica, client: Redis, pool: str
) -> None:
    one = await replica("r1")
    leaving = SharedIndex(client, pool=pool, replica="leaving", options=PATIENT)
    async with running(leaving):
        leaving.set_load("a", Load(5, 5, 5))
        await match_until(one, "x", lambda found: found.loads == {"a": Load(5, 5, 5)})
    for number in range(600):
        leaving.observe("a", chain("x" * (number // 100)))
    await leaving.drain()
    found = await one.match(chain("xxxxx"))
    assert (dict(found.blocks), dict(found.loads)) == ({"a": 5}, {})


async def test_a_restart_seen_by_one_replica_counts_for_all_twins_too(replica: Replica) -> None:
    one, two = await replica("r1"), await replica("r2")
    for index, mark in ((one, "m1"), (two, "m2")):
        index.observe("a", chain("xxx"))
        index.observe("b", chain("xxx"))
        index.observe(mark, chain("x"))  # once it is there, all before it is
    for index in (one, two):
        await match_until(index, "xxx", lambda found: found.blocks == {"a": 3, "b": 3, "m1": 1, "m2": 1})
    for mark in ("m1", "m2"):
        one.clear(mark)
    await match_until(two, "xxx", lambda found: found.blocks == {"a": 3, "b": 3})
    one.clear("a")
    one.observe("a", chain("x"))
    await match_until(two, "xxx", lambda found: found.blocks == {"a": 1, "b": 3})
    await match_until(one, "xxx", lambda found: found.blocks == {"a": 1, "b": 3})
    assert twin_of(two).match(chain("xxx")).blocks == {"b": 3}
    assert twin_of(one).match(chain("xxx")).blocks == {"a": 1, "b": 3}


async def test_an_observation_from_before_a_restart_does_not_count_after_it(client: Redis, pool: str) -> None:
    one, other = SharedIndex(client, pool=pool, replica="r", options=PATIENT), RedisRadix(client, pool)
    await other.observe("a", chain("xxx"))
    assert (await one.match(chain("xxx"))).blocks == {"a": 3}
    one.observe("a", chain("xxxxx"))
    await other.clear("a")
    await other.observe("a", chain("y"))
    await one.drain(within_s=10)
    assert (await one.match(chain("xxxxx"))).blocks == {}
    one.observe("a", chain("xx"))
    await one.drain(within_s=10)
    assert (await one.match(chain("xxx"))).blocks == {"a": 2}


async def test_a_clear_that_is_not_fenced_ends_also_what_this_replica_has_not_heard_of(replica: Replica) -> None:
    first = await replica("r1", replace(PATIENT, heartbeat_s=60))
    other = await replica("r2")
    other.observe("a", chain("xxx"))
    await match_until(first, "xxx", lambda found: found.blocks == {"a": 3})
    other.clear("a")
    other.observe("a", chain("xxxx"))
    await match_until(other, "xxxx", lambda found: found.blocks == {"a": 4} and not other.queued_writes)
    first.clear("a")
    await until(lambda: not first.queued_writes)
    assert (await other.match(chain("xxxx"))).blocks == {"a": 4}
    first.clear("a", fenced=False)
    await until(lambda: not first.queued_writes)
    await match_until(other, "xxxx", lambda found: found.blocks == {})


async def test_capacities_go_to_redis_with_each_observation(replica: Replica) -> None:
    one = await replica("r1")
    one.set_capacity("a", 2)
    one.observe("a", chain("xxxxx"))
    one.observe("b", chain("xxxxx"))
    await match_until(one, "xxxxx", lambda found: found.blocks == {"a": 2, "b": 5})


async def test_what_others_tell_redis_is_kept_here_for_the_time_when_it_is_away(replica: Replica) -> None:
    index, other = await replica("r1"), await replica("r2")
    index.observe_here("a", chain("xxyyzz"), Claim.CONFIRMED)
    index.forget_here("a", chain("xxyyzz"), 2, Claim.CONFIRMED)
    other.observe("b", chain("xxyyzz"))
    assert (await match_until(index, "xxyyzz", lambda found: found.blocks)).blocks == {"b": 6}
    assert twin_of(index).match(chain("xxyyzz")).blocks == {"a": 2}
    alone = SharedIndex(None, pool="p", replica="r")
    alone.observe_here("a", chain("xx"), Claim.CONFIRMED)
    assert (await alone.match(chain("xx"))).blocks == {}


async def test_many_writes_go_in_order_and_few_pipelines(replica: Replica, client: Redis, pool: str) -> None:
    one = await replica("r1")
    for number in range(600):
        one.observe("a", chain("x" * (number % 7) + "y"))
        if number % 50 == 0:
            one.clear("a")
    one.observe("a", chain("xxxz"))
    await until(lambda: one.queued_writes == 0)
    await match_until(one, "xxxz", lambda found: found.blocks == {"a": 4})
    assert await check_pool(client, pool) == []
    assert one.dropped_writes == 0


async def test_looking_inside_shows_all_shards(client: Redis, pool: str) -> None:
    options = SharedIndexOptions(deadline_s=1.0, load_interval_s=0.005, shards=3)
    async with running(SharedIndex(client, pool=pool, replica="r", options=options)) as index:
        for letter in "abcdef":
            index.observe("one", chain(letter * 4))
            index.observe("two", chain(letter * 2), Claim.SPECULATIVE)

        async def held() -> dict[tuple[str, Claim], int]:
            total: dict[tuple[str, Claim], int] = {}
            for seat in (seat for shard in await index.census() for seat in shard.seats):
                total[seat.holder, seat.claim] = total.get((seat.holder, seat.claim), 0) + seat.blocks
            return total

        await until_answered(
            held, lambda found: found == {("one", Claim.CONFIRMED): 24, ("two", Claim.SPECULATIVE): 12}
        )
        assert [shard.estimated_bytes > 0 for shard in await index.census()].count(True) >= 2
        hottest = await index.hottest(4)
        assert len(hottest.prefixes) == 4
        assert not hottest.cut
        assert await index.check() == []
        assert index.degraded_reason is None


async def test_looking_inside_without_redis_shows_what_this_process_holds() -> None:
    index = SharedIndex(None, pool="p", replica="r")
    index.observe("one", chain("aaaa"))
    index.observe("two", chain("aa"), Claim.SPECULATIVE)
    (found,) = await index.census()
    assert {(seat.holder, seat.claim, seat.blocks) for seat in found.seats} == {
        ("one", Claim.CONFIRMED, 4),
        ("two", Claim.SPECULATIVE, 2),
    }
    assert (await index.hottest(10)).prefixes == ()
    assert await index.check() == []


async def test_claims_are_runs_of_their_own_and_age(replica: Replica) -> None:
    one, two = await replica("r1"), await replica("r2")
    one.observe("a", chain("xxyy"), Claim.SPECULATIVE)
    one.observe("a", chain("xx"))
    one.observe("a", chain("xxyyz"), Claim.DISK)
    for index in (one, two):
        found = await match_until(index, "xxyyz", lambda found: found.disk == {"a": 5})
        assert (found.blocks, found.speculative, found.host) == ({"a": 2}, {"a": 4}, {})
        assert 0 <= found.ages_s["a"] < 60
    two.forget("a", chain("xxyy"), 3, Claim.SPECULATIVE)
    found = await match_until(one, "xxyyz", lambda found: found.speculative == {"a": 3})
    assert (found.blocks, found.disk) == ({"a": 2}, {"a": 5})


async def test_a_shard_holds_all_that_begins_alike_with_the_whole_capacity(client: Redis, pool: str) -> None:
    options = SharedIndexOptions(deadline_s=1.0, load_interval_s=0.005, shards=8)
    async with running(SharedIndex(client, pool=pool, replica="r", options=options)) as index:
        index.set_capacity("a", 100)
        for number in range(80):
            index.observe("a", chain(f"system{number:02}"))
        await until(lambda: not index.queued_writes)
        await match_until(index, "system79", lambda found: found.blocks == {"a": 8})
        found = await index.match(chain("system00"))
        assert found.blocks == {"a": 8}
        index.set_load("a", Load(1, 1, 1))
        assert (await index.match(chain("other"))).loads == {"a": Load(1, 1, 1)}
    filled = [pool_of for pool_of in shard_names(pool, 8) if await client.exists(*pool_keys(pool_of)[:1])]
    assert len(filled) == 1


async def test_looking_inside_says_so_where_redis_is_away_or_silent(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    await door.choose_port()
    async with connect_one(door.url) as client:
        index = SharedIndex(client, pool="p", replica="r")
        with pytest.raises(IndexUnavailable) as away:
            await index.check()
        assert away.value.reason is DegradedReason.UNREACHABLE
        await door.stall()
        monkeypatch.setattr(inspection, "ANSWER_S", 0.05)
        with pytest.raises(IndexUnavailable) as silent:
            await index.census()
        assert silent.value.reason is DegradedReason.TIMEOUT


async def test_capacities_of_holders_long_gone_are_not_kept() -> None:
    index = SharedIndex(None, pool="p", replica="r")
    for number in range(5000):
        index.set_capacity(f"e@{number}", 10)
    (shard,) = index._shards
    assert len(shard._capacities) < 5000


async def test_losses_of_a_holder_are_noticed_also_where_nobody_asks(replica: Replica) -> None:
    one, two = await replica("r1"), await replica("r2")
    one.observe("a", chain("xx"))
    one.observe("b", chain("xx"))
    await match_until(two, "xx", lambda found: found.blocks == {"a": 2, "b": 2})
    await match_until(one, "xx", lambda found: not one.queued_writes)
    before = {holder: one.losses_of(holder) for holder in "ab"}
    one.clear("b")  # its own doing is no loss
    two.clear("a")
    await until(lambda: one.losses_of("a") > before["a"])  # without a match of its own
    assert one.losses_of("b") == before["b"]
