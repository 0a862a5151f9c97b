"""Bytes become the same requests however they are cut; what is no request, or too long, is refused."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import BadRequest, GatewayError, HeadTooLarge, UriTooLong
from gateway.serving.reader import (
    MOST_BARREN_BYTES,
    MOST_FIELD_BYTES,
    MOST_FIELDS,
    MOST_TARGET_BYTES,
    PAST_PARSER_BYTES,
    RequestHead,
    RequestReader,
)


class Taken:
    """What a reader has read: heads with their bodies, and whether each was whole."""

    def __init__(self) -> None:
        self.requests: list[tuple[RequestHead, bytes, bool]] = []

    def request_begins(self, head: RequestHead) -> None:
        self.requests.append((head, b"", False))

    def request_goes_on(self, piece: bytes | memoryview) -> None:
        head, body, _ = self.requests[-1]
        self.requests[-1] = (head, body + piece, False)

    def request_ends(self) -> None:
        self.requests[-1] = (*self.requests[-1][:2], True)


def read(pieces: list[bytes]) -> list[tuple[RequestHead, bytes, bool]]:
    taken = Taken()
    reader = RequestReader(taken)
    for piece in pieces:
        reader.feed(piece)
    return taken.requests


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at})
    return [data[i:j] for i, j in zip([0, *places], [*places, len(data)], strict=True) if i < j]


BODY_SIZES = [0, 1, 17, PAST_PARSER_BYTES - 1, PAST_PARSER_BYTES, PAST_PARSER_BYTES + 1, 40_000, 70_000]


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """Requests on the wire, one after the other, and their bodies; some bodies look like the end of a head."""
    wire, bodies = b"", []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from(BODY_SIZES))
        body = (draw(st.sampled_from([b"x", b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])) * size)[:size]
        head = b"POST /%d?q=%d HTTP/1.1\r\nHost: x\r\n" % (number, size)
        coding = draw(st.sampled_from(["length", "chunks"]))
        if coding == "length":
            wire += head + b"Content-Length: %d\r\n\r\n" % size + body
        else:
            pieces = [body[i : i + 9000] for i in range(0, size, 9000)]
            wire += head + b"Transfer-Encoding: chunked\r\n\r\n"
            wire += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        bodies.append(body)
    return wire, bodies


@given(requests(), st.lists(st.integers(0, 400_000), max_size=12))
def test_requests_are_the_same_wherever_their_bytes_are_cut(sent: tuple[bytes, list[bytes]], at: list[int]) -> None:
    wire, bodies = sent
    found = read(cut(wire, at))
    assert [(body, whole) for _, body, whole in found] == [(body, True) for body in bodies]
    assert [head.target for head, _, _ in found] == [
        b"/%d?q=%d" % (number, len(body)) for number, body in enumerate(bodies)
    ]


HEADS = (
    b"\r\nPOST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nX-Odd: \xff\r\nContent-Length: 3\r\n\r\nabc"
    b"GET http://x/y HTTP/1.1\r\nConnection: keep-alive\r\nempty:\r\n\r\n"
    b"POST /z HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n0\r\nTrailer-One: 1\r\n\r\n"
    b"GET / HTTP/1.0\r\n\r\n"
)


def test_a_head_is_the_same_cut_at_any_one_byte() -> None:
    whole = read([HEADS])
    assert [head.fields for head, _, _ in whole] == [
        [(b"host", b"x"), (b"expect", b"100-Continue"), (b"x-odd", b"\xff"), (b"content-length", b"3")],
        [(b"connection", b"keep-alive"), (b"empty", b"")],
        [(b"transfer-encoding", b"chunked")],
        [],
    ]
    assert [(head.version, head.keep_alive, head.expects_continue) for head, _, _ in whole] == [
        *[("1.1", True, True), ("1.1", True, False), ("1.1", True, False), ("1.0", False, False)]
    ]
    for place in range(len(HEADS)):
        assert read([HEADS[:place], HEADS[place:]]) == whole
    assert read([bytes([byte]) for byte in HEADS]) == whole


@given(st.integers(0, 60_000), st.lists(st.integers(0, 80_000), max_size=6))
@example(40_000, [])
def test_a_body_is_not_lost_to_an_offer_of_another_protocol(size: int, at: list[int]) -> None:
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    head = b"POST / HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n" % (offer, size)
    after = b"GET /next HTTP/1.1\r\n\r\n"
    first, second = read(cut(head + b"y" * size + after, at))
    assert (first[1], first[2]) == (b"y" * size, True)
    assert second[0].target == b"/next"


def test_a_head_may_be_as_long_as_the_limits_say() -> None:
    target = b"/" + b"t" * (MOST_TARGET_BYTES - 1)
    line = b"n: %b\r\n" % (b"v" * (MOST_FIELD_BYTES // MOST_FIELDS - 1))
    [(head, _, whole)] = read([b"GET %b HTTP/1.1\r\n%b\r\n" % (target, line * MOST_FIELDS)])
    assert (len(head.fields), head.target, whole) == (MOST_FIELDS, target, True)


TOO_LONG: list[tuple[bytes, type[GatewayError]]] = [
    (b"GET /%b HTTP/1.1\r\n\r\n" % (b"t" * MOST_TARGET_BYTES), UriTooLong),
    (b"GET / HTTP/1.1\r\n%b\r\n" % (b"n: v\r\n" * (MOST_FIELDS + 1)), HeadTooLarge),
    (b"GET / HTTP/1.1\r\nn: %b\r\n\r\n" % (b"v" * MOST_FIELD_BYTES), HeadTooLarge),
    (b"GET / HTTP/1.1\r\n%b: v\r\n\r\n" % (b"n" * MOST_FIELD_BYTES), HeadTooLarge),
    (b"GET / HTTP/1.1\r\nn: " + b"v" * (MOST_BARREN_BYTES + 100_000), HeadTooLarge),
    (b"GET /" + b"t" * (MOST_BARREN_BYTES + 100_000), UriTooLong),
    (b"\r\n" * (MOST_BARREN_BYTES + 1), BadRequest),
    (
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"e" * (MOST_BARREN_BYTES + 50_000),
        BadRequest,
    ),
    (
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nn: " + b"v" * (MOST_BARREN_BYTES + 50_000),
        BadRequest,
    ),
]


@pytest.mark.parametrize(("wire", "error"), TOO_LONG)
def test_what_is_too_long_is_refused_before_it_ends(wire: bytes, error: type[GatewayError]) -> None:
    with pytest.raises(error):
        read([wire[i : i + 1000] for i in range(0, len(wire), 1000)])


NO_REQUEST = [
    b"hello\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n bad: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nbad name: 1\r\n\r\n",
    b"GET / HTTP/1.1\r\nname : 1\r\n\r\n",
    b"GET / HTTP/1.1\nhost: x\n\n",
    b"GET / HTTP/1.1\r\nn: a\0b\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    b"POST / HTTP/1.1\r\ncontent-length: 3, 3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc",
    b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\nabc",
    b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: identity\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked, gzip\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nconnection: close\r\n\r\n",
]


@pytest.mark.parametrize("wire", NO_REQUEST)
def test_what_two_servers_could_read_differently_is_no_request(wire: bytes) -> None:
    for pieces in ([wire], [bytes([byte]) for byte in wire]):
        with pytest.raises(BadRequest):
            read(pieces)


def test_what_follows_the_last_request_of_a_connection_is_not_read() -> None:
    found = read([b"GET / HTTP/1.1\r\nconnection: close\r\n\r\nGET /again HTTP/1.1\r\n\r\n"])
    assert [head.target for head, _, _ in found] == [b"/"]


def test_trailers_and_the_end_of_the_connection_are_each_no_fault() -> None:
    def chunked(fields: bytes, trailers: bytes) -> bytes:
        return b"POST / HTTP/1.1\r\n%btransfer-encoding: chunked\r\n\r\n0\r\n%b\r\n" % (fields, trailers)

    more = chunked(b"", b"digest: 1\r\n") + chunked(b"connection: upgrade, close\r\nupgrade: h2c\r\n", b"digest: 2\r\n")
    assert [(whole, head.keep_alive) for head, _, whole in read([more])] == [(True, True), (True, False)]
