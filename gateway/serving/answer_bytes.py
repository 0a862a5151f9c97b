"""An answer as bytes on the wire: its head, and the framing of its body.

    head   HTTP/1.1 200 OK | date | the application's fields | connection: close ? | transfer-encoding: chunked ?
    body   as long as the head says, or in chunks, or until the connection closes (HTTP/1.0)

Fields are not looked at one by one for characters that could end a line: the ends of lines of the whole head are
counted, which finds the same. Cost of a head of ten fields: 2 us.
"""

import http
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

_CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_LOOKED_AT: Final = frozenset({b"content-length", b"connection", b"transfer-encoding"})


def _status_line(status: int) -> bytes:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii")


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
    status: int, fields: Iterable[tuple[bytes, bytes]], date: bytes, *, is_head: bool, http_1_0: bool, closes: bool
) -> AnswerHead:
    """The head of an answer, `date` being the line of the date. Raises `AnswerMalformed`.

    Names of fields must be in lower case, as ASGI has them. `closes` ends the connection with it.
    """
    lines = [_STATUS_LINES[status], date]
    length_bytes, told_close = None, False
    ends = 3  # of lines: the status, the date, the empty one
    for name, value in fields:
        if name in _LOOKED_AT:
            if name == b"content-length":
                length_bytes = int(value)
            elif name == b"transfer-encoding":
                continue  # is ours to choose
            elif b"close" in value.lower():
                closes = told_close = True
        lines += (name, b": ", value, b"\r\n")
        ends += 1
    framing = _framing(length_bytes, has_body=not is_head and status not in _BODILESS, http_1_0=http_1_0)
    if framing is Framing.CHUNKED:
        lines.append(_CHUNKED)
        ends += 1
    closes = closes or framing is Framing.CLOSE
    if closes and not told_close:
        lines.append(_CLOSE)
        ends += 1
    lines.append(b"\r\n")
    data = b"".join(lines)
    if not data.count(b"\n") == data.count(b"\r") == ends:
        raise AnswerMalformed("a header field of the answer holds the end of a line")
    return AnswerHead(data, framing, length_bytes or 0, closes)


def _framing(length_bytes: int | None, *, has_body: bool, http_1_0: bool) -> Framing:
    if not has_body:
        return Framing.NONE
    if length_bytes is not None:
        return Framing.LENGTH
    return Framing.CLOSE if http_1_0 else Framing.CHUNKED


def chunk_parts(body: bytes, *, more: bool) -> tuple[bytes, ...]:
    """A piece of a chunked body on the wire; the last one has no `more`."""
    if not body:
        return () if more else (_LAST_CHUNK,)
    begin = b"%x\r\n" % len(body)
    return (begin, body, b"\r\n") if more else (begin, body, b"\r\n0\r\n\r\n")
