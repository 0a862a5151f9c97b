"""Kept responses: whose, and where, here and on every replica, with Redis and without."""

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from socket import socket

import pytest

from gateway.response_owners import LONGEST_ID_CHARS, ResponseOwners
from gateway.types import TenantId
from prefix_index import EmbeddedServer, connect
from prefix_index.redis_clients import connect_one
from tests.prefix_index.servers import cluster

ONE, TWO = TenantId("one"), TenantId("two")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with EmbeddedServer() as server:
        yield server.url


async def test_a_response_belongs_to_its_tenant_and_to_no_other() -> None:
    owners = ResponseOwners()
    await owners.remember("resp_1", ONE, "e0@1")
    assert await owners.holder_of("resp_1", ONE) == "e0@1"
    assert await owners.holder_of("resp_1", TWO) is None
    assert await owners.holder_of("resp_2", ONE) is None


async def test_an_id_that_one_engine_gives_twice_is_nobodys() -> None:
    owners = ResponseOwners()
    await owners.remember("resp_1", ONE, "e0@1")
    await owners.remember("resp_1", TWO, "e0@1")
    assert await owners.holder_of("resp_1", ONE) is None
    assert await owners.holder_of("resp_1", TWO) is None


async def test_an_id_given_again_elsewhere_or_after_a_restart_is_that_of_whom_it_was_given_to_last() -> None:
    owners = ResponseOwners()
    await owners.remember("resp_1", ONE, "e0@1")
    await owners.remember("resp_1", TWO, "e0@2")
    assert await owners.holder_of("resp_1", ONE) is None
    assert await owners.holder_of("resp_1", TWO) == "e0@2"


async def test_the_oldest_goes_first_and_an_endless_id_is_not_kept() -> None:
    owners = ResponseOwners(most=2)
    for number in range(3):
        await owners.remember(f"resp_{number}", ONE, "e0@1")
    await owners.remember("x" * (LONGEST_ID_CHARS + 1), ONE, "e0@1")
    found = [await owners.holder_of(f"resp_{number}", ONE) for number in range(3)]
    assert found == [None, "e0@1", "e0@1"]
    assert await owners.holder_of("x" * (LONGEST_ID_CHARS + 1), ONE) is None


async def test_every_replica_of_a_pool_knows_and_no_other_pool_does(url: str) -> None:
    async with connect_one(url) as redis, connect_one(url) as again:
        await ResponseOwners(redis, "a").remember("resp_1", ONE, "e0@1")
        replica, other_pool = ResponseOwners(again, "a"), ResponseOwners(again, "b")
        assert await replica.holder_of("resp_1", ONE) == "e0@1"
        assert await replica.holder_of("resp_1", TWO) is None
        assert await other_pool.holder_of("resp_1", ONE) is None


async def test_every_replica_knows_where_redis_is_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        urls = [f"redis+cluster://127.0.0.1:{node.port}" for node in nodes]
        async with connect(urls[0]) as redis, connect(urls[2]) as again:
            for pool in "abc":
                await ResponseOwners(redis, pool).remember("resp_1", ONE, "e0@1")
                assert await ResponseOwners(again, pool).holder_of("resp_1", ONE) == "e0@1"
                assert await ResponseOwners(again, pool).holder_of("resp_1", TWO) is None


async def test_replicas_agree_that_an_id_given_twice_is_nobodys(url: str) -> None:
    async with connect_one(url) as redis:
        await ResponseOwners(redis).remember("resp_1", ONE, "e0@1")
        await ResponseOwners(redis).remember("resp_1", TWO, "e0@1")
        fresh = ResponseOwners(redis)
        assert await fresh.holder_of("resp_1", ONE) is None
        assert await fresh.holder_of("resp_1", TWO) is None


async def test_a_replica_learns_that_an_id_of_its_own_has_become_nobodys_elsewhere(url: str) -> None:
    async with connect_one(url) as redis:
        first, second = ResponseOwners(redis), ResponseOwners(redis)
        await first.remember("resp_1", ONE, "e0@1")
        await second.remember("resp_1", TWO, "e0@1")
        for replica in (first, second):
            assert await replica.holder_of("resp_1", ONE) is None
            assert await replica.holder_of("resp_1", TWO) is None


async def test_redis_holds_no_id_and_forgets_in_time(url: str) -> None:
    async with connect_one(url) as redis:
        await ResponseOwners(redis).remember("resp_secret", ONE, "e0@1")
        (key,) = [key async for key in redis.scan_iter("*response*")]
        assert b"secret" not in key
        assert 0 < await redis.ttl(key) <= 7 * 24 * 3600


async def test_a_redis_that_is_away_or_silent_makes_nobody_wait_and_nothing_fail() -> None:
    with closing(socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for url in (f"redis://127.0.0.1:{silent.getsockname()[1]}", "redis://127.0.0.1:1"):
            async with connect_one(url) as redis:
                owners = ResponseOwners(redis)
                await owners.remember("resp_1", ONE, "e0@1")
                assert await owners.holder_of("resp_1", ONE) == "e0@1"
                assert await owners.holder_of("resp_2", ONE) is None
