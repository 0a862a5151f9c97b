"""The upstream client over TLS: what is promised of plain connections holds, and failures of TLS are told as such."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from backends.client import UpstreamClient
from backends.errors import DialFailed, DialReason, UpstreamReset
from backends.types import Deadlines, UpstreamRequest
from tests.backends.test_tls import server_context, trusting
from tests.backends.upstream import CHAT, PATIENT, Case, cases, peer_sees_us_leave, run_on_uvloop
from tests.hostile import HostileServer, Peer, answer, hang, head_then


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


async def test_long_bodies_pass_both_ways_on_one_kept_connection(client: UpstreamClient) -> None:
    body = bytes(range(256)) * 20_000
    async with HostileServer([answer(body)], tls=server_context()) as server:
        for turn in range(2):
            request = UpstreamRequest("POST", "/x", (), body)
            async with await client.send(trusting(server.url), request, PATIENT) as response:
                assert await response.read(len(body)) == body
                assert response.reused_connection == (turn > 0)
            assert server.peers[0].requests[turn].endswith(body)


async def test_a_name_is_told_to_the_server_and_its_certificate_must_be_for_that_name(client: UpstreamClient) -> None:
    told: list[str | None] = []
    context = server_context()
    context.sni_callback = lambda _, name, __: told.append(name)
    async with HostileServer([answer(b"ok")], tls=context) as server:
        with pytest.raises(DialFailed) as failure:
            await client.send(trusting(server.url.replace("127.0.0.1", "localhost")), CHAT, PATIENT)
    assert failure.value.reason is DialReason.TLS
    assert told == ["localhost"]


def shake_hands_in_vain(listener: socket.socket, context: ssl.SSLContext) -> None:
    """As servers do: say why, and close when the client has."""
    accepted, _ = listener.accept()
    with context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as tls:
        with suppress(ssl.SSLError):
            tls.do_handshake()
        while socket.socket.recv(tls, 65536):
            pass


async def test_a_server_that_wants_a_certificate_we_have_not_is_a_failure_of_tls(client: UpstreamClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusal = asyncio.to_thread(shake_hands_in_vain, listener, server_context(wants_client_certificate=True))
        async with asyncio.TaskGroup() as group:
            group.create_task(refusal)
            with pytest.raises(DialFailed) as failure:
                await client.send(trusting(f"https://127.0.0.1:{listener.getsockname()[1]}"), CHAT, PATIENT)
    assert failure.value.reason is DialReason.TLS


async def test_a_handshake_that_stands_still_runs_into_the_connect_deadline(client: UpstreamClient) -> None:
    async with HostileServer([hang]) as server:
        with pytest.raises(DialFailed) as failure:
            await client.send(trusting(server.url.replace("http:", "https:")), CHAT, Deadlines(connect_s=0.1))
        assert failure.value.reason is DialReason.TIMEOUT
        await peer_sees_us_leave(server.peers[0])


async def test_a_connection_closed_in_the_handshake_is_a_failed_dial(client: UpstreamClient) -> None:
    async def shut(peer: Peer) -> None:
        await peer.close()

    async with HostileServer([shut]) as server:
        with pytest.raises(DialFailed) as failure:
            await client.send(trusting(server.url.replace("http:", "https:")), CHAT, PATIENT)
        assert failure.value.reason in (DialReason.RESET, DialReason.TLS)


async def test_leaving_is_seen_by_the_endpoint_before_and_after_the_first_byte(client: UpstreamClient) -> None:
    async with HostileServer([hang, head_then(hang, b"hello")], tls=server_context()) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.send(trusting(server.url), CHAT, PATIENT))
            peer = await server.peer(0)
            call.cancel()
        await peer_sees_us_leave(peer)
        response = await client.send(trusting(server.url), CHAT, PATIENT)
        assert await response.read_chunk() == b"hello"
        response.abort()
        await peer_sees_us_leave(server.peers[1])


async def test_a_cut_answer_is_a_reset(client: UpstreamClient) -> None:
    async def cut(peer: Peer) -> None:
        peer.reset()

    async with HostileServer([head_then(cut, b"hello")], tls=server_context()) as server:
        response = await client.send(trusting(server.url), CHAT, PATIENT)
        with pytest.raises(UpstreamReset):
            await response.read(100)


async def test_a_slow_reader_holds_the_endpoint_back(client: UpstreamClient) -> None:
    total, piece = 64 * 1024 * 1024, b"x" * 65536
    stalled = asyncio.Event()
    sent = 0

    async def pour(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            sender = asyncio.ensure_future(peer.send(piece))
            if not (await asyncio.wait([sender], timeout=0.2))[0]:
                stalled.set()
            await sender
            sent += len(piece)

    async with (
        HostileServer([pour], tls=server_context()) as server,
        await client.send(trusting(server.url), CHAT, PATIENT) as response,
    ):
        async with asyncio.timeout(10):
            await stalled.wait()
        assert sent < total // 4
        async for _ in response:
            pass
        assert response.received_bytes == total


async def test_only_http_1_is_offered(client: UpstreamClient) -> None:
    context = server_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    async def behave(peer: Peer) -> None:
        tls = peer._writer.get_extra_info("ssl_object")
        assert isinstance(tls, ssl.SSLObject)
        chosen.append(tls.selected_alpn_protocol())
        await answer(b"ok")(peer)

    async with (
        HostileServer([behave], tls=context) as server,
        await client.send(trusting(server.url), CHAT, PATIENT) as response,
    ):
        assert await response.read(10) == b"ok"
    assert chosen == ["http/1.1"]


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
