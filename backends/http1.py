"""The bytes of answers -> heads and bodies: HTTP/1.1 as a client reads it. No I/O.

                    on_message_begin   on_header...   on_headers_complete   (body)   on_message_complete
    interim  1xx          x                 x               x                              x        skipped
    answer                x                 x               x -> status,      x -> take    x -> complete
                                                                headers
    surplus               x -> not reusable, parsing stops

The grammar is llhttp's, in its strict mode. What it leaves open is decided here, always against reuse, and against the
answer where its end would be in doubt:

- Two lengths, a length beside chunks, folded fields, bare line feeds: refused by the grammar.
- A transfer coding that is not one `chunked`: refused. None else was offered, and the field that names it is not passed
  on, so its body would not be the one that we relay.
- 101, for which nobody asked, and a status outside 200 to 599: refused.
- Bytes after the end: the answer stands, and the connection is not reused.
- Chunks from a server of HTTP/1.0, which has none: the same.
- Heads, trailers, sizes of chunks and their extensions are bounded: `MAX_HEADER_BYTES` for a head with all interim ones
  before it, and about as much between two pieces of body.

Costs: one call of Python per field and three per answer, about 5 µs. None per chunk of body: the parser appends to a
list.
"""

from collections.abc import Callable
from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from backends.headers import response_headers
from backends.types import Headers

KiB: Final = 1024
MAX_HEADER_BYTES: Final = 32 * KiB


class _Refused(Exception):
    """What came is HTTP that we do not relay; ends the parsing, never leaves this module."""


class AnswerParser:
    """Answers one after the other: `begin`, then `feed` what comes until `complete`.

    `status` is 0 until the head is whole; then `headers` has the fields to pass on. `reusable` counts once `complete`.
    Call `close` when done with it: the parser and this hold each other.
    """

    __slots__ = (
        "_bodiless",
        "_fields",
        "_interim",
        "_overhead_bytes",
        "_parser",
        "_parts",
        "complete",
        "headers",
        "on_body",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._fields: list[tuple[bytes, bytes]] = []
        self.on_body: Callable[[bytes], None] = self._parts.append
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.begin(bodiless=False)

    def begin(self, *, bodiless: bool) -> None:
        """Expect the next answer; `bodiless`: its head is all, whatever it says, since HEAD was asked."""
        self.status = 0
        self.headers: Headers = ()
        self.complete = self.reusable = self._interim = False
        self._bodiless = bodiless
        self._overhead_bytes = 0
        self._fields.clear()

    def feed(self, data: bytes) -> bool:
        """Whether the answer can still come to a proper end. O(bytes)."""
        parser = self._parser
        assert parser is not None, "closed"
        had_head = self.status
        try:
            if had_head:
                parser.feed_data(data)
            else:
                self._feed_head(parser, data)
        except (HttpParserError, HttpParserUpgrade, _Refused):
            self.reusable = False
            return self.complete
        if self._parts or had_head != self.status:
            self._overhead_bytes = 0
            return True
        self._overhead_bytes += len(data)
        return self.complete or self._overhead_bytes <= MAX_HEADER_BYTES

    def take(self) -> bytes:
        """The body that came since the last call, as one piece; b"" where none did."""
        parts = self._parts
        if not parts:
            return b""
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return b"" if self._bodiless else piece

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the proper end of the answer, which does not say itself where it is."""
        return self.status != 0 and not any(name in _TELLS_END for name, _ in self._fields)

    def close(self) -> None:
        """Part from the parser."""
        self._parser = None

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Called by the parser."""
        if self.complete:
            raise _Refused

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for trailers too."""
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        parser = self._parser
        assert parser is not None
        status = parser.get_status_code()
        if not 200 <= status < 600:
            self._skip_interim(status)
            return
        fields = self._fields
        self.headers = response_headers(fields)
        self.reusable = parser.should_keep_alive() and not self._bodiless
        if len(self.headers) != len(fields) and _is_chunked(fields) and parser.get_http_version() == "1.0":
            self.reusable = False
        self.status = status
        self.complete = self._bodiless

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._interim:
            self._interim = False
        else:
            self.complete = True

    def _feed_head(self, parser: HttpResponseParser, data: bytes) -> None:
        room = MAX_HEADER_BYTES - self._overhead_bytes
        if len(data) > room:
            parser.feed_data(data[:room])
            if not self.status:
                raise _Refused
            data = data[room:]
        parser.feed_data(data)

    def _skip_interim(self, status: int) -> None:
        """100 Continue, 103 Early Hints and the like: the answer is still to come."""
        if not 100 <= status < 200 or status == 101:
            raise _Refused
        self._interim = True
        self._fields.clear()


_TELLS_END: Final = frozenset({b"content-length", b"transfer-encoding"})


def _is_chunked(fields: list[tuple[bytes, bytes]]) -> bool:
    codings = [value.strip().lower() for name, value in fields if name == b"transfer-encoding"]
    if codings and codings != [b"chunked"]:
        raise _Refused
    return bool(codings)
