"""Answers on the wire: their framing, what is no proper answer, and clients that leave before they have it."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.serving.answer_bytes import AnswerMalformed, Framing, answer_head
from gateway.wire import EXTENSION, ASGIApp, Receive, Scope, Send
from tests.gateway.serving.sockets import GET, echo, served

DATE = b"date: Thu, 01 Jan 1970 00:00:00 GMT"


def says(*pieces: bytes, status: int = 200, fields: tuple[tuple[bytes, bytes], ...] = ()) -> ASGIApp:
    """An application that sends these pieces."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": fields})
        for piece in pieces[:-1]:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": pieces[-1] if pieces else b""})

    return app


LONG = b"y" * 100_000


@pytest.mark.parametrize("pieces", [(b"one", b"two"), (b"one", b"", b"two", b""), (), (LONG, b"z", LONG), (LONG,)])
async def test_an_answer_of_unknown_length_comes_in_chunks(pieces: tuple[bytes, ...]) -> None:
    async with served(says(*pieces)) as house, house.client() as client:
        for _ in range(2):
            answer = await (await client.send(GET)).answer()
            assert (answer.body, answer.fields["transfer-encoding"]) == (b"".join(pieces), "chunked")


@pytest.mark.parametrize("pieces", [(b"one", b"two"), (LONG, b"z", LONG)])
async def test_a_client_that_knows_no_chunks_reads_until_the_end(pieces: tuple[bytes, ...]) -> None:
    async with served(says(*pieces)) as house, house.client() as client:
        answer = await (await client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")).answer()
        assert (answer.body, answer.fields["connection"]) == (b"".join(pieces), "close")


async def test_a_client_of_http_1_0_may_read_until_the_end() -> None:
    async with served(says(b"one", fields=((b"content-length", b"3"),))) as house, house.client() as client:
        said = await (await client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")).ended()
    assert said.endswith(b"\r\n\r\none")


@pytest.mark.parametrize("length", [b"6", b"200001"])
async def test_an_answer_of_known_length_is_sent_as_it_is(length: bytes) -> None:
    pieces = (b"one", b"two") if length == b"6" else (LONG, b"z", LONG)
    async with served(says(*pieces, fields=((b"content-length", length),))) as house, house.client() as client:
        answer = await (await client.send(GET)).answer()
        assert answer.body == b"".join(pieces)


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", 200), (b"GET", 204), (b"GET", 304)])
async def test_some_answers_have_no_body_whatever_their_head_says(method: bytes, status: int) -> None:
    app = says(b"four", status=status, fields=((b"content-length", b"4"),))
    async with served(app) as house, house.client() as client:
        for _ in range(2):
            answer = await (await client.send(method + b" / HTTP/1.1\r\n\r\n")).answer(has_body=False)
            assert (answer.status, answer.fields["content-length"]) == (status, "4")


@pytest.mark.parametrize("name", [b"x-a", b"x\r\ny"])
@pytest.mark.parametrize("value", [b"b\r\nset-cookie: 1", b"b\n", b"b\r"])
async def test_a_head_with_the_end_of_a_line_in_a_field_reaches_nobody(
    name: bytes, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(says(b"one", fields=((name, value),))) as house, house.client() as client:
        answer = await (await client.send(GET)).answer()
    assert (answer.status, "set-cookie" in answer.fields) == (500, False)
    assert "AnswerMalformed" in caplog.text


@pytest.mark.parametrize("length", [b"4", b"2"])
async def test_an_answer_that_is_not_as_long_as_its_head_says_is_cut(
    length: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(says(b"one", fields=((b"content-length", length),))) as house, house.client() as client:
        said = await (await client.send(GET)).ended()
    assert len(said.partition(b"\r\n\r\n")[2]) < int(length)
    assert "AnswerMalformed" in caplog.text


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=8), st.binary(max_size=12)), max_size=6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_head_has_the_lines_it_was_given_and_no_others(
    fields: list[tuple[bytes, bytes]], is_head: bool, http_1_0: bool, closes: bool
) -> None:
    text = b"".join(name + value for name, value in fields)
    kinds = {"is_head": is_head, "http_1_0": http_1_0, "closes": closes}
    if b"\r" in text or b"\n" in text:
        with pytest.raises(AnswerMalformed):
            answer_head(200, fields, DATE, **kinds)
        return
    head = answer_head(200, fields, DATE, **kinds)
    lines = head.data.split(b"\r\n")
    assert lines[:2] == [b"HTTP/1.1 200 OK", DATE]
    assert lines[2 : 2 + len(fields)] == [name + b": " + value for name, value in fields]
    chunked = head.framing is Framing.CHUNKED
    ours = [b"transfer-encoding: chunked"] * chunked + [b"connection: close"] * head.closes
    assert lines[2 + len(fields) :] == [*ours, b"", b""]


async def test_an_application_that_fails_is_an_error_and_one_that_forgets_its_answer_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fails":
            raise ValueError("secret")

    async with served(app) as house, house.client() as client:
        answer = await (await client.send(b"GET /fails HTTP/1.1\r\n\r\n")).answer()
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert b"secret" not in answer.body
        assert await (await client.send(GET)).ended() == b""
    assert "secret" in caplog.text


async def test_an_answer_that_breaks_off_shows_its_head_and_is_cut() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async with served(app) as house, house.client() as client:
        said = await (await client.send(GET)).ended()
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not said.endswith(b"0\r\n\r\n")


async def test_a_client_is_asked_for_its_body_once_that_is_wanted() -> None:
    wanted = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await wanted.wait()
        await echo(scope, receive, send)

    async with served(app) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        asked = asyncio.ensure_future(client.reader.readuntil(b"\r\n\r\n"))
        assert (await asyncio.wait([asked], timeout=0.2))[0] == set()
        wanted.set()
        assert await asked == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await (await client.send(b"ab")).answer()).body == b"POST / 2 ab"


async def test_a_client_whose_body_is_not_wanted_is_not_asked_for_it() -> None:
    async with served(says(b"no", status=401)) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        answer = await client.answer()
        assert (answer.status, answer.fields["connection"]) == (401, "close")


async def test_a_client_of_http_1_0_knows_no_100_continue_and_gets_none() -> None:
    async with served(echo) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        while not any(call.is_served for call in house.connections.calls):
            await asyncio.sleep(0)
        assert (await (await client.send(b"ab")).answer()).status == 200


async def test_an_early_answer_keeps_the_connection_if_little_is_left_of_the_body() -> None:
    async with served(says(b"no", status=401)) as house, house.client() as client:
        for _ in range(2):
            await client.send(b"POST / HTTP/1.1\r\ncontent-length: 100000\r\n\r\n" + b"x" * 1000)
            assert (await client.answer()).status == 401
            await client.send(b"x" * 99_000)


@pytest.mark.parametrize("coding", [b"content-length: 50000000", b"transfer-encoding: chunked"])
async def test_an_early_answer_is_not_taken_back_by_a_body_that_goes_on(coding: bytes) -> None:
    async with served(says(b"no", status=401)) as house, house.client() as client:
        await client.send(b"POST / HTTP/1.1\r\n" + coding + b"\r\n\r\n")
        answer = await client.answer()
        for _ in range(100):
            client.writer.write(b"x" * 10_000)
            await asyncio.sleep(0)
        assert (answer.status, answer.fields["connection"]) == (401, "close")
        assert await client.ended() == b""


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def shut(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("leave", [socket.socket.close, reset, shut])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_leaves_is_noticed_at_once(leave: Callable[[socket.socket], None], begun: bool) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"][EXTENSION].on_leave(left.set)
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        asked.set()
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await send({"type": "http.response.body", "body": b"to nobody", "more_body": True})

    async with served(app) as house:
        with socket.create_connection(("127.0.0.1", house.port)) as sock:
            sock.sendall(GET)
            await asked.wait()
            leave(sock)
            await left.wait()
        while house.connections.open:
            await asyncio.sleep(0)


@pytest.mark.parametrize("size", [0, 70_000, 150_000, 1_000_000])
async def test_a_client_that_leaves_is_noticed_however_long_its_body_was(size: int) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        call = scope["extensions"][EXTENSION]
        await asyncio.sleep(0.05)  # the body has come before anyone asks for it
        assert len(await call.whole_body(lambda _: None)) == size
        call.on_leave(left.set)
        asked.set()
        await left.wait()

    async with served(app) as house:
        async with house.client() as client:
            await client.send(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)
            await asked.wait()
        await left.wait()


async def test_who_waits_behind_another_request_is_not_begun_when_the_client_leaves() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await receive()
        await receive()

    async with served(app) as house:
        with socket.create_connection(("127.0.0.1", house.port)) as sock:
            sock.sendall(GET + GET)
            while not seen:
                await asyncio.sleep(0)
        while house.connections.calls:
            await asyncio.sleep(0)
    assert seen == ["/"]
