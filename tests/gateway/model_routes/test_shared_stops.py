"""An arm that one gateway has stopped is stopped for all that share a Redis."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from gateway.model_routes import Arm, ModelRoute, ModelRoutes, RouteParts, SharedStops, UnknownArm
from gateway.route_metrics import RouteMetrics
from prefix_index import EmbeddedServer, RedisClient
from prefix_index.redis_clients import connect_one

SPLIT = ModelRoute("fast", (Arm("old", "m", 9), Arm("new", "n", 1)))


@pytest.fixture
async def redis() -> AsyncIterator[RedisClient]:
    async with EmbeddedServer() as server:
        client = connect_one(server.url)
        yield client
        await client.aclose()


def names() -> ModelRoutes:
    nobody: Any = None  # nothing is chosen here
    return ModelRoutes([SPLIT], RouteParts(nobody, nobody, RouteMetrics(CollectorRegistry()), lambda: 0.0))


async def test_what_one_has_stopped_is_stopped_for_all_and_goes_on_for_all(redis: RedisClient) -> None:
    one, two = names(), names()
    first, second = SharedStops(one, redis, "p"), SharedStops(two, redis, "p")
    elsewhere = names()
    await SharedStops(elsewhere, redis, "another").look()
    one.stop("fast", "new", "errors: too many")
    await first.look()
    await second.look()
    assert one.problems() == two.problems() == ["fast: arm new: errors: too many"]
    later = names()
    await SharedStops(later, redis, "p").look()
    assert later.problems() == two.problems()
    two.stop("fast", "new", None)
    assert one.problems() != []
    await second.look()
    await first.look()
    assert one.problems() == two.problems() == elsewhere.problems() == []


async def test_what_was_decided_while_redis_was_away_is_told_when_it_is_back() -> None:
    async with EmbeddedServer() as gone:
        url = gone.url
    routes = names()
    away = connect_one(url)
    stops = SharedStops(routes, away, "p")
    routes.stop("fast", "new", "errors")
    await stops.look()
    assert routes.problems() == ["fast: arm new: errors"], "kept, though nobody could be told"
    await away.aclose()
    async with EmbeddedServer() as server:
        stops._redis = connect_one(server.url)
        await stops.look()
        other = names()
        await SharedStops(other, stops._redis, "p").look()
        await stops._redis.aclose()
    assert other.problems() == routes.problems()


async def test_a_redis_that_lost_what_it_knew_lets_nothing_go_on(redis: RedisClient) -> None:
    routes = names()
    stops = SharedStops(routes, redis, "p")
    routes.stop("fast", "new", "x" * 1000)
    await stops.look()
    await stops.look()
    assert len(routes.problems()[0]) < 300
    await connect_flush(redis)
    await stops.look()
    later = names()
    await SharedStops(later, redis, "p").look()
    assert routes.problems() == later.problems() != [], "who starts after that knows it too"


async def connect_flush(redis: RedisClient) -> None:
    assert isinstance(redis, Redis)
    await redis.flushall()


def test_only_arms_that_have_others_beside_them_can_be_stopped() -> None:
    alone: Any = None
    routes = ModelRoutes(
        [ModelRoute("alias", (Arm("m", "m", 1),))],
        RouteParts(alone, alone, RouteMetrics(CollectorRegistry()), lambda: 0.0),
    )
    with pytest.raises(UnknownArm, match="alias"):
        routes.stop("alias", "m", "by hand")
