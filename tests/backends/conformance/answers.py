"""Valid answers of HTTP/1.1, as the bytes of a server and as what a client should make of them, for hypothesis."""

from dataclasses import dataclass
from enum import Enum, auto

from hypothesis import strategies as st

from backends.types import Headers


class Framing(Enum):
    """How an answer says where it ends."""

    SIZED = auto()
    CHUNKED = auto()
    UNTIL_CLOSE = auto()
    BODILESS = auto()


@dataclass(frozen=True, slots=True)
class Answer:
    """`wire` is what the server sends; the rest is what passes to the client. `keeps`: the connection may be reused."""

    wire: bytes
    status: int
    headers: Headers
    body: bytes
    framing: Framing
    keeps: bool


_TOKEN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!#$%&'*+^`|~"
_names = st.text(_TOKEN, min_size=1, max_size=12).map(lambda text: b"x-" + text.encode())
_inner = st.sampled_from([bytes([byte]) for byte in (*range(0x21, 0x7F), *range(0x80, 0x100), 0x20, 0x09)])
_values = st.lists(_inner, max_size=12).map(lambda parts: b"".join(parts).strip(b" \t"))
_fields = st.lists(st.tuples(_names, _values), max_size=5)
_bodies = st.one_of(
    st.binary(max_size=60), st.sampled_from([b"data: {}\n\n" * 9, b"0\r\n\r\n", b"\r\n\r\n", b"x" * 5000])
)
_interims = st.lists(
    st.sampled_from(
        [
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 102 Processing\r\nx-interim: 1\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\ncontent-length: 7\r\n\r\n",
        ]
    ),
    max_size=2,
).map(b"".join)
_colons = st.sampled_from([b":", b": ", b":  ", b":\t"])
_extensions = st.sampled_from([b"", b";a", b";a=b", b';a="b c"'])
_trailers = st.sampled_from([b"", b"x-trailer: 1\r\n", b"x-t: 1\r\nx-usage: {}\r\n"])
_codings = st.sampled_from([b"Transfer-Encoding: chunked", b"transfer-encoding:CHUNKED"])
_reasons = st.sampled_from([b" OK", b"", b" ", b" I'm a teapot", b" caf\xe9"])


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any of them."""
    framing = draw(st.sampled_from(Framing))
    bodiless = framing is Framing.BODILESS
    status = draw(st.sampled_from([204, 304] if bodiless else [200, 201, 307, 404, 413, 500, 503, 599]))
    body = b"" if bodiless else draw(_bodies)
    fields = draw(_fields)
    lines = [name + draw(_colons) + value for name, value in fields]
    headers = [(name.lower(), value) for name, value in fields]
    closes = draw(st.booleans())
    if framing is Framing.SIZED:
        lines.append(b"Content-Length: %d" % len(body))
        headers.append((b"content-length", b"%d" % len(body)))
    elif framing is Framing.CHUNKED:
        lines.append(draw(_codings))
    if closes:
        lines.append(b"Connection: close")
    head = b"\r\n".join([b"HTTP/1.1 %d%s" % (status, draw(_reasons)), *lines]) + b"\r\n\r\n"
    sent = _chunks(draw, body) if framing is Framing.CHUNKED else body
    keeps = not closes and framing is not Framing.UNTIL_CLOSE
    return Answer(draw(_interims) + head + sent, status, tuple(headers), body, framing, keeps)


def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    wire = b""
    for piece in draw(cuts(body)):
        size = draw(st.sampled_from([b"%x", b"%X", b"00%x"])) % len(piece)
        wire += size + draw(_extensions) + b"\r\n" + piece + b"\r\n"
    return wire + b"0" + draw(_extensions) + b"\r\n" + draw(_trailers) + b"\r\n"


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """`data` in pieces, none of them empty."""
    places = sorted(draw(st.sets(st.integers(1, max(len(data) - 1, 1)), max_size=12)))
    pieces = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    return [piece for piece in pieces if piece]
