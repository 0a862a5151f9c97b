"""The order in which a set of tools came first: shared, bounded, and unknown where Redis does not answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.fixes.orders import ToolOrders
from prefix_index import EmbeddedServer, connect


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    async with EmbeddedServer() as server, connect(server.url) as client:
        assert isinstance(client, Redis)
        yield client


async def test_the_first_order_of_a_set_is_that_of_all_replicas(redis: Redis) -> None:
    one, other = ToolOrders(redis), ToolOrders(redis)
    assert await one.order_of("acme", ("c", "a", "b")) == ("c", "a", "b")
    assert await other.order_of("acme", ("b", "a", "c")) == ("c", "a", "b")
    assert await one.order_of("acme", ("a", "b", "c")) == ("c", "a", "b")
    assert await other.order_of("beta", ("b", "a", "c")) == ("b", "a", "c"), "each tenant has its own"
    assert await other.order_of("acme", ("b", "a")) == ("b", "a"), "another set"


async def test_replicas_that_start_at_once_agree(redis: Redis) -> None:
    came = [("c", "a", "b"), ("b", "c", "a"), ("a", "b", "c")]
    orders = await asyncio.gather(*(ToolOrders(redis).order_of("acme", names) for names in came))
    assert len(set(orders)) == 1
    assert orders[0] in came


async def test_what_is_no_order_or_of_another_set_is_unknown(redis: Redis) -> None:
    orders = ToolOrders(redis, "p")
    await orders.order_of("acme", ("a", "b"))
    (key,) = [key async for key in redis.scan_iter(match="*tools*")]
    await redis.set(key, b"\xff{")
    assert await ToolOrders(redis, "p").order_of("acme", ("a", "b")) is None
    await redis.delete(key)
    await redis.lpush(key, "x")
    assert await ToolOrders(redis, "p").order_of("acme", ("b", "a")) is None


async def test_without_redis_it_is_kept_here_and_bounded() -> None:
    orders = ToolOrders(most=2)
    assert await orders.order_of("acme", ("b", "a")) == ("b", "a")
    assert await orders.order_of("acme", ("a", "b")) == ("b", "a")
    for name in "xyz":
        await orders.order_of("acme", (name, "a"))
    assert await orders.order_of("acme", ("a", "b")) == ("a", "b"), "forgotten"


async def test_where_redis_does_not_answer_nothing_is_known() -> None:
    async with EmbeddedServer() as server:
        url = server.url
    async with connect(url) as gone:
        assert await ToolOrders(gone).order_of("acme", ("b", "a")) is None
