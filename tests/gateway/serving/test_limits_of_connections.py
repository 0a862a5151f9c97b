"""What one client can take from the server is bounded, and it is told so in the form of the API."""

import asyncio
import math
import socket
import sys
from contextlib import AsyncExitStack, suppress

import pytest

from gateway.serving.connections import MOST_TURNED_AWAY
from gateway.serving.unread import unread_bytes
from gateway.wire import EXTENSION, Receive, Scope, Send
from tests.gateway.serving.sockets import GET, echo, served

REFUSED = [
    (b"GET /%b HTTP/1.1\r\n\r\n" % (b"t" * 8192), 414, "uri_too_long"),
    (b"GET / HTTP/1.1\r\n%b\r\n" % (b"n: v\r\n" * 129), 431, "head_too_large"),
    (b"GET / HTTP/1.1\r\nn: %b\r\n\r\n" % (b"v" * 32768), 431, "head_too_large"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_request"),
    (b"GET /\xff HTTP/1.1\r\n\r\n", 400, "invalid_request"),
    (b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_request"),
]


@pytest.mark.parametrize(("wire", "status", "code"), REFUSED)
async def test_what_is_no_request_is_answered_and_ends_the_connection(wire: bytes, status: int, code: str) -> None:
    async with served(echo) as house, house.client() as client:
        answer = await (await client.send(wire)).answer()
        assert (answer.status, answer.error["code"], answer.fields["connection"]) == (status, code, "close")
        assert answer.fields["x-request-id"]
        assert await client.ended() == b""


async def test_who_ends_the_connection_in_a_trailer_is_told_so_and_does_not_wait_for_a_next_answer() -> None:
    async with served(echo) as house, house.client() as client:
        head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        answer = await (await client.send(head + b"1\r\na\r\n0\r\nconnection: close\r\n\r\n" + GET)).answer()
        assert (answer.status, answer.fields["connection"]) == (400, "close")
        assert await client.ended() == b""


async def test_a_refused_head_is_told_in_the_dialect_of_its_path() -> None:
    async with served(echo) as house, house.client() as client:
        answer = await (await client.send(b"GET /v1/messages HTTP/1.1\r\n%b\r\n" % (b"n: v\r\n" * 129))).answer()
    assert answer.body.startswith(b'{"type":"error"')


async def test_bytes_that_are_no_request_do_not_take_the_answer_before_them() -> None:
    async with served(echo) as house, house.client() as client:
        await client.send(GET + b"nonsense\r\n\r\n")
        assert (await client.answer()).body == b"GET / 0 "
        assert await client.ended() == b""


@pytest.mark.parametrize("begin", [b"", GET])
async def test_a_head_that_does_not_end_is_a_time_out(begin: bytes) -> None:
    async with served(echo, header_s=0.3) as house, house.client() as client:
        if begin:
            await (await client.send(begin)).answer()
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n")
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (408, "request_timeout")
        assert await client.ended() == b""
        assert house.count("cut_clients", "head") == 1


async def test_a_head_has_no_longer_for_coming_byte_by_byte() -> None:
    async with served(echo, header_s=0.5) as house, house.client() as client:
        await client.send(b"GET / HTTP/1.1\r\n")
        answering = asyncio.ensure_future(client.answer())
        while not answering.done():
            client.writer.write(b"n")
            await asyncio.sleep(0.05)
        assert (await answering).status == 408


async def test_a_connection_that_never_says_anything_is_closed_without_a_word() -> None:
    async with served(echo, header_s=0.2) as house, house.client() as client:
        assert await client.ended() == b""


async def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    async with served(echo, keep_alive_s=0.5) as house, house.client() as client:
        for _ in range(4):
            await asyncio.sleep(0.2)
            assert (await (await client.send(GET)).answer()).status == 200
        assert await client.ended() == b""


@pytest.mark.parametrize("size", [100, 100_000])
async def test_a_body_that_comes_too_slowly_is_a_time_out(size: int) -> None:
    async with served(echo, body_idle_s=0.3) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\nabc" % size)
        answering = asyncio.ensure_future(client.answer())
        while not answering.done():
            client.writer.write(b"x")
            await asyncio.sleep(0.05)
        answer = await answering
        assert (answer.status, answer.error["code"]) == (408, "request_timeout")
        assert house.count("cut_clients", "body") == 1


async def test_a_body_that_comes_steadily_may_take_its_time() -> None:
    async with served(echo, body_idle_s=0.3) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 3000\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.1)
            await client.send(b"x" * 300)
        assert (await client.answer()).body == b"POST / 3000 " + b"x" * 3000


async def test_the_time_of_a_body_that_nobody_waits_for_does_not_run() -> None:
    waiting = asyncio.Event()

    async def takes_its_time(scope: Scope, receive: Receive, send: Send) -> None:
        await waiting.wait()
        await echo(scope, receive, send)

    async with served(takes_its_time, body_idle_s=0.1) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab")
        await asyncio.sleep(0.6)
        waiting.set()
        await client.send(b"cd")
        assert (await client.answer()).body == b"POST / 4 abcd"


async def test_one_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    async with served(echo, connections=2) as house, AsyncExitStack() as stack:
        first, second, third = [await stack.enter_async_context(house.client()) for _ in range(3)]
        answer = await third.answer()
        assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (503, "overloaded", "1")
        assert await third.ended() == b""
        assert house.count("shed_requests", "connections") == 1
        for client in (first, second):
            assert (await (await client.send(GET)).answer()).status == 200
        first.writer.close()
        while house.connections.is_full:
            await asyncio.sleep(0)
        async with house.client() as again:
            assert (await (await again.send(GET)).answer()).status == 200


async def test_connections_beyond_those_that_are_told_so_cost_nothing() -> None:
    async with served(echo, connections=1) as house, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(house.client()) for _ in range(MOST_TURNED_AWAY + 20)]
        while house.count("shed_requests", "connections") < MOST_TURNED_AWAY + 19:
            await asyncio.sleep(0)
        assert len(house.connections.open) <= MOST_TURNED_AWAY + 1
        assert (await (await clients[0].send(GET)).answer()).status == 200


