"""The upstream client writing: what goes out at once, what waits for the socket, and answers before the end of it."""

import asyncio
import errno
import socket
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from backends.client import UpstreamClient
from backends.connection import MAX_BODY_AT_ONCE_BYTES, MAX_JOINED_BODY_BYTES
from backends.errors import DialFailed
from backends.types import UpstreamRequest
from tests.backends.upstream import PATIENT, Case, cases, endpoint, peer_sees_us_leave, run_on_uvloop
from tests.hostile import HostileServer, Peer, answer, hang

MiB = 1024 * 1024


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


async def test_bodies_of_every_size_arrive_whole_and_on_one_connection(client: UpstreamClient) -> None:
    edges = (MAX_JOINED_BODY_BYTES, MAX_BODY_AT_ONCE_BYTES)
    sizes = [0, 1, *(edge + off for edge in edges for off in (0, 1)), 5 * MiB]
    async with HostileServer([answer(b"ok")]) as server:
        for size in sizes:
            body = bytes(range(256)) * (size // 256 + 1)
            request = UpstreamRequest("POST", "/x", (), body[:size])
            async with await client.send(endpoint(server.url), request, PATIENT) as response:
                assert await response.read(10) == b"ok"
            assert server.peers[0].requests[-1].partition(b"\r\n\r\n")[2] == body[:size]
        assert len(server.peers) == 1


async def test_a_long_body_waits_for_a_slow_endpoint_instead_of_in_memory(client: UpstreamClient) -> None:
    request = UpstreamRequest("POST", "/x", (), b"x" * (64 * MiB))
    measured = asyncio.Event()

    async def read_nothing(peer: Peer) -> None:
        await measured.wait()
        peer.reset()

    async with HostileServer([read_nothing]) as server:
        tracemalloc.start()
        try:
            async with asyncio.TaskGroup() as group:
                call = group.create_task(client.send(endpoint(server.url), request, PATIENT))
                await server.peer(0)
                for _ in range(100):
                    await asyncio.sleep(0)
                held_bytes = tracemalloc.get_traced_memory()[0]
                call.cancel()
        finally:
            tracemalloc.stop()
            measured.set()
    assert held_bytes < 4 * MiB


async def test_an_early_answer_ends_the_sending_of_a_long_body(client: UpstreamClient) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await peer.hang()

    async with HostileServer([refuse, answer(b"ok")]) as server:
        request = UpstreamRequest("POST", "/x", (), b"x" * (64 * MiB))
        async with await client.send(endpoint(server.url), request, PATIENT) as response:
            assert (response.status, await response.read(10)) == (413, b"big")
        await peer_sees_us_leave(server.peers[0])
        async with await client.send(endpoint(server.url), UpstreamRequest("GET", "/x"), PATIENT) as response:
            assert not response.reused_connection


async def test_a_body_is_written_on_while_its_answer_comes(client: UpstreamClient) -> None:
    size = 16 * MiB

    async def echo_length(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        request = await peer.read_request()
        length = b"%d" % len(request.partition(b"\r\n\r\n")[2])
        await peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(length), length))
        await peer.hang()

    async with HostileServer([echo_length]) as server:
        request = UpstreamRequest("POST", "/x", (), b"x" * size)
        async with await client.send(endpoint(server.url), request, PATIENT) as response:
            assert await response.read(100) == b"hello%d" % size


async def test_leaving_while_a_long_body_is_written_is_seen_by_the_endpoint(client: UpstreamClient) -> None:
    async with HostileServer([hang]) as server:
        request = UpstreamRequest("POST", "/x", (), b"x" * (64 * MiB))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.send(endpoint(server.url), request, PATIENT))
            peer = await server.peer(0)
            call.cancel()
        await peer_sees_us_leave(peer)


async def test_an_endpoint_that_closes_under_a_long_body_is_a_failed_dial(client: UpstreamClient) -> None:
    async def shut(peer: Peer) -> None:
        await peer.close()

    async with HostileServer([shut]) as server:
        with pytest.raises(DialFailed):
            await client.send(endpoint(server.url), UpstreamRequest("POST", "/x", (), b"x" * (64 * MiB)), PATIENT)


async def test_bytes_of_fields_that_are_no_text_pass_unchanged(client: UpstreamClient) -> None:
    fields = ((b"x-latin", b"gr\xfcn"), (b"x-bytes", bytes(range(0x80, 0x100))))
    async with HostileServer([answer(b"ok")]) as server:
        async with await client.send(endpoint(server.url), UpstreamRequest("GET", "/x", fields), PATIENT):
            pass
        lines = server.peers[0].requests[0].split(b"\r\n")
    assert all(b"%s: %s" % field in lines for field in fields)


async def test_a_request_that_is_none_takes_no_connection(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        with pytest.raises(ValueError, match="cannot be sent"):
            await client.send(endpoint(server.url), UpstreamRequest("GET", "/x\r\nx: y"), PATIENT)
        assert server.peers == []


async def test_small_writes_are_not_held_back_by_the_kernel(client: UpstreamClient) -> None:
    async with HostileServer([answer(b"ok")]) as server:
        async with await client.send(endpoint(server.url), UpstreamRequest("GET", "/x"), PATIENT) as response:
            await response.read(10)
        kept = client._pools[endpoint(server.url)].take()
        assert kept is not None
        assert kept._transport is not None
        sock = kept._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        kept.abort()


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 9)) != errno.EADDRNOTAVAIL


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no loopback of IPv6")
async def test_an_endpoint_on_ipv6_is_reached() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await reader.read()
        writer.close()

    heads: list[bytes] = []
    async with await asyncio.start_server(serve, "::1", 0) as server, UpstreamClient() as client:
        port = server.sockets[0].getsockname()[1]
        url = f"http://[::1]:{port}/base"
        async with await client.send(endpoint(url), UpstreamRequest("GET", "/x"), PATIENT) as response:
            assert await response.read(10) == b"ok"
    assert heads[0].startswith(b"GET /base/x HTTP/1.1\r\nhost: [::1]:%d\r\n" % port)


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
