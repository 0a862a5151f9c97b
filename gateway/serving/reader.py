"""Bytes become requests: a head within bounds, the pieces of a body, an end.

    feed(bytes) --httptools--> begins(head)   goes_on(piece)   ends()      of whoever takes them
                   |               `-- too long: 414    too many fields, or too long ones: 431
                   `-- no HTTP: 400

A long body goes past the parser: its head is cut off where it ends, and once that has said how long the body is, its
bytes are handed on as they came, without a copy; a new parser reads what follows them.

An offer to speak another protocol from now on (`Upgrade: h2c`, as some clients make it with their first request) is not
taken up. The parser takes it up, though, and leaves the body unread: then the head is shown to it again without it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import httptools

from gateway.errors import BadRequest, GatewayError, HeadTooLarge, UriTooLong

MOST_FIELDS: Final = 128
MOST_FIELD_BYTES: Final = 32 * 1024
"""Names and values of all fields of a head."""
MOST_TARGET_BYTES: Final = 8 * 1024
"""Path and query."""
MOST_BARREN_BYTES: Final = 64 * 1024
"""Bytes in a row that neither end a head nor add to a body: fields that do not end, extensions of chunks, trailers."""
PAST_PARSER_BYTES: Final = 16 * 1024
"""A body that is longer than this is not shown to the parser."""
_END_OF_HEAD: Final = b"\r\n\r\n"
_METHODS: Final = {name.encode(): name for name in ("POST", "GET", "HEAD", "DELETE", "PUT", "OPTIONS", "PATCH")}


class RequestHead(NamedTuple):
    """The head of a request."""

    method: str
    target: bytes
    """Path and query as they came, with scheme and host where a client wrote them."""
    version: str
    fields: list[tuple[bytes, bytes]]
    """Names in lower case."""
    content_length: int | None
    expects_continue: bool
    keep_alive: bool
    """Never with HTTP/1.0, whose clients may read an answer until the connection ends."""


class RequestTaker(Protocol):
    """Who takes requests. Each may raise `StopReading`."""

    def request_begins(self, head: RequestHead) -> None:
        """A head is whole."""

    def request_goes_on(self, piece: bytes | memoryview) -> None:
        """A piece of the body came."""

    def request_ends(self) -> None:
        """The request is whole."""


class StopReading(Exception):
    """Nothing more is to be read."""


class RequestReader:
    """Reads the requests of one connection. `in_head` while a head has begun and is not whole; `target` is its."""

    in_head = False
    target = b""
    _field_bytes_at_most = 0
    _in_body = False
    _body_left_bytes = 0
    _past_parser_bytes = 0
    """Of a body that the parser is not shown."""
    _heard = False
    """Whether the parser has said anything while it read the latest bytes."""
    _barren_bytes = 0
    _upgrades = False
    _keeps_alive = False
    _head_fields = 0
    """How many fields the latest head had: those that follow are trailers."""

    def __init__(self, taker: RequestTaker) -> None:
        self._taker: RequestTaker | None = taker
        self._fields: list[tuple[bytes, bytes]] = []
        self.on_header = _into(self._fields)
        """What the parser calls for each field: it is called more often than all the rest."""
        self._parser: Any = _parser(self)

    def feed(self, data: bytes) -> None:
        """Read on. Raises the `GatewayError` that answers what is no request, or `StopReading`. O(bytes)."""
        if len(data) <= PAST_PARSER_BYTES and not self._past_parser_bytes:
            self._parse(data)
            return
        rest = memoryview(data)
        end_of_head = -1 if self._in_body else data.find(_END_OF_HEAD)
        if end_of_head >= 0:  # alone, so that what follows can go past the parser
            end_of_head += len(_END_OF_HEAD)
            self._parse(rest[:end_of_head])
            rest = rest[end_of_head:]
        if self._past_parser_bytes:
            rest = self._past_parser(rest)
        if rest:
            self._parse(rest)

    def _parse(self, data: bytes | memoryview) -> None:
        self._heard = False
        self._field_bytes_at_most = len(data) + (self._field_bytes_at_most if self.in_head else 0)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._without_upgrade(bytes(data[upgrade.args[0] :]))
            return
        except httptools.HttpParserError as error:
            raise _meaning(error) from None
        if self._heard:
            self._barren_bytes = 0
        else:
            self._barren_bytes += len(data)
            if self._barren_bytes > MOST_BARREN_BYTES:
                raise self._endless()
        if self._body_left_bytes > PAST_PARSER_BYTES:
            self._past_parser_bytes, self._body_left_bytes = self._body_left_bytes, 0
            self._parser = _parser(self)

    def close(self) -> None:
        """Let go of who takes the requests."""
        self._taker = self._parser = None

    # What the parser calls

    def on_message_begin(self) -> None:
        """A request begins."""
        self._heard = self.in_head = True
        self.target = b""
        self._fields.clear()

    def on_url(self, piece: bytes) -> None:
        """A part of path and query."""
        self.target += piece

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._heard, self.in_head, self._in_body = True, False, True
        self._check_lengths()
        parser, taker = self._parser, self._taker
        if taker is None:
            raise StopReading
        method, upgrades = parser.get_method(), parser.should_upgrade()
        self._head_fields, self._keeps_alive = len(self._fields), parser.should_keep_alive()
        if upgrades:
            if method == b"CONNECT":
                raise BadRequest("this is no proxy to connect through")
            self._upgrades = True
            return
        fields = self._fields.copy()  # those that follow the body are none of the head
        named = dict(fields)
        length = named.get(b"content-length")
        length_bytes = None if length is None else int(length)
        if named.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise BadRequest("the only transfer coding that is read here is `chunked`")
        self._body_left_bytes = length_bytes or 0
        name = _METHODS.get(method) or method.decode("ascii")
        version = parser.get_http_version()
        keep_alive = version != "1.0" and self._keeps_alive
        expects_continue = version != "1.0" and named.get(b"expect", b"").lower() == b"100-continue"
        taker.request_begins(
            RequestHead(name, self.target, version, fields, length_bytes, expects_continue, keep_alive)
        )

    def on_body(self, piece: bytes) -> None:
        """A piece of a body."""
        self._heard = True
        self._body_left_bytes -= len(piece)
        if self._taker is not None:
            self._taker.request_goes_on(piece)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._in_body = False
        if self._keeps_alive and len(self._fields) > self._head_fields and not self._parser.should_keep_alive():
            raise BadRequest("a trailer cannot end the connection")  # the parser, for one, would read nothing more
        if self._taker is not None and not self._upgrades:
            self._taker.request_ends()

    def _past_parser(self, data: memoryview) -> memoryview:
        """Hand on what is of the body, give back what follows it."""
        assert self._taker is not None
        of_body = data[: self._past_parser_bytes]
        self._past_parser_bytes -= len(of_body)
        self._taker.request_goes_on(of_body)
        if not self._past_parser_bytes:
            self.on_message_complete()
        return data[len(of_body) :]

    def _check_lengths(self) -> None:
        """The bounds of a head. What cannot be too long in so few bytes is not added up."""
        if len(self._fields) > MOST_FIELDS:
            raise _fields_too_long()
        if self._field_bytes_at_most > MOST_TARGET_BYTES:
            if len(self.target) > MOST_TARGET_BYTES:
                raise _target_too_long()
            if sum(len(name) + len(value) for name, value in self._fields) > MOST_FIELD_BYTES:
                raise _fields_too_long()

    def _endless(self) -> GatewayError:
        """What is wrong with so many bytes that say nothing."""
        if not self.in_head:
            return BadRequest("these bytes are no part of a request")
        return _fields_too_long() if self._fields or len(self.target) <= MOST_TARGET_BYTES else _target_too_long()

    def _without_upgrade(self, rest: bytes) -> None:
        """Read the head again without its offer to speak another protocol, and go on with the rest."""
        parser, fields = self._parser, self._fields
        head = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.target, parser.get_http_version().encode())]
        head += [b"%b: %b\r\n" % field for field in fields if field[0] != b"upgrade"]
        self._upgrades, self._parser = False, _parser(self)
        self.feed(b"".join((*head, _END_OF_HEAD[2:], rest)))


def _into(fields: list[tuple[bytes, bytes]]) -> Callable[[bytes, bytes], None]:
    append = fields.append

    def on_header(name: bytes, value: bytes) -> None:
        append((name.lower(), value))

    return on_header


def _parser(reader: RequestReader) -> Any:
    parser = httptools.HttpRequestParser(reader)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # what follows the last request is not read
    return parser


def _meaning(error: Exception) -> Exception:
    """What stopped the parser: an error of ours, or bytes that are no HTTP."""
    inner = error.__context__
    if isinstance(inner, (GatewayError, StopReading)):
        return inner
    return BadRequest("these bytes are no HTTP request")


def _target_too_long() -> GatewayError:
    return UriTooLong(f"path and query are longer than {MOST_TARGET_BYTES} bytes")


def _fields_too_long() -> GatewayError:
    return HeadTooLarge(f"more than {MOST_FIELDS} header fields, or more than {MOST_FIELD_BYTES} bytes of them")
