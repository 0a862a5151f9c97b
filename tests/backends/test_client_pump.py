"""The upstream client handing on what arrives in the very call that read it, against servers on real ports."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from backends.client import UpstreamClient
from backends.connection import READ_BUFFER_BYTES
from backends.errors import IdleTimeout, UpstreamReset
from backends.types import Deadlines
from tests.backends.upstream import CHAT, PATIENT, Case, cases, endpoint, run_on_uvloop
from tests.hostile import HostileServer, Peer, hang, head_then, stream

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def into(found: list[bytes], until: Callable[[bytes], bool] = lambda _: False) -> Callable[[bytes], bool]:
    """A sink that keeps what it is given, and stops after a chunk that is the one."""

    def sink(chunk: bytes) -> bool:
        found.append(chunk)
        return not until(chunk)

    return sink


async def test_all_chunks_pass_through_the_sink_in_order_and_the_end_is_read_behind_them(
    client: UpstreamClient,
) -> None:
    found: list[bytes] = []
    seen = asyncio.Event()

    async def two_times(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(b"one"))
        await seen.wait()
        await peer.send(chunked(b"two") + chunked(b"three") + b"0\r\n\r\n")

    def sink(chunk: bytes) -> bool:
        found.append(chunk)
        seen.set()
        return True

    async with (
        HostileServer([two_times]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        await response.pump(sink)
        assert found == [b"one", b"twothree"]
        assert await response.read_chunk() == b""
        assert response.received_bytes == len(b"onetwothree")


async def test_a_sink_that_wants_no_more_leaves_the_rest_to_the_reader(client: UpstreamClient) -> None:
    found: list[bytes] = []

    async def goes_on(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(b"one"))
        while not found:
            await asyncio.sleep(0)
        await peer.send(chunked(b"two") + b"0\r\n\r\n")

    async with (
        HostileServer([goes_on]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        await response.pump(into(found, until=lambda _: True))
        assert found == [b"one"]
        assert await response.read_chunk() == b"two"
        await response.pump(into(found))  # nothing more comes
        assert await response.read_chunk() == b""
    assert found == [b"one"]


async def test_an_engine_is_not_read_while_no_sink_and_no_reader_takes_what_it_sends(client: UpstreamClient) -> None:
    found: list[bytes] = []
    sent_bytes = 0

    async def floods(peer: Peer) -> None:
        nonlocal sent_bytes
        await peer.read_request()
        await peer.send(HEAD)
        for _ in range(400):
            await peer.send(chunked(b"x" * 100_000))
            sent_bytes += 100_000
        await peer.send(b"0\r\n\r\n")

    async with (
        HostileServer([floods]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        await response.pump(into(found, until=lambda _: True))
        before = -1
        while before != sent_bytes:  # until the engine is stuck
            before = sent_bytes
            await asyncio.sleep(0.2)
        assert sent_bytes < 400 * 100_000
        assert response.unread_bytes < READ_BUFFER_BYTES + 256 * 1024
        await response.pump(into(found))
        assert sum(map(len, found)) == 400 * 100_000


async def test_what_a_sink_raises_is_raised_where_it_is_pumped_into(client: UpstreamClient) -> None:
    said = asyncio.Event()

    async def one_by_one(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(HEAD + chunked(b"good"))
        await said.wait()
        await peer.send(chunked(b"bad"))
        await peer.hang()

    def sink(chunk: bytes) -> bool:
        said.set()
        if chunk == b"bad":
            raise ValueError(chunk)
        return True

    async with (
        HostileServer([one_by_one]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        with pytest.raises(ValueError, match="bad"):
            await response.pump(sink)


async def test_a_failure_is_told_by_the_next_read(client: UpstreamClient) -> None:
    found: list[bytes] = []
    async with (
        HostileServer([stream(b"one", end=False)]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        await response.pump(into(found))
        assert found == [b"one"]
        with pytest.raises(UpstreamReset):
            await response.read_chunk()


async def test_silence_is_noticed_while_a_sink_waits(client: UpstreamClient) -> None:
    found: list[bytes] = []
    async with (
        HostileServer([head_then(hang, b"one")]) as server,
        await client.send(endpoint(server.url), CHAT, Deadlines(5, 5, 0.2)) as response,
    ):
        await response.pump(into(found))
        assert found == [b"one"]
        with pytest.raises(IdleTimeout):
            await response.read_chunk()


async def test_one_who_is_cancelled_while_pumping_is_given_nothing_more(client: UpstreamClient) -> None:
    found: list[bytes] = []
    async with (
        HostileServer([head_then(hang, b"one")]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await response.pump(into(found))
    assert found == [b"one"]


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__)
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
