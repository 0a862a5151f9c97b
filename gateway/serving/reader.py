"""Bytes become requests: a head within bounds, the pieces of a body, an end.

    feed(bytes) --httptools--> begins(head)   goes_on(piece)   ends()      of whoever takes them
                   |               `-- too long: 414    too many fields, or too long ones: 431
                   `-- no HTTP: 400

A long body goes past the parser: once its head has said how long it is, its bytes are handed on as they came, without
a copy, and a new parser reads what follows them.

An offer to speak another protocol from now on (`Upgrade: h2c`, as some clients make it with their first request) is not
taken up. The parser takes it up, though, and leaves the body unread: then the head is shown to it again without it.
"""

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
"""The rest of a body that is longer than this is not shown to the parser."""
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


class RequestTaker(Protocol):
    """Who takes requests. Each may raise `StopReading`."""

    def request_begins(self, head: RequestHead) -> None:
        """A head is whole."""

    def request_goes_on(self, piece: bytes) -> None:
        """A piece of the body came."""

    def request_ends(self) -> None:
        """The request is whole."""


class StopReading(Exception):
    """Nothing more is to be read."""


class RequestReader:
    """Reads the requests of one connection. `in_head` while a head has begun and is not whole; `target` is its."""

    __slots__ = (
        "_barren_bytes",
        "_body_left_bytes",
        "_content_length",
        "_expects_continue",
        "_field_bytes",
        "_fields",
        "_heard",
        "_parser",
        "_past_parser_bytes",
        "_taker",
        "_upgrades",
        "in_head",
        "target",
    )

    def __init__(self, taker: RequestTaker) -> None:
        self._taker: RequestTaker | None = taker
        self._parser: Any = _parser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._field_bytes = 0
        self._content_length: int | None = None
        self._expects_continue = False
        self._upgrades = False
        self._body_left_bytes = 0
        self._past_parser_bytes = 0
        self._heard = False
        self._barren_bytes = 0
        self.in_head = False
        self.target = b""

    def feed(self, data: bytes) -> None:
        """Read on. Raises the `GatewayError` that answers what is no request, or `StopReading`. O(bytes)."""
        if self._past_parser_bytes:
            data = self._past_parser(data)
            if not data:
                return
        self._heard = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            raise _meaning(error) from None
        if self._heard:
            self._barren_bytes = 0
        else:
            self._barren_bytes += len(data)
            if self._barren_bytes > MOST_BARREN_BYTES:
                raise _fields_too_long() if self.in_head else BadRequest("these bytes are no part of a request")
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
        self.target, self._fields, self._field_bytes = b"", [], 0
        self._content_length, self._expects_continue = None, False

    def on_url(self, piece: bytes) -> None:
        """A part of path and query."""
        self.target += piece
        if len(self.target) > MOST_TARGET_BYTES:
            raise UriTooLong(f"path and query are longer than {MOST_TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of a head; also one that follows a chunked body, which nobody reads."""
        if not self.in_head:
            return
        name = name.lower()
        self._fields.append((name, value))
        self._field_bytes += len(name) + len(value)
        if self._field_bytes > MOST_FIELD_BYTES or len(self._fields) > MOST_FIELDS:
            raise _fields_too_long()
        if name == b"content-length":
            self._content_length = int(value)
        elif name == b"expect":
            self._expects_continue = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._heard, self.in_head = True, False
        parser, taker = self._parser, self._taker
        if taker is None:
            raise StopReading
        method = parser.get_method()
        if parser.should_upgrade():
            if method == b"CONNECT":
                raise BadRequest("this is no proxy to connect through")
            self._upgrades = True
            return
        self._body_left_bytes = self._content_length or 0
        name = _METHODS.get(method) or method.decode("ascii")
        version, keep_alive = parser.get_http_version(), parser.should_keep_alive()
        taker.request_begins(
            RequestHead(
                *(name, self.target, version, self._fields, self._content_length, self._expects_continue, keep_alive)
            )
        )

    def on_body(self, piece: bytes) -> None:
        """A piece of a body."""
        self._heard = True
        self._body_left_bytes -= len(piece)
        if self._taker is not None:
            self._taker.request_goes_on(piece)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._taker is not None and not self._upgrades:
            self._taker.request_ends()

    def _past_parser(self, data: bytes) -> bytes:
        """Hand on what is of the body, give back what follows it."""
        assert self._taker is not None
        of_body = data if len(data) <= self._past_parser_bytes else data[: self._past_parser_bytes]
        self._past_parser_bytes -= len(of_body)
        self._taker.request_goes_on(of_body)
        if not self._past_parser_bytes:
            self._taker.request_ends()
        return data[len(of_body) :]

    def _without_upgrade(self, rest: bytes) -> None:
        """Read the head again without its offer to speak another protocol, and go on with the rest."""
        parser, fields = self._parser, self._fields
        head = [b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.target, parser.get_http_version().encode())]
        head += [b"%b: %b\r\n" % field for field in fields if field[0] != b"upgrade"]
        self._upgrades, self._parser = False, _parser(self)
        self.feed(b"".join((*head, b"\r\n", rest)))


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


def _fields_too_long() -> GatewayError:
    return HeadTooLarge(f"more than {MOST_FIELDS} header fields, or more than {MOST_FIELD_BYTES} bytes of them")
