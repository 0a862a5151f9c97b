"""The index in Redis after damage: keys evicted, words of another version, a clock set back, slots that are none."""

import asyncio
from itertools import combinations

import pytest
from redis.asyncio import Redis

from prefix_index.redis_check import check_pool
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.types import Load
from tests.prefix_index.subjects import chain

NAMES = ("nodes", "lru", "kids", "reg", "who")
DAY_US = 86_400_000_000


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
