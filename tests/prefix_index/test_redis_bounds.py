"""The index in Redis over time: what is bounded stays bounded, what is short-lived goes, nothing is left behind."""

import asyncio
import os

import pytest
from redis.asyncio import Redis

from prefix_index.redis_census import census
from prefix_index.redis_check import check_pool
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import pool_keys
from prefix_index.types import Chain, Claim
from tests.prefix_index.door import WITHIN_S
from tests.prefix_index.subjects import chain

MiB = 1 << 20


def unique(blocks: int) -> Chain:
    return Chain(os.urandom(8 * blocks), 16, 16 * blocks)


async def memory_of(client: Redis, pool: str) -> int:
    """What the server says all keys of the pool take."""
    return sum([await client.memory_usage(key, samples=0) or 0 for key in pool_keys(pool)])


@pytest.mark.parametrize(
    ("blocks", "holders", "claims", "prompts"),
    [
        (1, 1, [Claim.CONFIRMED], 8000),
        (8, 3, [Claim.SPECULATIVE, Claim.CONFIRMED], 4000),
        (40, 200, [Claim.CONFIRMED], 6000),
        (2000, 2, [Claim.SPECULATIVE, Claim.CONFIRMED, Claim.HOST], 300),
    ],
)
async def test_unique_prompt_rss_a_flood_of_prompts_that_share_nothing_keeps_memory_flat(
    client: Redis, pool: str, blocks: int, holders: int, claims: list[Claim], prompts: int
) -> None:
    index = RedisRadix(client, pool, max_bytes=MiB)
    taken = []
    for start in range(0, prompts, prompts // 10):
        calls = []
        for number in range(start, start + prompts // 10):
            fresh = unique(blocks)
            calls += [index.observe_call(f"e{number % holders}", fresh, claim) for claim in claims]
        assert all(isinstance(reply, int) for reply in await index.send(calls))
        taken.append(await memory_of(client, pool))
    slack = 150_000  # seats and names, and one prompt more than fits
    assert max(taken) < MiB + slack
    assert (await census(client, pool)).estimated_bytes <= MiB
    assert (await index.match(fresh)).blocks == {f"e{number % holders}": blocks}
    assert await check_pool(client, pool) == []


async def test_unique_prompt_rss_one_flooded_holder_does_not_push_out_the_others(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, max_bytes=MiB // 2)
    for holder in ("b", "c"):
        await index.observe(holder, chain("xxxx"))
    for _ in range(8):
        await index.send([index.observe_call("a", unique(8)) for _ in range(500)])
    assert (await index.match(chain("xxxx"))).blocks == {"b": 4, "c": 4}


async def test_beyond_the_limit_the_largest_holder_gives_way(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, max_bytes=MiB // 2)
    for _ in range(4):
        await index.send([index.observe_call("large", unique(8)) for _ in range(500)])
    prompts = [unique(8) for _ in range(200)]
    await index.send([index.observe_call("small", prompt) for prompt in prompts])
    assert await index.blocks_of("small") == 1600
    assert (await census(client, pool)).estimated_bytes <= MiB // 2


async def test_unique_prompt_rss_what_is_shared_is_counted_once_and_still_given_back(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, max_bytes=MiB // 4)
    stems = [unique(10) for _ in range(5)]
    for number in range(3000):
        stem = stems[number % 5]
        branch = Chain(stem.hashes + os.urandom(16), 16, 192)
        calls = [index.observe_call(f"e{(number + other) % 9}", branch) for other in range(3)]
        await index.send(calls)
    assert await memory_of(client, pool) < MiB // 4 + 60_000
    assert await check_pool(client, pool) == []


async def test_no_limit_means_none(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, max_bytes=0)
    await index.send([index.observe_call("a", unique(8)) for _ in range(2000)])
    assert await index.blocks_of("a") == 16000


async def test_adapter_churn_of_five_thousand_holders_leaves_nothing_behind(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    claims = list(Claim)
    for start in range(0, 5000, 250):
        calls = []
        for number in range(start, start + 250):
            holder = f"http://engine@{number}/{number % 3}"
            prompt = chain("xxx" + "yz"[number % 2])
            calls += [index.observe_call(holder, prompt, claim) for claim in claims[: 1 + number % 4]]
            calls.append(index.clear_call(holder))
        await index.send(calls)
    await index.evict("nobody", 0)
    found = await census(client, pool)
    assert (found.seats, found.nodes, found.blocks, found.seats_used, found.seats_ending) == ((), 0, 0, 0, 0)
    assert await client.exists(*pool_keys(pool)) == 1
    assert await memory_of(client, pool) < 2000
    assert await check_pool(client, pool) == []


async def test_speculation_of_a_replica_that_died_goes_with_the_beats_of_the_others(client: Redis, pool: str) -> None:
    index, brief = RedisRadix(client, pool), RedisRadix(client, pool, speculative_s=0.05)
    await index.send([index.observe_call(f"e{n}", unique(4), Claim.SPECULATIVE) for n in range(40)])
    await index.observe("e0", chain("xxxx"), Claim.SPECULATIVE)
    await index.observe("e0", chain("xx"), Claim.CONFIRMED)
    async with asyncio.timeout(WITHIN_S):
        while (await census(client, pool)).blocks > 2:
            await brief.publish_loads("alive", {})
    found = await index.match(chain("xxxx"))
    assert (dict(found.blocks), dict(found.speculative)) == ({"e0": 2}, {})
    # One short-lived seat is kept, as its holder has another, and would soon take it again.
    assert {(seat.holder, seat.claim, seat.blocks) for seat in (await census(client, pool)).seats} == {
        ("e0", Claim.CONFIRMED, 2),
        ("e0", Claim.SPECULATIVE, 0),
    }
    assert await check_pool(client, pool) == []


async def test_speculation_goes_when_its_holder_is_written_to(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, speculative_s=0.05)
    await index.observe("a", chain("xxxx"), Claim.SPECULATIVE)
    async with asyncio.timeout(WITHIN_S):
        while await index.blocks_of("a", Claim.SPECULATIVE) != 1:
            await index.observe("a", chain("y"), Claim.SPECULATIVE)
    assert (await index.match(chain("xxxx"))).speculative == {}


async def test_speculation_goes_when_others_are_written_to(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, speculative_s=0.05)
    await index.observe("a", chain("xxxx"), Claim.SPECULATIVE)
    async with asyncio.timeout(WITHIN_S):
        while await index.blocks_of("a", Claim.SPECULATIVE):
            await index.observe("b", chain("y"))
    assert (await index.match(chain("xxxx"))).speculative == {}


async def test_speculation_that_is_renewed_stays(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool, speculative_s=30)
    await index.observe("a", chain("xxxx"), Claim.SPECULATIVE)
    for _ in range(50):
        await index.publish_loads("r", {})
        await index.observe("a", chain("y"), Claim.SPECULATIVE)
    assert (await index.match(chain("xxxx"))).speculative == {"a": 4}


async def test_seats_of_holders_that_have_nothing_are_given_back(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for number in range(30):
        await index.observe(f"e{number}", chain("xx"))
        await index.forget(f"e{number}", chain("xx"), 0)
    async with asyncio.timeout(WITHIN_S):
        while (await census(client, pool)).seats_used:
            await index.publish_loads("r", {})
    assert await check_pool(client, pool) == []


async def test_pod_removed_purge_gives_back_thousands_of_nodes_with_beats_alone(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for _ in range(4):
        await index.send([index.observe_call("gone", unique(3)) for _ in range(500)])
    await index.clear("gone")
    assert (await census(client, pool)).seats_ending == 1
    for _ in range(2000 // 64 + 1):
        await index.publish_loads("r", {})
    found = await census(client, pool)
    assert (found.nodes, found.seats_ending, found.seats_used) == (0, 0, 0)
    assert await check_pool(client, pool) == []


async def test_ages_are_of_the_last_use_by_anybody(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for holder, prompt in (("a", "xxxx"), ("b", "xx"), ("c", "xxxx")):
        await index.observe(holder, chain(prompt))
    nodes = pool_keys(pool)[0].decode()
    leaf = chain("xxx").hashes[16:]
    value = await client.hget(nodes, leaf)
    assert isinstance(value, bytes)
    long_ago = int.from_bytes(value[8:12], "big") - 500
    await client.hset(nodes, leaf, value[:8] + long_ago.to_bytes(4, "big") + value[12:])
    ages_s = (await index.match(chain("xxxx"))).ages_s
    assert ages_s["a"] == ages_s["c"] >= 500
    assert 0 <= ages_s["b"] < 100
    await index.observe("a", chain("xxxx"))
    assert max((await index.match(chain("xxxx"))).ages_s.values()) < 100


async def test_a_node_in_constant_use_is_not_rewritten_each_time(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.observe("a", chain("xxxx"))
    nodes = pool_keys(pool)[0].decode()
    name = chain("x").hashes
    value = await client.hget(nodes, name)
    assert isinstance(value, bytes)
    earlier = int.from_bytes(value[8:12], "big")
    for ago, rewritten in ((4, False), (60, True), (-60, True)):
        stamp = (earlier - ago).to_bytes(4, "big")
        await client.hset(nodes, name, value[:8] + stamp + value[12:])
        await index.observe("a", chain("xxxx"))
        assert (await client.hget(nodes, name) != value[:8] + stamp + value[12:]) is rewritten


async def test_two_versions_of_the_library_work_side_by_side_on_one_pool(client: Redis, pool: str) -> None:
    ours, theirs = RedisRadix(client, pool), RedisRadix(client, pool)
    name = theirs._link._library
    theirs._link._library, theirs._link._code = f"{name}x", theirs._link._code.replace(name, f"{name}x")
    for turn in range(1, 20):
        assert await (ours, theirs)[turn % 2].observe("a", chain("x" * turn)) == 1
    for index in (ours, theirs):
        assert (await index.match(chain("x" * 30))).blocks == {"a": 19}
    names = {entry[1] for entry in await client.function_list(library=f"{name}*")}
    assert names == {name.encode(), f"{name}x".encode()}
    assert await check_pool(client, pool) == []
