"""Looking inside the index in Redis: what a census counts, and which prefixes are called the heaviest."""

import pytest
from redis.asyncio import Redis

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_census import census, hottest
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import SLOTS
from prefix_index.types import Chain, Claim, DegradedReason
from tests.prefix_index.subjects import chain


async def test_an_empty_pool_has_nothing(client: Redis, pool: str) -> None:
    found = await census(client, pool)
    assert (found.seats, found.nodes, found.blocks, found.estimated_bytes) == ((), 0, 0, 0)
    assert (found.seats_used, found.seats_free, found.seats_ending) == (0, SLOTS, 0)
    assert (await hottest(client, pool, top=5, max_nodes=10)).prefixes == ()


async def test_a_census_counts_each_claim_of_each_holder(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for holder, prompt, claim in (
        ("a", "xxyy", Claim.CONFIRMED),
        ("a", "xxzzz", Claim.CONFIRMED),
        ("a", "xx", Claim.SPECULATIVE),
        ("b", "xxyyq", Claim.DISK),
        ("gone", "w" * 40, Claim.CONFIRMED),
    ):
        await index.observe(holder, chain(prompt), claim)
    await index.forget("b", chain("xxyyq"), 0)
    await index.match(chain("xx"))
    found = await census(client, pool)
    # A seat with nothing left stays until a write happens to look after it: b's may be gone already.
    assert {(seat.holder, seat.claim, seat.blocks, seat.nodes) for seat in found.seats} | {("b", Claim.DISK, 0, 0)} == {
        ("a", Claim.CONFIRMED, 7, 3),
        ("a", Claim.SPECULATIVE, 2, 1),
        ("b", Claim.DISK, 0, 0),
        ("gone", Claim.CONFIRMED, 40, 1),
    }
    assert {seat.generation for seat in found.seats if seat.holder == "a"} == {index.registry.generations["a"]}
    for seat in found.seats:
        if seat.blocks:
            assert seat.oldest_use_s is not None
            assert seat.newest_use_s is not None
            assert 60 > seat.oldest_use_s >= seat.newest_use_s >= 0
        else:
            assert (seat.oldest_use_s, seat.newest_use_s) == (None, None)
    assert (found.nodes, found.blocks) == (4, 47)
    assert 47 * 8 < found.estimated_bytes < 47 * 9 + 4 * 400
    assert found.seats_used == len(found.seats)
    assert found.seats_used + found.seats_free + found.seats_ending == SLOTS


async def test_a_census_of_many_seats_is_read_in_pages(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    await index.send([index.observe_call(f"e{number}", chain("x" * (1 + number % 7))) for number in range(300)])
    found = await census(client, pool)
    assert {seat.holder: seat.blocks for seat in found.seats} == {f"e{n}": 1 + n % 7 for n in range(300)}


async def test_the_heaviest_prefix_is_long_and_shared_by_many_prompts(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    for user in range(6):
        leaf = bytes([user]) * 16
        await index.observe(f"e{user % 2}", Chain(chain("s" * 10).hashes + leaf, 16, 192))
    await index.observe("e2", chain("t" * 30))
    await index.observe("e3", chain("uuu"))
    await index.clear("e3")
    found = await hottest(client, pool, top=2, max_nodes=1000)
    assert (found.nodes_read, found.cut) == (8, False)
    first, second = found.prefixes
    assert first.hash == chain("s" * 10).hashes[-8:].hex()
    assert (first.blocks, first.depth_blocks, first.prompts, first.children) == (10, 10, 6, 6)
    assert (first.weight_blocks, first.holders) == (60, ("e0", "e1"))
    assert (second.weight_blocks, second.prompts, second.children, second.holders) == (30, 1, 0, ("e2",))
    assert 0 <= first.last_use_s < 60
    everything = (await hottest(client, pool, top=100, max_nodes=1000)).prefixes
    assert {prefix.depth_blocks for prefix in everything} == {10, 12, 30}
    assert all(prefix.holders for prefix in everything)


async def test_a_reading_that_stops_at_its_limit_says_so(client: Redis, pool: str) -> None:
    index = RedisRadix(client, pool)
    stem = chain("s" * 4)
    calls = [index.observe_call("a", Chain(stem.hashes + number.to_bytes(8, "big"), 16, 80)) for number in range(3000)]
    await index.send(calls)
    whole = await hottest(client, pool, top=1, max_nodes=10_000)
    assert (whole.cut, whole.nodes_read, whole.prefixes[0].prompts) == (False, 3001, 3000)
    part = await hottest(client, pool, top=3001, max_nodes=500)
    assert part.cut
    assert 500 <= part.nodes_read < 3001
    assert {prefix.depth_blocks for prefix in part.prefixes} <= {None, 4, 5}


async def test_a_server_that_is_away_is_said_to_be(client: Redis) -> None:
    async with Redis.from_url("redis://127.0.0.1:1") as nobody:
        with pytest.raises(IndexUnavailable) as refusal:
            await census(nobody, "p")
        assert refusal.value.reason is DegradedReason.UNREACHABLE
        with pytest.raises(IndexUnavailable):
            await hottest(nobody, "p", top=1, max_nodes=1)
