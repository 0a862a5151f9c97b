"""The upstream client reading: every framing of an answer, what is there without waiting, and how little is held."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends.client import UpstreamClient, UpstreamResponse
from backends.errors import IdleTimeout, UpstreamProtocolError, UpstreamReset
from backends.types import UpstreamRequest
from tests.backends.upstream import CHAT, PATIENT, Case, cases, endpoint, peer_sees_us_leave, run_on_uvloop
from tests.hostile import Behaviour, HostileServer, Peer, answer, hang, head_then, raw, stream


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


def then_close(wire: bytes) -> Behaviour:
    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(wire)

    return behave


def each(*wires: bytes) -> Behaviour:
    """One answer to each request on a connection, then silence."""

    async def behave(peer: Peer) -> None:
        for wire in wires:
            await peer.read_request()
            await peer.send(wire)
        await peer.hang()

    return behave


SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def ask(client: UpstreamClient, server: HostileServer, method: str = "POST") -> tuple[int, bytes, bool]:
    request = UpstreamRequest(method, "/v1/x")
    async with await client.send(endpoint(server.url), request, PATIENT) as response:
        return response.status, await response.read(1_000_000), response.reused_connection


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_an_answer_without_a_length_ends_with_the_connection(client: UpstreamClient, head: bytes) -> None:
    async with HostileServer([then_close(head + b"all of it")]) as server:
        assert await ask(client, server) == (200, b"all of it", False)
        assert await ask(client, server) == (200, b"all of it", False)


async def test_an_answer_without_a_length_that_is_reset_is_not_whole(client: UpstreamClient) -> None:
    reset_wanted = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await reset_wanted.wait()
        peer.reset()

    async with HostileServer([behave]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert await response.read_chunk() == b"half"
        reset_wanted.set()
        with pytest.raises(UpstreamReset):
            await response.read_chunk()


async def test_answers_that_cannot_have_a_body_have_none_and_keep_the_connection(client: UpstreamClient) -> None:
    heads = [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", SIZED]
    async with HostileServer([each(*heads)]) as server:
        got = [await ask(client, server) for _ in heads]
    assert got == [(204, b"", False), (304, b"", True), (200, b"ok", True)]


async def test_an_answer_to_head_is_its_head(client: UpstreamClient) -> None:
    async with HostileServer([each(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"), answer(b"ok")]) as server:
        assert await ask(client, server, "HEAD") == (200, b"", False)
        assert await ask(client, server) == (200, b"ok", False)


async def test_interim_answers_are_skipped_whether_together_or_apart(client: UpstreamClient) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"

    async def apart(peer: Peer) -> None:
        await peer.read_request()
        for piece in (*interim, SIZED):
            await peer.send(piece)
        await peer.hang()

    async with HostileServer([each(b"".join(interim) + SIZED), apart]) as server:
        assert await ask(client, server) == (200, b"ok", False)
        server.peers[0].reset()
        assert await ask(client, server) == (200, b"ok", False)


async def test_an_interim_answer_alone_is_no_answer(client: UpstreamClient) -> None:
    async with HostileServer([raw(b"HTTP/1.1 100 Continue\r\n\r\n")]) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.send(endpoint(server.url), CHAT, PATIENT)
        await peer_sees_us_leave(server.peers[0])


async def test_a_protocol_that_nobody_asked_for_is_a_protocol_error(client: UpstreamClient) -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    async with HostileServer([raw(switch)]) as server:
        with pytest.raises(UpstreamProtocolError):
            await client.send(endpoint(server.url), CHAT, PATIENT)


async def test_chunks_with_extensions_and_trailers_are_a_body_and_keep_the_connection(client: UpstreamClient) -> None:
    wire = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0;last\r\nx-trailer: 1\r\n\r\n"
    async with HostileServer([each(wire, SIZED)]) as server:
        assert await ask(client, server) == (200, b"ok", False)
        assert await ask(client, server) == (200, b"ok", True)


async def test_a_connection_that_the_endpoint_wants_closed_is_closed(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok", extra=b"Connection: Close\r\n")]) as server:
        assert await ask(client, server) == (200, b"ok", False)
        await peer_sees_us_leave(server.peers[0])
        assert await ask(client, server) == (200, b"ok", False)


async def test_events_that_came_together_leave_together_and_without_waiting(client: UpstreamClient) -> None:
    async with (
        HostileServer([stream(b"data: 1\n\n", b"data: 2\n\n", b"data: 3\n\n")]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        assert response.take() == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
        assert response.take() == b""
        assert response.received_bytes == 27


async def test_take_says_what_is_there_and_never_waits(client: UpstreamClient) -> None:
    more_wanted, end_wanted = asyncio.Event(), asyncio.Event()

    async def after(peer: Peer) -> None:
        await more_wanted.wait()
        await peer.send(b"5\r\nworld\r\n")
        await end_wanted.wait()
        await peer.send(b"0\r\n\r\n")
        await peer.hang()

    async with HostileServer([head_then(after)]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert response.take() is None
        more_wanted.set()
        assert await response.read_chunk() == b"world"
        assert response.take() is None
        end_wanted.set()
        assert await response.read_chunk() == b""
        assert response.take() == b""


async def test_what_came_before_a_failure_is_read_before_it_is_told(client: UpstreamClient) -> None:
    wire = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"
    async with HostileServer([raw(wire)]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert response.take() == b"hello"
        with pytest.raises(UpstreamProtocolError) as failure:
            response.take()
        assert failure.value.received_bytes == 5
        assert response.take() == b""


async def test_reading_what_is_there_does_not_suspend(client: UpstreamClient) -> None:
    async with (
        HostileServer([answer(b"ok")]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        for wanted in (b"ok", b"", b""):
            assert ran_through(response) == wanted


def ran_through(response: UpstreamResponse) -> bytes:
    """The result of `read_chunk`, which must not wait for anything."""
    step = response.read_chunk().__await__()
    with pytest.raises(StopIteration) as done:
        next(step)
    return bytes(done.value.value)


async def test_the_time_of_connecting_is_told_and_a_kept_connection_has_none(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            assert 0 < response.connected_s < 5
            await response.read(10)
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            assert response.connected_s == 0.0


async def test_an_answer_that_has_come_gives_its_connection_back_before_it_is_read(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        first = await client.send(endpoint(server.url), CHAT, PATIENT)
        second = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert second.reused_connection
        assert (await first.read(10), await second.read(10)) == (b"ok", b"ok")
        assert len(server.peers) == 1


async def test_leaving_an_answer_that_has_come_leaves_the_connection_alone(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            response.abort()
            assert response.take() == b""
        assert (await ask(client, server))[2]


async def test_one_read_can_have_less_patience_than_the_others(client: UpstreamClient) -> None:
    async with HostileServer([head_then(hang, b"hello")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert await response.read_chunk(0.01) == b"hello"
        with pytest.raises(IdleTimeout) as failure:
            await response.read_chunk(0.05)
        assert failure.value.after_s == 0.05
        await peer_sees_us_leave(server.peers[0])


async def test_a_reader_that_was_cancelled_may_read_on(client: UpstreamClient) -> None:
    more_wanted = asyncio.Event()

    async def after(peer: Peer) -> None:
        await more_wanted.wait()
        await peer.send(b"5\r\nworld\r\n0\r\n\r\n")
        await peer.hang()

    async with HostileServer([head_then(after, b"hello")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert await response.read_chunk() == b"hello"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await response.read_chunk()
        more_wanted.set()
        assert await response.read(100) == b"world"


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
