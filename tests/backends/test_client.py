"""The upstream client against servers on real ports, well-behaved and hostile."""

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import uvloop

from backends.client import READ_BUFFER_BYTES, UpstreamClient
from backends.errors import (
    DialFailed,
    DialReason,
    FirstByteTimeout,
    IdleTimeout,
    UpstreamProtocolError,
    UpstreamReset,
)
from backends.types import Deadlines, EndpointConfig, EndpointId, UpstreamRequest
from tests.hostile import (
    Behaviour,
    HostileServer,
    Peer,
    answer,
    close_before_first_byte,
    hang,
    head_then,
    raw,
    reset_before_first_byte,
    reset_on_accept,
    stream,
)

PATIENT = Deadlines(connect_s=5, first_byte_s=5, idle_s=5)
CHAT = UpstreamRequest("POST", "/v1/chat/completions", ((b"content-type", b"application/json"),), b'{"model":"m"}')


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


def endpoint(url: str, api_key: str | None = None) -> EndpointConfig:
    return EndpointConfig(EndpointId("a"), url, api_key=api_key)


async def _peer_waits_for_leave(peer: Peer) -> None:
    async with asyncio.timeout(2):
        await peer.gone.wait()


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


@pytest.mark.parametrize("body_bytes", [0, 1, 70_000, 3_000_000])
async def test_a_request_on_a_connection_closed_under_us_is_sent_again_on_a_fresh_one(
    client: UpstreamClient, body_bytes: int
) -> None:
    request = UpstreamRequest("POST", "/v1/x", (), b"x" * body_bytes)

    async def close_after_second_request(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await peer.read_request()
        peer.reset()

    async with HostileServer([close_after_second_request, answer(b"again")]) as server:
        async with await client.send(endpoint(server.url), request, PATIENT) as response:
            assert await response.read(10) == b"ok"
        async with await client.send(endpoint(server.url), request, PATIENT) as response:
            assert await response.read(10) == b"again"
            assert not response.reused_connection
        assert [len(peer.requests) for peer in server.peers] == [2, 1]
        assert server.peers[1].requests[0].endswith(b"\r\n\r\n" + request.body)


async def test_a_retry_after_a_stale_connection_is_the_only_one(client: UpstreamClient) -> None:
    async def close_after_second_request(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await peer.read_request()

    async with HostileServer([close_after_second_request, close_before_first_byte, answer(b"never")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            await response.read(10)
        with pytest.raises(DialFailed) as failure:
            await client.send(endpoint(server.url), CHAT, PATIENT)
        assert failure.value.reason is DialReason.RESET
        assert len(server.peers) == 2


async def test_a_kept_connection_that_dies_inside_the_head_is_not_retried(client: UpstreamClient) -> None:
    async def half_head(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-le")

    async with HostileServer([half_head, answer(b"never")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            await response.read(10)
        with pytest.raises(DialFailed):
            await client.send(endpoint(server.url), CHAT, PATIENT)
        assert len(server.peers) == 1


@pytest.mark.parametrize("behaviour", [reset_on_accept, reset_before_first_byte, close_before_first_byte])
async def test_a_fresh_connection_that_dies_before_the_first_byte_is_a_failed_dial(
    client: UpstreamClient, behaviour: Behaviour
) -> None:
    async with HostileServer([behaviour]) as server:
        with pytest.raises(DialFailed) as failure:
            await client.send(endpoint(server.url), CHAT, PATIENT)
        assert failure.value.reason is DialReason.RESET
        assert failure.value.before_first_byte
        assert failure.value.blames_endpoint
        assert len(server.peers) == 1


async def test_a_closed_port_is_a_refused_dial(client: UpstreamClient) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(DialFailed) as failure:
            await client.send(endpoint(f"http://127.0.0.1:{held.getsockname()[1]}"), CHAT, PATIENT)
    assert failure.value.reason is DialReason.REFUSED


async def test_an_unknown_host_is_a_failed_look_up(client: UpstreamClient) -> None:
    with pytest.raises(DialFailed) as failure:
        await client.send(endpoint("http://no-such-host.invalid"), CHAT, PATIENT)
    assert failure.value.reason is DialReason.DNS


async def test_plain_text_where_tls_is_expected_is_a_tls_failure(client: UpstreamClient) -> None:
    async def talk_plain(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with HostileServer([talk_plain]) as server:
        with pytest.raises(DialFailed) as failure:
            await client.send(endpoint(server.url.replace("http:", "https:")), CHAT, PATIENT)
    assert failure.value.reason is DialReason.TLS


async def test_a_listener_that_never_accepts_runs_into_the_connect_deadline(client: UpstreamClient) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        with pytest.raises(DialFailed) as failure:
            await client.send(endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}"), CHAT, Deadlines(connect_s=0.2))
        for filler in fillers:
            filler.close()
    assert failure.value.reason is DialReason.TIMEOUT


async def test_waiting_for_a_place_in_a_full_pool_does_not_blame_the_endpoint() -> None:
    async with UpstreamClient(max_connections=1) as client, HostileServer([hang]) as server:
        async with asyncio.TaskGroup() as group:
            holder = group.create_task(client.send(endpoint(server.url), CHAT, PATIENT))
            await server.peer(0)
            with pytest.raises(DialFailed) as failure:
                await client.send(endpoint(server.url), CHAT, Deadlines(connect_s=0.05))
            holder.cancel()
        assert failure.value.reason is DialReason.POOL
        assert not failure.value.blames_endpoint


async def test_a_frozen_endpoint_runs_into_the_first_byte_deadline_and_is_left(client: UpstreamClient) -> None:
    async with HostileServer([hang]) as server:
        with pytest.raises(FirstByteTimeout) as failure:
            await client.send(endpoint(server.url), CHAT, Deadlines(first_byte_s=0.1))
        assert failure.value.after_s == 0.1
        await _peer_waits_for_leave(server.peers[0])


async def test_silence_inside_the_answer_runs_into_the_idle_deadline_and_is_left(client: UpstreamClient) -> None:
    async with HostileServer([head_then(hang, b"hello")]) as server:
        response = await client.send(endpoint(server.url), CHAT, Deadlines(idle_s=0.1))
        assert await response.read_chunk() == b"hello"
        with pytest.raises(IdleTimeout) as failure:
            await response.read_chunk()
        assert failure.value.received_bytes == 5
        assert not failure.value.before_first_byte
        await _peer_waits_for_leave(server.peers[0])


async def test_a_reader_that_pauses_does_not_use_up_the_idle_deadline(client: UpstreamClient) -> None:
    async with (
        HostileServer([head_then(raw_end, b"hello")]) as server,
        await client.send(endpoint(server.url), CHAT, Deadlines(idle_s=0.05)) as response,
    ):
        await asyncio.sleep(0.15)
        assert await response.read(10) == b"hello"


async def raw_end(peer: Peer) -> None:
    await peer.send(b"0\r\n\r\n")


async def reset_now(peer: Peer) -> None:
    peer.reset()


async def close_now(peer: Peer) -> None:
    await peer.close()


@pytest.mark.parametrize("behaviour", [reset_now, close_now])
async def test_a_stream_cut_before_its_last_chunk_is_a_reset(client: UpstreamClient, behaviour: Behaviour) -> None:
    cut = asyncio.Event()

    async def after(peer: Peer) -> None:
        await cut.wait()
        await behaviour(peer)

    async with HostileServer([head_then(after, b"data: 1\n\n")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert await response.read_chunk() == b"data: 1\n\n"
        cut.set()
        with pytest.raises(UpstreamReset) as failure:
            await response.read_chunk()
        assert failure.value.received_bytes == 9
        assert await response.read_chunk() == b""


async def test_a_body_shorter_than_its_length_is_a_reset(client: UpstreamClient) -> None:
    async def behave(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")

    async with HostileServer([behave]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        with pytest.raises(UpstreamReset):
            await response.read(100)


@pytest.mark.parametrize("garbage", [b"zz\r\nabc\r\n", b"3\r\nabcdefgh\r\n", b"f" * 20 + b"\r\nabc"])
async def test_bad_chunk_framing_wakes_the_reader_at_once(client: UpstreamClient, garbage: bytes) -> None:
    reader_waits = asyncio.Event()

    async def after(peer: Peer) -> None:
        await reader_waits.wait()
        await peer.send(garbage)
        await peer.hang()

    async with HostileServer([head_then(after, b"hello")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        assert await response.read_chunk() == b"hello"
        reader_waits.set()
        async with asyncio.timeout(2):
            with pytest.raises(UpstreamProtocolError) as failure:
                await response.read(100)
        assert not failure.value.before_first_byte
        await _peer_waits_for_leave(server.peers[0])


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nx-huge: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: 1\r\n" % i for i in range(5000)) + b"\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    ],
    ids=["ssh", "huge-field", "many-fields", "bad-status", "two-lengths"],
)
async def test_a_head_that_is_not_http_is_a_protocol_error_before_the_first_byte(
    client: UpstreamClient, head: bytes
) -> None:
    async with HostileServer([raw(head)]) as server:
        with pytest.raises(UpstreamProtocolError) as failure:
            await client.send(endpoint(server.url), CHAT, PATIENT)
        assert failure.value.before_first_byte


async def test_an_aborted_response_is_seen_by_the_endpoint_and_its_connection_not_reused(
    client: UpstreamClient,
) -> None:
    async with HostileServer([head_then(hang, b"hello"), answer(b"ok")]) as server:
        response = await client.send(endpoint(server.url), CHAT, PATIENT)
        await response.read_chunk()
        response.abort()
        response.abort()
        await _peer_waits_for_leave(server.peers[0])
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as second:
            assert await second.read(10) == b"ok"
            assert not second.reused_connection


async def test_leaving_before_the_first_byte_is_seen_by_the_endpoint(client: UpstreamClient) -> None:
    async with HostileServer([hang]) as server:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(client.send(endpoint(server.url), CHAT, PATIENT))
            peer = await server.peer(0)
            call.cancel()
        await _peer_waits_for_leave(peer)


async def test_a_cancelled_reader_leaves_the_response_usable_for_abort(client: UpstreamClient) -> None:
    async with HostileServer([head_then(hang, b"hello")]) as server:
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            await response.read_chunk()
            async with asyncio.TaskGroup() as group:
                group.create_task(response.read_chunk()).cancel()
        await _peer_waits_for_leave(server.peers[0])


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


async def test_errors_print_neither_keys_nor_addresses_nor_prompts(client: UpstreamClient) -> None:
    request = UpstreamRequest("POST", "/v1/x?q=secret-query", ((b"x-h", b"secret-header"),), b"secret-prompt")
    async with HostileServer([close_before_first_byte]) as server:
        target = endpoint(server.url, api_key="secret-key")
        with pytest.raises(DialFailed) as failure:
            await client.send(target, request, PATIENT)
    assert "secret" not in str(failure.value) + repr(failure.value) + repr(target)
    assert failure.value.__cause__ is None


Case = Callable[[UpstreamClient], Coroutine[None, None, None]]
CASES: list[Case] = [
    case
    for name, case in list(globals().items())
    if name.startswith("test_") and list(inspect.signature(case).parameters) == ["client"]
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    async def with_client() -> None:
        async with UpstreamClient() as upstream:
            await case(upstream)

    uvloop.run(with_client())
