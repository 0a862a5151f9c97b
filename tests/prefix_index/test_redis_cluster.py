"""Who serves a key in a cluster: asked once, corrected by the nodes, forgotten when its server does not answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from redis import exceptions as redis_errors
from redis.crc import key_slot

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_clients import connect
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_link import RedisLink
from prefix_index.redis_wire import call_of
from prefix_index.types import DegradedReason
from tests.prefix_index.door import Door

KEY = b"{p}:x"
SLOT = key_slot(KEY)


@asynccontextmanager
async def a_node(answer: Callable[[list[bytes]], bytes]) -> AsyncIterator[int]:
    """The port of something that answers each command as it is told to."""

    streams: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        streams.append(writer)
        while head := await reader.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2])
            writer.write(answer(words))

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        yield listener.sockets[0].getsockname()[1]
        for stream in streams:
            stream.transport.abort()
        await asyncio.sleep(0)  # their sockets are closed in the next tick


def slots(host: str, port: int, last: int = 16383) -> bytes:
    """The answer to CLUSTER SLOTS: one range."""
    return b"*1\r\n*3\r\n:0\r\n:%d\r\n*2\r\n$%d\r\n%s\r\n:%d\r\n" % (last, len(host), host.encode(), port)


async def test_a_node_that_does_not_know_its_own_name_is_the_one_that_answered() -> None:
    def answer(words: list[bytes]) -> bytes:
        return slots("", port) if words[0] == b"CLUSTER" else b"$2\r\nhi\r\n"

    async with a_node(answer) as port, client_of(port) as client:
        assert await client.get(KEY) == b"hi"


@asynccontextmanager
async def client_of(*ports: int) -> AsyncIterator[ClusterClient]:
    client = connect(f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in ports)}")
    assert isinstance(client, ClusterClient)
    async with client:
        yield client


async def test_nodes_that_point_at_each_other_are_given_up() -> None:
    def answer(words: list[bytes]) -> bytes:
        return slots("127.0.0.1", port) if words[0] == b"CLUSTER" else b"-MOVED %d 127.0.0.1:%d\r\n" % (SLOT, port)

    async with a_node(answer) as port, client_of(port) as client:
        with pytest.raises(redis_errors.ConnectionError, match="point at each other"):
            await client.get(KEY)


async def test_a_key_that_moved_is_asked_for_at_its_new_home_from_then_on() -> None:
    asked: list[bytes] = []

    def old(words: list[bytes]) -> bytes:
        asked.append(words[0])
        return slots("127.0.0.1", old_port) if words[0] == b"CLUSTER" else b"-MOVED %d 127.0.0.1:%d\r\n" % (SLOT, port)

    async with a_node(lambda _: b"+OK\r\n") as port, a_node(old) as old_port, client_of(old_port) as client:
        assert await client.set(KEY, b"v", nx=True, ex=5)
        assert await client.set(KEY, b"v")
        assert asked == [b"CLUSTER", b"SET"]


async def test_a_slot_that_nobody_serves_and_nodes_that_are_silent_or_none_are_passed_over() -> None:
    silent = Door("")
    await silent.stall()

    def no_cluster(_: list[bytes]) -> bytes:
        return b"-ERR This instance has cluster support disabled\r\n"

    def answer(_: list[bytes]) -> bytes:
        return slots("127.0.0.1", port, last=SLOT - 1)

    async with a_node(no_cluster) as other, a_node(answer) as port, client_of(silent.port, other, port) as client:
        with pytest.raises(redis_errors.ConnectionError, match="says who serves the index: This instance has"):
            await client.primary_of(KEY)
    await silent.shut()


async def test_who_does_not_answer_is_asked_for_anew() -> None:
    asked: list[bytes] = []
    gone = Door("")
    await gone.choose_port()

    def answer(words: list[bytes]) -> bytes:
        asked.append(words[0])
        return slots("127.0.0.1", gone.port if len(asked) == 1 else port) if words[0] == b"CLUSTER" else b"$2\r\nhi\r\n"

    async with a_node(answer) as port, client_of(port) as client:
        with pytest.raises(redis_errors.ConnectionError):
            await client.get(KEY)
        assert await client.get(KEY) == b"hi"
        assert asked == [b"CLUSTER", b"CLUSTER", b"GET"]


COUNT = call_of("count", "nobody", "c", read_only=True)


@pytest.mark.parametrize("complaint", [b"CLUSTERDOWN The cluster is down", b"MOVED %d 127.0.0.1:%d"])
async def test_a_cluster_that_serves_nobody_refuses_and_is_asked_around_again(complaint: bytes) -> None:
    asked: list[bytes] = []

    def answer(words: list[bytes]) -> bytes:
        asked.append(words[0])
        if words[0] == b"CLUSTER":
            return slots("127.0.0.1", port)
        return b"-%s\r\n" % (complaint % (SLOT, port) if b"%" in complaint else complaint)

    async with a_node(answer) as port, client_of(port) as client:
        link = RedisLink(client, [KEY])
        for _ in range(2):
            with pytest.raises(IndexUnavailable) as refusal:
                await link.call(COUNT)
            assert refusal.value.reason is DegradedReason.REFUSED
    assert asked.count(b"CLUSTER") == (2 if complaint.startswith(b"CLUSTERDOWN") else 1)
