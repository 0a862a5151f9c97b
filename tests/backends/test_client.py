"""The upstream client passing requests and answers on, against servers on real ports."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends.client import UpstreamClient
from backends.connection import READ_BUFFER_BYTES
from backends.errors import (
    UpstreamProtocolError,
)
from backends.types import EndpointConfig, UpstreamRequest
from tests.backends.upstream import CHAT, PATIENT, Case, cases, endpoint, peer_sees_us_leave, run_on_uvloop
from tests.hostile import (
    HostileServer,
    Peer,
    answer,
    hang,
    head_then,
    stream,
)


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


async def test_a_plain_answer_comes_back_with_status_headers_and_body(client: UpstreamClient) -> None:
    extra = b"X-Thing: 1\r\nConnection: keep-alive, x-hop\r\nX-Hop: 2\r\nSet-Cookie: a=b\r\n"
    async with (
        HostileServer([answer(b"{}", status=b"418 I'm a teapot", extra=extra)]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        assert response.status == 418
        assert response.headers == ((b"x-thing", b"1"), (b"content-length", b"2"))
        assert await response.read(100) == b"{}"
        assert await response.read_chunk() == b""


async def test_the_request_arrives_as_sent_but_for_credentials_and_hop_by_hop_fields(client: UpstreamClient) -> None:
    sent = (
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer of-the-client"),
        (b"x-api-key", b"of-the-client"),
        (b"cookie", b"c=1"),
        (b"accept-encoding", b"gzip"),
        (b"connection", b"keep-alive, x-private"),
        (b"x-private", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"host", b"gateway"),
        (b"x-twice", b"1"),
        (b"x-twice", "grün".encode()),
    )
    async with HostileServer([answer(b"ok")]) as server:
        target = endpoint(server.url + "/base/path/", api_key="own-key")
        async with await client.send(target, UpstreamRequest("POST", "/v1/x?a=%2F&b=%20c", sent, b"body"), PATIENT):
            pass
        head, body = server.peers[0].requests[0].split(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /base/path/v1/x?a=%2F&b=%20c HTTP/1.1"
    assert body == b"body"
    assert sorted(line.lower() for line in lines[1:]) == sorted(
        [
            b"host: 127.0.0.1:%d" % server.port,
            b"content-type: application/json",
            b"x-twice: 1",
            "x-twice: grün".encode(),
            b"accept-encoding: identity",
            b"authorization: bearer own-key",
            b"content-length: 4",
        ]
    )


async def test_redirects_and_compressed_bodies_are_passed_on_untouched(client: UpstreamClient) -> None:
    extra = b"location: /elsewhere\r\ncontent-encoding: gzip\r\n"
    async with (
        HostileServer([answer(b"\x1f\x8b not really", status=b"307 Temporary Redirect", extra=extra)]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        assert response.status == 307
        assert (b"content-encoding", b"gzip") in response.headers
        assert await response.read(100) == b"\x1f\x8b not really"


async def test_chunks_are_passed_on_when_they_come(client: UpstreamClient) -> None:
    second_wanted = asyncio.Event()

    async def behave(peer: Peer) -> None:
        await second_wanted.wait()
        await peer.send(b"5\r\nworld\r\n0\r\n\r\n")
        await peer.hang()

    async with (
        HostileServer([head_then(behave, b"hello")]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        assert await response.read_chunk() == b"hello"
        second_wanted.set()
        assert [chunk async for chunk in response] == [b"world"]


async def test_a_body_that_trickles_in_single_bytes_is_whole(client: UpstreamClient) -> None:
    events = (b"data: {}\r\n\r\n", "data: ü€😀\n\n".encode(), b"data: [DONE]\n\n")
    async with (
        HostileServer([stream(*events, trickle=True)]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        assert await response.read(1000) == b"".join(events)


async def test_connections_are_kept_and_reused_after_the_end_of_a_body(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        for turn in range(3):
            async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
                assert await response.read(10) == b"ok"
                assert response.reused_connection == (turn > 0)
        assert len(server.peers) == 1


async def test_an_aborted_response_is_seen_by_the_endpoint_and_its_connection_not_reused(
    client: UpstreamClient,
) -> None:
    async with HostileServer([head_then(hang, b"hello"), answer(b"ok")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        await response.read_chunk()
        response.abort()
        response.abort()
        await peer_sees_us_leave(server.peers[0])
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as second:
            assert await second.read(10) == b"ok"
            assert not second.reused_connection


async def test_leaving_before_the_first_byte_is_seen_by_the_endpoint(client: UpstreamClient) -> None:
    async with HostileServer([hang]) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.send(endpoint(server.url), CHAT, PATIENT))
            peer = await server.peer(0)
            call.cancel()
        await peer_sees_us_leave(peer)


async def test_a_cancelled_reader_leaves_the_response_usable_for_abort(client: UpstreamClient) -> None:
    async with HostileServer([head_then(hang, b"hello")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            await response.read_chunk()
            async with asyncio.TaskGroup() as group:
                group.create_task(response.read_chunk()).cancel()
        await peer_sees_us_leave(server.peers[0])


async def test_a_slow_reader_holds_the_endpoint_back_instead_of_filling_memory(client: UpstreamClient) -> None:
    total = 64 * 1024 * 1024
    sent = 0
    stalled = asyncio.Event()

    async def pour(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        piece = b"x" * 65536
        while sent < total:
            sender = asyncio.ensure_future(peer.send(piece))
            done, _ = await asyncio.wait([sender], timeout=0.2)
            if not done:
                stalled.set()
            await sender
            sent += len(piece)

    async with HostileServer([pour]) as server, await client.send(endpoint(server.url), CHAT, PATIENT) as response:
        async with asyncio.timeout(10):
            await stalled.wait()
        assert sent < total // 4
        assert len(await response.read_chunk()) <= 4 * READ_BUFFER_BYTES + 256 * 1024
        async for _ in response:
            pass
        assert response.received_bytes == total


async def test_a_body_that_ends_with_the_connection_is_whole_even_for_a_slow_reader(client: UpstreamClient) -> None:
    total = 2_000_000

    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % total)
        await peer.send(b"x" * total)

    async with (
        HostileServer([behave]) as server,
        await client.send(endpoint(server.url), CHAT, PATIENT) as response,
    ):
        async for _ in response:
            await asyncio.sleep(0.001)
        assert response.received_bytes == total


async def test_an_answer_before_the_body_was_read_is_an_answer(client: UpstreamClient) -> None:
    async def refuse_early(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbig")
        await peer.hang()

    async with HostileServer([refuse_early]) as server:
        request = UpstreamRequest("POST", "/v1/x", (), b"x" * 8_000_000)
        async with await client.send(endpoint(server.url), request, PATIENT) as response:
            assert response.status == 413
            assert await response.read(10) == b"big"


async def test_read_refuses_bodies_over_its_limit(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"x" * 1000)]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        with pytest.raises(UpstreamProtocolError):
            await response.read(999)


async def test_many_calls_at_once_share_the_client(client: UpstreamClient) -> None:
    async def call(target: EndpointConfig) -> bytes:
        async with await client.send(target, CHAT, PATIENT) as response:
            return await response.read(10)

    async with HostileServer([answer(b"ok")]) as server:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(call(endpoint(server.url))) for _ in range(100)]
        assert {done.result() for done in calls} == {b"ok"}


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
