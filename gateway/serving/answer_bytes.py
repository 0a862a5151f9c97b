"""An answer as bytes on the wire: its head, and the framing of its body.

    head   HTTP/1.1 200 OK | date | the application's fields | connection: close ? | transfer-encoding: chunked ?
    body   as long as the head says, or in chunks, or until the connection closes (HTTP/1.0)

Fields are not looked at one by one for characters that could end a line: the ends of lines of the whole head are
counted, which finds the same.
"""

import http
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_ENDS: Final = {
    (False, False): b"\r\n",
    (True, False): b"transfer-encoding: chunked\r\n\r\n",
    (False, True): b"connection: close\r\n\r\n",
    (True, True): b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
}
"""The end of a head: whether its body is chunked, whether it is to say that the connection closes."""
JOINED_BYTES: Final = 16 * 1024
_LAST_CHUNK: Final = b"0\r\n\r\n"
_LOOKED_AT: Final = frozenset({b"content-length", b"connection", b"transfer-encoding"})
_BODILESS: Final = frozenset({204, 304})


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}".encode("ascii")


_STATUS_LINES: Final = {status: _status_line(status) for status in range(100, 1000)}


class Framing(Enum):
    """How a client knows where the body ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"
    NONE = "none"
    """There is none, whatever the head says of its length."""


class AnswerMalformed(Exception):
    """The application's answer cannot be sent: a line ends inside a field, or its body is not as long as it said."""


class AnswerHead(NamedTuple):
    """A head that is ready to be sent, and what it promises."""

    data: bytes
    framing: Framing
    length_bytes: int
    """Of the body, where its framing is by length."""
    closes: bool
    """Whether the connection ends with this answer."""


def answer_head(
    status: int, fields: Sequence[tuple[bytes, bytes]], date: bytes, *, is_head: bool, http_1_0: bool, closes: bool
) -> AnswerHead:
    """The head of an answer, `date` being the field of the date. Raises `AnswerMalformed`.

    Names of fields must be in lower case, as ASGI has them. `closes` ends the connection with it.
    """
    length, tells_close = None, False
    for name, value in fields:
        if name in _LOOKED_AT:
            if name == b"content-length":
                length = value
            elif name == b"connection":
                tells_close = b"close" in value.lower()
            else:  # the coding is ours to choose
                fields = [field for field in fields if field[0] != b"transfer-encoding"]
    framing = _framing(length, has_body=not is_head and status not in _BODILESS, http_1_0=http_1_0)
    closes = closes or tells_close or framing is Framing.CLOSE
    lines = [_STATUS_LINES[status], date, *[b": ".join(field) for field in fields], b""]
    data = b"\r\n".join(lines)
    if not data.count(b"\n") == data.count(b"\r") == len(lines) - 1:
        raise AnswerMalformed("a header field of the answer holds the end of a line")
    data += _ENDS[framing is Framing.CHUNKED, closes and not tells_close]
    return AnswerHead(data, framing, int(length or 0), closes)


def _framing(length: bytes | None, *, has_body: bool, http_1_0: bool) -> Framing:
    if not has_body:
        return Framing.NONE
    if length is not None:
        return Framing.LENGTH
    return Framing.CLOSE if http_1_0 else Framing.CHUNKED


def chunk_parts(head: bytes, body: bytes, *, more: bool) -> tuple[bytes, ...]:
    """A piece of a chunked body on the wire, after what is left of the head; the last one has no `more`.

    A piece up to `JOINED_BYTES` is one part, of a longer one nothing is copied.
    """
    if not body:
        return (head if more else head + _LAST_CHUNK,)
    end = b"\r\n" if more else b"\r\n0\r\n\r\n"
    if len(body) <= JOINED_BYTES:
        return (b"%b%x\r\n%b%b" % (head, len(body), body, end),)
    return (b"%b%x\r\n" % (head, len(body)), body, end)


def plain_parts(head: bytes, body: bytes) -> tuple[bytes, ...]:
    """The same of a body that is not chunked."""
    if not head:
        return (body,)
    return (head + body,) if len(body) <= JOINED_BYTES else (head, body)
