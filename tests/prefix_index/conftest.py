"""Servers for the tests of the index: the packaged Valkey, and Redis where the machine has one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
from redis.asyncio import Redis

from prefix_index.embedded import EmbeddedServer
from prefix_index.radix import RadixIndex
from tests.prefix_index.door import Door
from tests.prefix_index.subjects import SERVERS, InRedis, Subject

pools = (f"pool {number}" for number in count())


@pytest.fixture(scope="session")
def server_urls() -> Iterator[dict[str, str]]:
    """One server of each kind, shared by all tests; each test uses pools of its own."""
    with asyncio.Runner() as runner:
        servers = {kind: EmbeddedServer(binary=binary) for kind, binary in SERVERS.items()}
        for server in servers.values():
            runner.run(server.start())
        yield {kind: server.url for kind, server in servers.items()}
        for server in servers.values():
            runner.run(server.stop())


@pytest.fixture
def server_url(server_urls: dict[str, str]) -> str:
    """The packaged server."""
    return server_urls["valkey"]


@pytest.fixture(params=SERVERS)
async def client(request: pytest.FixtureRequest, server_urls: dict[str, str]) -> AsyncIterator[Redis]:
    """A client of each kind of server."""
    async with Redis.from_url(server_urls[request.param]) as client:
        yield client


@pytest.fixture
def pool() -> str:
    """A pool that no other test uses."""
    return next(pools)


@pytest.fixture(params=["in process", *SERVERS])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """Each implementation of the radix index, empty."""
    if request.param == "in process":
        yield RadixIndex[str]()
        return
    in_redis = InRedis(request.getfixturevalue("server_urls")[request.param])
    yield in_redis
    in_redis.close()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A server for one test, which may break it."""
    async with EmbeddedServer() as server:
        yield server


@pytest.fixture
async def door(server: EmbeddedServer) -> AsyncIterator[Door]:
    """A way to that server which can be shut, be slow or talk nonsense; shut at first."""
    door = Door(server.url)
    yield door
    await door.shut()
