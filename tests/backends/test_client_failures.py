"""The upstream client when endpoints fail: stale connections, dials, deadlines, broken answers."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from backends.client import UpstreamClient
from backends.errors import (
    DialFailed,
    DialReason,
    FirstByteTimeout,
    IdleTimeout,
    UpstreamProtocolError,
    UpstreamReset,
)
from backends.types import Deadlines, UpstreamRequest
from tests.backends.upstream import CHAT, PATIENT, Case, cases, endpoint, peer_sees_us_leave, run_on_uvloop
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
)


@pytest.fixture
async def client() -> AsyncIterator[UpstreamClient]:
    async with UpstreamClient() as upstream:
        yield upstream


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


async def test_what_may_be_sent_once_goes_over_a_new_connection_in_the_place_of_a_kept_one() -> None:
    async def close_after_second_request(peer: Peer) -> None:
        await answer(b"ok", requests=1)(peer)
        await peer.read_request()
        peer.reset()

    begun: list[str] = []
    async with (
        UpstreamClient(max_connections=1) as client,
        HostileServer([close_after_second_request, answer(b"once"), reset_before_first_byte]) as server,
    ):
        async with await client.send(endpoint(server.url), CHAT, PATIENT) as response:
            await response.read(10)
        async with await client.send(endpoint(server.url), CHAT, PATIENT, lambda: begun.append("second")) as response:
            assert (await response.read(10), response.reused_connection) == (b"once", False)
        with pytest.raises(DialFailed):
            await client.send(endpoint(server.url), CHAT, PATIENT, lambda: begun.append("third"))
        async with asyncio.timeout(5):
            await server.peers[0].gone.wait()
        assert ([len(peer.requests) for peer in server.peers], begun) == ([1, 1, 1], ["second", "third"])


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
        await peer_sees_us_leave(server.peers[0])


async def test_silence_inside_the_answer_runs_into_the_idle_deadline_and_is_left(client: UpstreamClient) -> None:
    async with HostileServer([head_then(hang, b"hello")]) as server:
        response = await client.send(endpoint(server.url), CHAT, Deadlines(idle_s=0.1))
        assert await response.read_chunk() == b"hello"
        with pytest.raises(IdleTimeout) as failure:
            await response.read_chunk()
        assert failure.value.received_bytes == 5
        assert not failure.value.before_first_byte
        await peer_sees_us_leave(server.peers[0])


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
        await peer_sees_us_leave(server.peers[0])


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


async def test_errors_print_neither_keys_nor_addresses_nor_prompts(client: UpstreamClient) -> None:
    request = UpstreamRequest("POST", "/v1/x?q=secret-query", ((b"x-h", b"secret-header"),), b"secret-prompt")
    async with HostileServer([close_before_first_byte]) as server:
        target = endpoint(server.url, api_key="secret-key")
        with pytest.raises(DialFailed) as failure:
            await client.send(target, request, PATIENT)
    assert "secret" not in str(failure.value) + repr(failure.value) + repr(target)
    assert failure.value.__cause__ is None


@pytest.mark.parametrize("case", cases(globals()), ids=lambda case: case.__name__.removeprefix("test_"))
def test_the_same_holds_on_uvloop(case: Case) -> None:
    run_on_uvloop(case)
