"""The index in Redis after damage: keys evicted, words of another version, a clock set back, slots that are none."""

import asyncio
from itertools import combinations

import pytest
from redis.asyncio import Redis

from prefix_index import inspection
from prefix_index.errors import IndexUnavailable
from prefix_index.index_options import SharedIndexOptions
from prefix_index.redis_check import check_pool
from prefix_index.redis_clients import connect_one
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.shared_index import SharedIndex
from prefix_index.types import DegradedReason, Load
from tests.prefix_index.door import WITHIN_S, Door
from tests.prefix_index.replicas import running
from tests.prefix_index.subjects import chain
from tests.until import until

NAMES = ("nodes", "lru", "kids", "reg", "who")
DAY_US = 86_400_000_000
OPTIONS = SharedIndexOptions(deadline_s=0.2, write_deadline_s=0.3)


@pytest.mark.parametrize("lost", [lost for size in (1, 2, 3, 4) for lost in combinations(NAMES, size)], ids="+".join)
async def test_a_pool_of_which_keys_were_evicted_is_started_anew_by_the_next_write(
    client: Redis, pool: str, lost: tuple[str, ...]
) -> None:
    index, keys = RedisRadix(client, pool), dict(zip(NAMES, pool_keys(pool), strict=False))
    for holder, prompt in (("a", "abc"), ("b", "abx"), ("a", "aby")):
        await index.observe(holder, chain(prompt))
    await client.delete(*(keys[name] for name in lost))
    await index.forget("a", chain("ab"), 1)
    assert await check_pool(client, pool) == []
    assert (await index.match(chain("aby"))).blocks == {}
    await index.observe("a", chain("ab"))
    assert (await index.match(chain("aby"))).blocks == {"a": 2}
    assert await check_pool(client, pool) == []


@pytest.mark.parametrize("name", ["nodes", "lru", "kids", "who"])
async def test_a_key_of_another_type_is_replaced_by_the_next_write(client: Redis, pool: str, name: str) -> None:
    index, keys = RedisRadix(client, pool), dict(zip(NAMES, pool_keys(pool), strict=False))
    await client.set(keys[name], "not ours")
    await index.observe("a", chain("abc"))
    assert (await index.match(chain("abc"))).blocks == {"a": 3}
    assert await check_pool(client, pool) == []


@pytest.mark.parametrize("packed", [b"\xff", b"\x81\xa1a\x93\x01\x02", b"\x81\xa1a\xa1b", b"\x93\x01\x02\x03"])
async def test_loads_in_another_format_hide_only_what_that_replica_has_outstanding(
    client: Redis, pool: str, packed: bytes
) -> None:
    index = RedisRadix(client, pool)
    beats, loads = (key.decode() for key in pool_keys(pool)[5:])
    await index.observe("a", chain("abc"))
    await index.publish_loads("ours", {"a": Load(1, 1, 1)})
    await index.publish_loads("theirs", {"a": Load(2, 2, 2)})
    await client.hset(loads, "theirs", packed)
    found = await index.match(chain("abc"))
    assert (found.blocks, found.loads) == ({"a": 3}, {"a": Load(1, 1, 1)})
    assert index.unreadable_loads == 1
    await client.hset(beats, "theirs", "at noon")
    await index.publish_loads("ours", {"a": Load(3, 3, 3)})
    assert (await index.match(chain("abc"))).loads == {"a": Load(3, 3, 3)}
    assert await client.hkeys(beats) == [b"ours"]


@pytest.mark.parametrize("slot", ["2048", "999999999999999", "-1", "x"])
async def test_a_slot_that_there_is_not_is_a_bad_answer(client: Redis, pool: str, slot: str) -> None:
    index, (registry, who) = RedisRadix(client, pool), pool_keys(pool)[3:5]
    await index.observe("a", chain("abc"))
    await client.hset(who.decode(), slot, "1:cb")
    await client.hset(registry.decode(), "v", "1")
    with pytest.raises(IndexUnavailable) as failure:
        await index.match(chain("abc"))
    assert failure.value.reason is DegradedReason.BAD_ANSWER


@pytest.mark.parametrize(
    "nonsense",
    [b"#t\r\n" * 3, b"$3\r\n\xff\xff\xff\r\n", b"~2\r\n*0\r\n*0\r\n", b"%1\r\n*1\r\n:1\r\n+b\r\n", b":7\r\n" * 99],
    ids=["true", "three bytes", "a set", "a map by lists", "numbers"],
)
async def test_whatever_answers_nothing_but_the_index_being_unavailable_is_raised(door: Door, nonsense: bytes) -> None:
    await door.babble(nonsense)
    async with connect_one(door.url) as client, asyncio.timeout(WITHIN_S):
        index = SharedIndex(client, pool="p", replica="r", options=OPTIONS)
        async with running(index):
            index.observe("a", chain("abc"))
            await until(lambda: index.degraded_reason)
            assert (await index.match(chain("abc"))).blocks == {"a": 3}
            with pytest.raises(IndexUnavailable):
                await inspection.census(client, ["p"], [], 0.5)
            with pytest.raises(IndexUnavailable):
                await inspection.hottest(client, ["p"], top=1, max_nodes=1, within_s=0.5)
            with pytest.raises(IndexUnavailable):
                await inspection.check(client, ["p"], [], 0.5)


async def test_an_eviction_of_the_list_of_children_alone_is_found_by_the_audit(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("abc"))
    await index.observe("b", chain("abx"))
    assert await check_pool(client, pool) == []
    await client.hset(pool_keys(pool)[3].decode(), "roots", "3")
    assert await check_pool(client, pool) == ["3 roots are counted, and 1 are stored"]


async def test_a_replica_that_died_before_the_clock_was_set_back_is_forgotten(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    registry, beats, loads = (key.decode() for key in (pool_keys(pool)[3], *pool_keys(pool)[5:]))
    await index.publish_loads("alive", {"a": Load(1, 1, 1)})
    now_us = int(await client.hget(beats, "alive") or 0)
    await client.hset(registry, "b", str(now_us + DAY_US))
    await client.hset(beats, mapping={"dead": str(now_us + DAY_US), "alive": str(now_us + DAY_US - 1)})
    await client.hset(loads, "dead", await client.hget(loads, "alive") or b"")
    assert (await index.match(chain(""))).loads == {}
    await index.publish_loads("alive", {"a": Load(2, 2, 2)})
    assert (await index.match(chain(""))).loads == {"a": Load(2, 2, 2)}
    assert await client.hkeys(beats) == await client.hkeys(loads) == [b"alive"]


async def test_two_beats_of_one_moment_differ(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await asyncio.gather(*(index.publish_loads(replica, {}) for replica in "abcdef"))
    assert len(set(await client.hvals(pool_keys(pool)[5].decode()))) == 6
