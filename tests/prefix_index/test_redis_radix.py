"""The index in Redis: keys, lifetimes, generations, loads, and what a damaged or foreign server does to it."""

import asyncio

import pytest
from redis.asyncio import Redis

from prefix_index.embedded import EmbeddedServer
from prefix_index.errors import IndexUnavailable
from prefix_index.load_book import LoadBook
from prefix_index.redis_check import check_pool
from prefix_index.redis_link import library
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import SLOTS, pool_keys
from prefix_index.types import Chain, Claim, DegradedReason, Load
from tests.prefix_index.door import WITHIN_S
from tests.prefix_index.subjects import chain
from tests.until import until


async def test_every_key_shares_the_hash_tag_of_the_pool_and_has_a_time_to_live(server: EmbeddedServer) -> None:
    async with Redis.from_url(server.url) as client:
        index = RedisRadix(client, "p")
        await index.observe("a", chain("xxx"))
        await index.observe("b", chain("xxyy"))
        await index.publish_loads("r", {"a": Load(1, 2, 3)})
        keys = await client.keys("*")
        assert set(keys) == set(pool_keys("p"))
        assert all(key.startswith(b"{pg:2:p}:") for key in pool_keys("p"))
        assert all([await client.pttl(key) > 0 for key in keys])


async def test_a_pool_that_nobody_writes_to_goes_as_a_whole(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    index.ttl_s = 0.05
    await index.observe("a", chain("xxx"))
    await index.publish_loads("r", {"a": Load(1, 2, 3)})
    await until(lambda: client.exists(*pool_keys(pool)), lambda found: not found, within_s=WITHIN_S)
    assert (await index.match(chain("xxx"))).blocks == {}


async def test_what_nobody_used_for_its_time_to_live_goes_while_the_rest_stays(client: Redis, pool: str) -> None:
    brief, lasting = RedisRadix(client, pool), RedisRadix(client, pool)
    brief.ttl_s = 0.05
    await lasting.observe("idle", chain("xxxx"))
    await lasting.observe("idle", chain("xxyy"))
    async with asyncio.timeout(WITHIN_S):
        while await lasting.blocks_of("idle"):
            # Each so many writes look at one holder, in turn: three a round, lest it be the same writer's each time.
            await brief.observe("busy", chain("zz"))
            await brief.observe("busy", chain("zz"))
            await lasting.observe("busy", chain("zz"))
    assert (await lasting.match(chain("xxxx"))).blocks == {}
    assert (await lasting.match(chain("zz"))).blocks == {"busy": 2}
    assert await check_pool(client, pool) == []


async def test_the_library_is_loaded_when_the_server_lost_it(server: EmbeddedServer) -> None:
    async with Redis.from_url(server.url) as client:
        index = RedisRadix(client, "p")
        await index.observe("a", chain("xxx"))
        await client.function_flush()
        assert (await index.match(chain("xxx"))).blocks == {"a": 3}
        loaded = await client.function_list()
        assert library()[0].encode() in loaded[0]


async def test_two_replicas_may_load_the_library_at_once(server: EmbeddedServer) -> None:
    async with Redis.from_url(server.url) as client:
        replicas = [RedisRadix(client, "p") for _ in range(8)]
        found = await asyncio.gather(*(replica.match(chain("x")) for replica in replicas))
    assert [dict(match.blocks) for match in found] == [{}] * 8


async def generation_of(index: RedisRadix, holder: str) -> int:
    await index.match(chain(""))
    return index.registry.generations[holder]


async def test_backend_restart_fence_a_write_made_before_a_clear_does_not_count_after_it(
    client: Redis, pool: str
) -> None:
    index = RedisRadix(client, pool)
    assert await index.observe("a", chain("xx")) == 2
    before = await generation_of(index, "a")
    assert await index.observe("a", chain("xxx"), generation=before) == 1
    await index.clear("a", generation=before)
    assert await index.observe("a", chain("xx"), generation=before) == 0
    found = await index.match(chain("xx"))
    assert (dict(found.blocks), dict(index.registry.generations)) == ({}, {})
    assert await index.observe("a", chain("x")) == 1
    assert await index.observe("a", chain("xx"), generation=before) == 0
    after = await generation_of(index, "a")
    assert after > before
    assert await index.observe("a", chain("xx"), generation=after) == 1
    assert (await index.match(chain("xx"))).blocks == {"a": 2}
    assert await check_pool(client, pool) == []


async def test_backend_restart_fence_replicas_that_see_one_restart_clear_once(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("xx"))
    before = await generation_of(index, "a")
    await index.clear("a", generation=before)
    await index.observe("a", chain("xxx"))
    await index.clear("a", generation=before)
    assert (await index.match(chain("xxx"))).blocks == {"a": 3}


async def test_all_claims_of_a_holder_are_of_one_generation(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("xx"), Claim.SPECULATIVE)
    born = await generation_of(index, "a")
    for claim in (Claim.CONFIRMED, Claim.HOST, Claim.DISK):
        assert await index.observe("a", chain("xx"), claim, generation=born) == 2
    await index.clear("a", Claim.SPECULATIVE)
    assert await generation_of(index, "a") == born
    assert await index.observe("a", chain("xx"), Claim.SPECULATIVE, generation=born) == 2
    await index.clear("a")
    await index.observe("a", chain("xx"), Claim.DISK)
    assert await generation_of(index, "a") > born


async def test_what_redis_lost_is_not_brought_back_under_its_old_generation(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("xx"))
    before = await generation_of(index, "a")
    await client.delete(*pool_keys(pool))
    assert await index.observe("a", chain("xx"), generation=before) == 0
    assert (await index.match(chain("xx"))).blocks == {}


async def test_names_of_holders_travel_only_when_they_changed(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("xx"))
    await index.match(chain("xx"))
    known = index.registry
    await index.observe("a", chain("xxyy"))
    await index.match(chain("xx"))
    assert index.registry is known
    await index.observe("b", chain("xx"))
    assert (await index.match(chain("xx"))).blocks == {"a": 2, "b": 2}
    assert index.registry is not known


async def test_names_of_holders_may_hold_any_character(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    names = ["a:b:c", "h:x", "", "ü {}", "1", "c3s7", "http://10.0.0.1:8000@2/1"]
    for name in names:
        await index.observe(name, chain("xx"))
        await index.clear(name)
        for claim in Claim:
            await index.observe(name, chain("xx"), claim)
    assert (await index.match(chain("xx"))).blocks == dict.fromkeys(names, 2)
    assert await check_pool(client, pool) == []


async def test_more_holders_than_slots_are_refused_and_harm_nobody(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    claims = list(Claim)
    await index.send([index.observe_call(f"e{n // 4}", chain("xy"), claims[n % 4]) for n in range(SLOTS)])
    with pytest.raises(IndexUnavailable, match="PGFULL") as refusal:
        await index.observe("one too many", chain("xy"))
    assert refusal.value.reason is DegradedReason.REFUSED
    await index.clear("e7", Claim.DISK)
    await index.clear("nobody")
    assert await index.observe("one too many", chain("xy")) == 2
    found = await index.match(chain("xy"))
    assert [len(run) for run in (found.blocks, found.speculative, found.host, found.disk)] == [513, 512, 512, 511]
    assert await check_pool(client, pool) == []


async def test_loads_are_summed_over_the_fresh_replicas(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.publish_loads("r1", {"a": Load(1, 10, 100), "b": Load(0, 0, 0)})
    await index.publish_loads("r2", {"a": Load(2, 20, 200), "c": Load(1, 1, 1)})
    assert (await index.match(chain(""))).loads == {"a": Load(3, 30, 300), "c": Load(1, 1, 1)}
    await index.publish_loads("r2", {})
    assert (await index.match(chain(""))).loads == {"a": Load(1, 10, 100)}


async def test_our_own_loads_are_left_to_us(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, loads=LoadBook(stale_after_s=10, own_replica="r1"))
    await index.publish_loads("r1", {"a": Load(1, 1, 1)})
    await index.publish_loads("r2", {"a": Load(2, 2, 2)})
    assert (await index.match(chain(""))).loads == {"a": Load(2, 2, 2)}


async def test_loads_of_a_replica_that_fell_silent_vanish(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, loads=LoadBook(stale_after_s=0.05))
    await index.publish_loads("r1", {"a": Load(1, 1, 1)})
    assert (await index.match(chain(""))).loads == {"a": Load(1, 1, 1)}
    await until(lambda: index.match(chain("")), lambda found: not found.loads, within_s=WITHIN_S)


async def test_a_replica_long_silent_is_forgotten_by_the_server(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    beats, loads = pool_keys(pool)[5:]
    await index.publish_loads("gone", {"a": Load(1, 1, 1)})
    await client.hset(beats, "gone", "1")
    await index.publish_loads("r", {})
    assert await client.hkeys(beats) == await client.hkeys(loads) == [b"r"]


@pytest.mark.parametrize("lost", [[0], [1], [2], [3], [4], [0, 1]])
async def test_a_pool_that_lost_keys_is_never_misread_and_heals(client: Redis, pool: str, lost: list[int]) -> None:
    index = RedisRadix(client, pool)
    for holder, prompt in (("a", "xxyy"), ("b", "xxzz")):
        await index.observe(holder, chain(prompt))
    await client.delete(*(pool_keys(pool)[key] for key in lost))
    assert (await index.match(chain("xxyy"))).blocks.items() <= {"a": 4, "b": 2}.items()
    await index.observe("c", chain("xx"))
    assert (await index.match(chain("xxyy"))).blocks.items() <= {"a": 4, "b": 2, "c": 2}.items()
    for holder in ("a", "b", "c"):
        assert await index.evict(holder, 0) == 0
        await index.clear(holder)
    for _ in range(4):
        await index.observe("d", chain("xx"))
    assert (await index.match(chain("xxyy"))).blocks == {"d": 2}
    assert await check_pool(client, pool) == []


async def test_holders_whose_names_were_lost_are_found_again_with_the_next_write(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for holder in ("a", "b"):
        await index.observe(holder, chain("xx"))
    await client.delete(pool_keys(pool)[4])
    await index.observe("a", chain("xx"))
    assert (await index.match(chain("xx"))).blocks == {"a": 2}
    assert await check_pool(client, pool) == []


async def test_the_audit_sees_damage(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    nodes, lru, kids, reg, who, _, _ = pool_keys(pool)
    for holder, prompt in (("a", "xxyy"), ("b", "xxzz"), ("a", "xxyyq"), ("c", "w")):
        await index.observe(holder, chain(prompt))
    await index.clear("c")
    assert await check_pool(client, pool) == []
    leaf = chain("xxz").hashes[16:]
    value = await client.hget(nodes, leaf)
    assert isinstance(value, bytes)
    prev, used, rest = value[:8], value[8:12], value[15:]
    await client.hset(nodes, leaf, prev + used + b"\x00\x00\x00" + rest)
    found = await check_pool(client, pool)
    assert any("no holder" in problem for problem in found)
    assert any("does not hold" in problem for problem in found)
    await client.hset(nodes, leaf, b"elsewher" + used + b"\x00\x00\x0f" + rest)
    assert any("orphan" in problem for problem in await check_pool(client, pool))
    await client.hset(nodes, leaf, prev + used + b"\x00\x00\x0f" + rest)
    assert any("its parent" in problem for problem in await check_pool(client, pool))
    await client.delete(kids)
    await client.persist(lru)
    await client.hset(reg, "free", b"\x00\x00")
    await client.hset(who, "9", "0:cstranger")
    await client.hset(reg, mapping={"h:left": "5:", "blocks": 99})
    found = await check_pool(client, pool)
    for words in ("kids", "time to live", "exactly once", "names of slots", "counts", "without", "seats", "99 blocks"):
        assert any(words in problem for problem in found), words


async def test_the_audit_sees_an_order_that_would_lose_a_parent_first(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    lru = pool_keys(pool)[1]
    for holder, prompt in (("a", "xxyy"), ("b", "xx")):
        await index.observe(holder, chain(prompt))
    tail, head = await client.zrange(lru, 0, 1)
    assert isinstance(tail, bytes)
    assert isinstance(head, bytes)
    await client.zadd(lru, {tail: 2, head: 1.5})
    problems = await check_pool(client, pool)
    assert any("before its child" in problem for problem in problems)
    assert any("tick that is none" in problem for problem in problems)
    await client.zadd(lru, {tail[:5] + b"\x00" + tail[6:]: 1})
    problems = await check_pool(client, pool)
    assert any("two places" in problem for problem in problems)
    assert any("said to start" in problem for problem in problems)
    await client.zrem(lru, head)
    assert any("not in its order" in problem for problem in await check_pool(client, pool))


async def test_order_holds_when_the_clock_of_the_server_goes_back(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    _, lru, _, reg, _, _, _ = pool_keys(pool)
    await index.observe("a", chain("xxzz"))
    ahead = int(await client.hget(reg, "t") or 0) + 36_000_000
    await client.hset(reg, "t", str(ahead))
    for prompt in ("xxyy", "xxzz", "xx"):
        await index.observe("a", chain(prompt))
    ticks = [float(entry[1]) for entry in await client.zrange(lru, 0, -1, withscores=True)]
    assert min(ticks) > ahead
    assert len(ticks) == 3
    assert await check_pool(client, pool) == []


async def test_a_long_prompt_goes_through_in_one_call(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    long = chain("x" * 8192)
    assert await index.observe("a", long) == 8192
    half = Chain(long.hashes[: 8 * 4000], 16, 64_000)
    assert await index.observe("b", half) == 4000
    assert (await index.match(long)).blocks == {"a": 8192, "b": 4000}
    assert await check_pool(client, pool) == []


async def test_eviction_in_slices_reaches_its_goal(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    calls = []
    for branch in range(1200):
        leaf = bytes([branch % 256, branch // 256, *b"leaf.."])
        calls.append(index.observe_call("a", Chain(chain("x").hashes + leaf, 16, 32)))
    await index.send(calls)
    assert await index.evict("a", 3) == 3
    assert await check_pool(client, pool) == []
