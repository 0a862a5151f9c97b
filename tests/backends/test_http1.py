"""Bytes of answers as heads and bodies: any cutting gives the same, and what is in doubt is refused or not reused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.http1 import MAX_HEADER_BYTES, AnswerParser
from tests.backends.conformance.answers import Answer, Framing, answers, cuts


def parsed(*pieces: bytes, bodiless: bool = False) -> tuple[AnswerParser, bytes, bool]:
    """The parser after these pieces, the body, and whether all of it was fit for an answer."""
    parser = AnswerParser()
    parser.begin(bodiless=bodiless)
    body, proper = b"", True
    for piece in pieces:
        proper = proper and parser.feed(piece)
        body += parser.take()
    return parser, body, proper


def assert_is(parser: AnswerParser, body: bytes, answer: Answer) -> None:
    assert (parser.status, parser.headers, body) == (answer.status, answer.headers, answer.body)
    assert parser.complete == (answer.framing is not Framing.UNTIL_CLOSE)
    assert not parser.complete or parser.reusable == answer.keeps
    assert parser.complete or parser.ends_with_connection


@given(st.data(), answers())
def test_any_cutting_of_an_answer_gives_the_same_answer(data: st.DataObject, answer: Answer) -> None:
    parser, body, proper = parsed(*data.draw(cuts(answer.wire)))
    assert proper
    assert_is(parser, body, answer)


@given(answers())
def test_an_answer_cut_at_every_place_is_the_same_answer(answer: Answer) -> None:
    for place in range(1, min(len(answer.wire), 400)):
        parser, body, proper = parsed(answer.wire[:place], answer.wire[place:])
        assert proper
        assert_is(parser, body, answer)


@given(st.lists(answers().filter(lambda answer: answer.keeps), min_size=2, max_size=4))
def test_answers_on_one_connection_do_not_touch_each_other(several: list[Answer]) -> None:
    parser = AnswerParser()
    for answer in several:
        parser.begin(bodiless=False)
        assert parser.feed(answer.wire)
        assert_is(parser, parser.take(), answer)


@given(answers().filter(lambda answer: answer.keeps), st.binary(min_size=1, max_size=40).filter(lambda b: b.strip()))
def test_what_comes_after_the_end_costs_the_connection_and_not_the_answer(answer: Answer, surplus: bytes) -> None:
    parser, body, proper = parsed(answer.wire + surplus)
    assert proper
    assert (parser.status, parser.headers, body, parser.complete) == (answer.status, answer.headers, answer.body, True)
    assert not parser.reusable


@given(answers(), answers())
def test_a_second_answer_that_nobody_asked_for_is_never_seen(first: Answer, second: Answer) -> None:
    parser, body, _ = parsed(first.wire + second.wire)
    assert (parser.status, parser.headers) == (first.status, first.headers)
    assert body == first.body + (second.wire if first.framing is Framing.UNTIL_CLOSE else b"")


@given(st.lists(st.one_of(st.binary(max_size=50), answers().map(lambda answer: answer.wire[:80])), max_size=8))
def test_no_bytes_make_it_raise(pieces: list[bytes]) -> None:
    parser = AnswerParser()
    for piece in pieces:
        if not parser.feed(piece):
            break
        parser.take()


@given(answers().filter(lambda answer: answer.framing is not Framing.UNTIL_CLOSE), st.data())
def test_an_answer_without_its_end_is_not_complete(answer: Answer, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(answer.wire) - 1))
    parser, body, proper = parsed(answer.wire[:end])
    assert proper
    assert not parser.complete
    assert answer.body.startswith(body)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        HEAD + b"content-length: 2, 2\r\n\r\nxx",
        HEAD + b"content-length: +2\r\n\r\nxx",
        HEAD + b"content-length: 99999999999999999999999\r\n\r\nx",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: gzip\r\n\r\nx",
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        HEAD + b"x: a\r\n folded\r\n\r\n",
        HEAD + b"x : a\r\n\r\n",
        HEAD + b"x: a\0b\r\n\r\n",
        HEAD + b"x: a\rb\r\n\r\n",
        b"HTTP/1.1 200 OK\nx: a\n\n",
        b"HTTP/1.1 99 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 600 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
def test_what_may_mean_two_things_or_nothing_is_no_answer(wire: bytes) -> None:
    for pieces in ([wire], [wire[i : i + 1] for i in range(len(wire))]):
        parser, _, proper = parsed(*pieces)
        assert not proper
        assert not parser.complete


@pytest.mark.parametrize(
    "framing", [b"zz\r\nabc\r\n", b"3\r\nabcdefgh\r\n", b"f" * 20 + b"\r\n", b"-1\r\n", b"1 \r\nx\r\n"]
)
def test_bad_chunks_end_the_answer_and_leave_what_came_before(framing: bytes) -> None:
    parser, body, proper = parsed(HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n" + framing)
    assert body.startswith(b"hello")
    assert not proper
    assert not parser.complete


def test_an_answer_to_head_ends_with_its_head_whatever_length_it_names() -> None:
    for framing in (b"content-length: 1000", b"transfer-encoding: chunked", b"x: y"):
        parser, body, proper = parsed(HEAD + framing + b"\r\n\r\n", bodiless=True)
        assert (parser.status, body, proper, parser.complete) == (200, b"", True, True)


def test_a_body_in_answer_to_head_is_dropped() -> None:
    parser, body, _ = parsed(HEAD + b"content-length: 4\r\n\r\nbody", bodiless=True)
    assert (body, parser.complete, parser.reusable) == (b"", True, False)


@pytest.mark.parametrize("extra", [b"", b"connection: keep-alive\r\n"])
def test_an_old_server_ends_its_answer_by_closing_unless_it_says_otherwise(extra: bytes) -> None:
    parser, body, _ = parsed(b"HTTP/1.0 200 OK\r\n" + extra + b"\r\n", b"some", b"thing")
    assert (body, parser.complete, parser.ends_with_connection) == (b"something", False, True)
    sized, body, _ = parsed(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n" + extra + b"\r\nok")
    assert (body, sized.complete, sized.reusable) == (b"ok", True, bool(extra))


def test_chunks_of_an_old_server_are_read_and_its_connection_not_trusted() -> None:
    head = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n"
    parser, body, _ = parsed(head + b"2\r\nok\r\n0\r\n\r\n")
    assert (body, parser.complete, parser.reusable) == (b"ok", True, False)


def test_trailers_are_read_over_and_do_not_turn_up_in_the_next_answer() -> None:
    parser = AnswerParser()
    assert parser.feed(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-trailer: 1\r\nx-more: 2\r\n\r\n")
    assert (parser.take(), parser.headers, parser.complete) == (b"ok", (), True)
    parser.begin(bodiless=False)
    assert parser.feed(HEAD + b"x-own: 1\r\ncontent-length: 0\r\n\r\n")
    assert parser.headers == ((b"x-own", b"1"), (b"content-length", b"0"))


def head_of(size_bytes: int) -> bytes:
    before, after = HEAD + b"x: ", b"\r\ncontent-length: 2\r\n\r\n"
    return before + b"a" * (size_bytes - len(before) - len(after)) + after


@pytest.mark.parametrize("step", [1000, 1, 1_000_000])
def test_a_head_is_bounded_to_the_byte_however_it_comes(step: int) -> None:
    for size, fits in ((MAX_HEADER_BYTES, True), (MAX_HEADER_BYTES + 1, False)):
        wire = head_of(size) + b"ok"
        parser, body, proper = parsed(*[wire[i : i + step] for i in range(0, len(wire), step)])
        assert (proper, parser.complete, body) == ((True, True, b"ok") if fits else (False, False, b""))


def test_interim_answers_without_end_are_no_answer() -> None:
    _, _, proper = parsed(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 2000)
    assert not proper


@pytest.mark.parametrize("endless", [b"x-t: " + b"a" * 100 + b"\r\n", b"a" * 100])
def test_trailers_without_end_are_no_end(endless: bytes) -> None:
    begin = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: "
    _, body, proper = parsed(begin, *[endless] * 1000)
    assert body == b"ok"
    assert not proper


def test_an_extension_of_a_chunk_without_end_is_no_body() -> None:
    _, _, proper = parsed(HEAD + b"transfer-encoding: chunked\r\n\r\n2;", *[b"a" * 100] * 1000)
    assert not proper