async def test_requests_ahead_of_their_answers_are_answered_in_order_and_bounded() -> None:
    async with served(echo) as house, house.client() as client:
        await client.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % number for number in range(1000)))
        said = await client.ended()
    assert [b"GET /%d 0 " % number in said for number in range(10)] == [True] * 9 + [False]
    assert said.index(b"GET /3") < said.index(b"GET /4")
    assert said.count(b"connection: close") == 1


async def test_a_long_body_behind_another_request_waits_outside() -> None:
    free, seen = asyncio.Event(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        if scope["path"] == "/first":
            await free.wait()
        await echo(scope, receive, send)

    async with served(app) as house, house.client() as client:
        size = 30_000_000
        client.writer.write(
            b"GET /first HTTP/1.1\r\n\r\nPOST /long HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size
        )
        while not seen or not next(iter(house.connections.open))._read_paused:
            await asyncio.sleep(0)
        free.set()
        assert (await client.answer()).body == b"GET /first 0 "
        assert (await client.answer()).status == 413  # of an application that asks for no other limit
        assert seen == ["/first", "/long"]


async def test_a_slow_reader_is_not_buffered_for_and_is_cut_in_the_end() -> None:
    handed, why = 0, []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal handed
        call = scope["extensions"][EXTENSION]
        call.on_leave(lambda: why.append("left"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        piece = b"x" * 16_384
        while not call.gone:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            handed += len(piece)

    async with served(endless, write_idle_s=0.5) as house:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", house.port))
            sock.sendall(GET)
            while not house.connections.open:
                await asyncio.sleep(0)
            (connection,) = house.connections.open
            most = 0
            while house.connections.open:
                most = max(most, connection.transport.get_write_buffer_size())
                await asyncio.sleep(0.01)
        assert most <= 64 * 1024 + 16_384 + 1000
        assert handed < 50_000_000
        assert why == ["left"]
        assert house.count("cut_clients", "unread") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell what it holds")
async def test_a_reader_so_slow_that_the_system_takes_no_more_for_minutes_is_not_cut_while_it_reads() -> None:
    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        call = scope["extensions"][EXTENSION]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not call.gone:
            await send({"type": "http.response.body", "body": b"x" * 16_384, "more_body": True})

    async with served(endless, write_idle_s=60) as house:
        house.connections._swept_at_s = math.inf  # the time is ours
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", house.port))
            sock.sendall(GET)
            sock.setblocking(False)
            while not house.connections.open:
                await asyncio.sleep(0)
            (connection,) = house.connections.open
            transport, now_s = connection.transport, asyncio.get_running_loop().time()
            while not await holds_still(transport):
                pass
            connection.look(now_s)
            waiting_bytes = transport.get_write_buffer_size()
            for _ in range(4):
                unread = unread_bytes(transport)
                while unread_bytes(transport) == unread:
                    with suppress(BlockingIOError):
                        sock.recv(1000)
                    await asyncio.sleep(0)
                connection.look(now_s := now_s + 59)
            assert transport.get_write_buffer_size() == waiting_bytes  # nothing more was taken all the time
            assert not transport.is_closing()
            connection.look(now_s + 60)
            assert house.count("cut_clients", "unread") == 1


async def holds_still(transport: asyncio.Transport) -> bool:
    """Whether all that can be sent has been, as far as a moment shows."""
    before = transport.get_write_buffer_size(), unread_bytes(transport)
    await asyncio.sleep(0.05)
    return before[0] > 0 and before == (transport.get_write_buffer_size(), unread_bytes(transport))


async def test_a_reader_that_is_slow_but_reads_gets_everything() -> None:
    size = 12_000_000

    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(size // 50_000):
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
        await send({"type": "http.response.body"})

    async with served(long, write_idle_s=0.6) as house, house.client() as client:
        await client.send(GET)
        await client.reader.readuntil(b"\r\n\r\n")
        got = 0
        while got < size:
            got += len(await client.reader.read(2_000_000))
            await asyncio.sleep(0.02)
