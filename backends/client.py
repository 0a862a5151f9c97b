"""One upstream call, on the data path.

    send ──pool──> connection ──request──> head ──> UpstreamResponse ──read_chunk──> b"..." ... b""
           │connect_s             │first_byte_s            │idle_s per read
           DialFailed             FirstByteTimeout         IdleTimeout, UpstreamReset

Invariants:
- Bytes pass unchanged in both directions: no decompression, no redirect, no cookies, no proxy from the environment.
- A chunk is what had arrived when it was read: events that came together leave together, and nothing waits to be
  whole. At most `READ_BUFFER_BYTES` twice over are held for a slow reader; then the socket is not read any more.
- A response ends exactly once: at its end the connection returns to the pool by itself; `abort` before that closes
  it at once, so that the engine sees the client leave. `aclose` is `abort` unless the end was read.
- A kept connection may have been closed under us while it lay idle. A request that dies on one before any byte of an
  answer is sent once more, on a connection made for it; what dies on a fresh connection is an error.

Costs: 0.25 to 0.35 ms of CPU per call of 2 KB on one core, four fifths of it in the HTTP library; one timer per read
that has to wait.
"""

import asyncio
import errno
import io
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import Final, Self

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from backends import headers as header_filter
from backends.errors import (
    DialFailed,
    DialReason,
    FirstByteTimeout,
    IdleTimeout,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamReset,
)
from backends.types import Deadlines, EndpointConfig, EndpointId, Headers, UpstreamRequest

KiB: Final = 1024
READ_BUFFER_BYTES: Final = 64 * KiB
MAX_HEADER_BYTES: Final = 32 * KiB
"""Longest status line or header field accepted from an endpoint."""
MAX_BODY_AT_ONCE_BYTES: Final = 1024 * KiB
"""Bodies longer than this are written in pieces, so that one of them does not hold the loop."""
IDLE_CONNECTION_S: Final = 4.0
"""How long an unused connection is kept: under the 5 s after which uvicorn, and so most engines, close theirs."""
_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})


@dataclass(slots=True)
class _Attempt:
    """What happened to the connection of one attempt; filled in by the HTTP library's tracing hooks."""

    deadline: asyncio.Timeout
    first_byte_s: float
    queued: bool = False
    connected: bool = False
    reused: bool = False

    def has_connection(self, reused: bool) -> None:
        self.connected = True
        self.reused = reused
        self.deadline.reschedule(asyncio.get_running_loop().time() + self.first_byte_s)


class UpstreamResponse:
    """The answer of an endpoint: its head at hand, its body read as it comes.

    Iterate it, or call `read_chunk` until it returns b"". Use it as an async context manager, or call `aclose` on
    every path; both are safe after the end.
    """

    __slots__ = (
        "_ended",
        "_endpoint_id",
        "_idle_s",
        "_lost",
        "_protocol",
        "_raw",
        "headers",
        "received_bytes",
        "reused_connection",
        "status",
    )

    def __init__(self, raw: aiohttp.ClientResponse, endpoint_id: EndpointId, idle_s: float, reused: bool) -> None:
        self._raw = raw
        self._endpoint_id = endpoint_id
        self._idle_s = idle_s
        self._ended = False
        self._protocol = None if raw.connection is None else raw.connection.protocol
        self._lost = None if self._protocol is None else self._protocol.closed
        if self._lost is not None:
            self._lost.add_done_callback(self._connection_lost)
        self.status: int = raw.status
        self.headers: Headers = header_filter.response_headers(raw.raw_headers)
        self.received_bytes = 0
        self.reused_connection = reused

    async def read_chunk(self, within_s: float | None = None) -> bytes:
        """The bytes that have arrived, waiting for at least one; b"" at the proper end of the body, again and again.

        `within_s` is the patience of this one read, else `Deadlines.idle_s`. Raises `IdleTimeout`, `UpstreamReset` or
        `UpstreamProtocolError`, after which the connection is closed.
        """
        if self._ended:
            return b""
        patience_s = self._idle_s if within_s is None else within_s
        body = self._raw.content
        try:
            if body.is_eof():  # what is left has arrived: nothing to wait for, no timer to pay for
                chunk = await body.readany()
            else:
                async with asyncio.timeout(patience_s):
                    chunk = await body.readany()
        except TimeoutError:
            self.abort()
            raise IdleTimeout(self._endpoint_id, patience_s, self.received_bytes) from None
        except HttpProcessingError:
            self.abort()
            raise UpstreamProtocolError(self._endpoint_id, self.received_bytes) from None
        except (aiohttp.ClientError, OSError):
            self.abort()
            raise UpstreamReset(self._endpoint_id, self.received_bytes) from None
        self.received_bytes += len(chunk)
        if not chunk:
            self._end()
        return chunk

    async def read(self, limit_bytes: int) -> bytes:
        """The whole body, for short answers; `UpstreamProtocolError` once it exceeds `limit_bytes`."""
        parts: list[bytes] = []
        async for chunk in self:
            parts.append(chunk)
            if self.received_bytes > limit_bytes:
                self.abort()
                raise UpstreamProtocolError(self._endpoint_id, self.received_bytes)
        return b"".join(parts)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk = await self.read_chunk()
        if not chunk:
            raise StopAsyncIteration
        return chunk

    def abort(self) -> None:
        """Close the connection now, without flushing or draining; the endpoint sees it at once. Idempotent."""
        if self._ended:
            return
        self._end()
        connection = self._raw.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._raw.close()

    async def aclose(self) -> None:
        """Leave the response: nothing if its end was read, else `abort`."""
        self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _end(self) -> None:
        self._ended = True
        if self._lost is not None:
            self._lost.remove_done_callback(self._connection_lost)
            self._lost.add_done_callback(_seen)

    def _connection_lost(self, lost: asyncio.Future[None]) -> None:
        """Wake the reader: the library closes a connection with bad chunk framing without telling the body's reader."""
        _seen(lost)
        body = self._raw.content
        if not body.is_eof() and body.exception() is None:
            cause = None if self._protocol is None else self._protocol.exception()
            body.set_exception(cause or aiohttp.ClientPayloadError())


def _seen(lost: asyncio.Future[None]) -> None:
    """Take the exception of a connection that is no longer of interest, so that nobody logs it as forgotten."""
    if not lost.cancelled():
        lost.exception()


class UpstreamClient:
    """Keep-alive connections to all endpoints, at most `max_connections` to each.

    Use as an async context manager; leaving it closes every connection. One client per event loop.
    """

    def __init__(self, max_connections: int = 1024) -> None:
        self._max_connections = max_connections
        self._tls: dict[EndpointConfig, ssl.SSLContext] = {}
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._kept = _session(
            aiohttp.TCPConnector(limit=0, limit_per_host=self._max_connections, keepalive_timeout=IDLE_CONNECTION_S)
        )
        self._fresh = _session(aiohttp.TCPConnector(limit=0, limit_per_host=self._max_connections, force_close=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()

    async def send(self, endpoint: EndpointConfig, request: UpstreamRequest, deadlines: Deadlines) -> UpstreamResponse:
        """Send one request and return once the head of its answer is there; any status is an answer.

        Raises `DialFailed`, `FirstByteTimeout` or `UpstreamProtocolError`. Cancelling it closes the connection.
        """
        assert self._kept is not None, "use the client as a context manager"
        assert self._fresh is not None
        try:
            return await self._attempt(self._kept, endpoint, request, deadlines)
        except _StaleConnection:
            return await self._attempt(self._fresh, endpoint, request, deadlines)

    async def _attempt(
        self, session: aiohttp.ClientSession, endpoint: EndpointConfig, request: UpstreamRequest, deadlines: Deadlines
    ) -> UpstreamResponse:
        attempt = _Attempt(asyncio.timeout(None), deadlines.first_byte_s)
        try:
            async with attempt.deadline:
                raw = await session.request(
                    request.method,
                    URL(endpoint.url + request.path, encoded=True),
                    data=_body(request.body),
                    headers=_outbound(endpoint, request),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(connect=deadlines.connect_s),
                    ssl=self._tls_context(endpoint),
                    trace_request_ctx=attempt,
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _before_head(error, endpoint.id, attempt, deadlines) from None
        return UpstreamResponse(raw, endpoint.id, deadlines.idle_s, attempt.reused)

    def _tls_context(self, endpoint: EndpointConfig) -> ssl.SSLContext | bool:
        if not endpoint.url.startswith("https:") or (endpoint.ca_file is None and endpoint.cert_file is None):
            return True
        context = self._tls.get(endpoint)
        if context is None:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            if endpoint.cert_file is not None:
                context.load_cert_chain(endpoint.cert_file, endpoint.key_file)
            self._tls[endpoint] = context
        return context


class _StaleConnection(Exception):
    """A kept connection turned out to be closed; never leaves this module."""


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
        read_bufsize=READ_BUFFER_BYTES,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        trace_configs=[_tracing()],
    )


def _tracing() -> aiohttp.TraceConfig:
    """Hooks that tell an attempt about its connection: the only public way to learn that it was reused."""

    async def queued(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.queued = True

    async def dequeued(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.queued = False

    async def created(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.has_connection(reused=False)

    async def reused(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        context.trace_request_ctx.has_connection(reused=True)

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_queued_start.append(queued)
    tracing.on_connection_queued_end.append(dequeued)
    tracing.on_connection_create_end.append(created)
    tracing.on_connection_reuseconn.append(reused)
    return tracing


def _body(body: bytes) -> bytes | io.BytesIO | None:
    if not body:
        return None
    return body if len(body) <= MAX_BODY_AT_ONCE_BYTES else io.BytesIO(body)


def _outbound(endpoint: EndpointConfig, request: UpstreamRequest) -> CIMultiDict[str]:
    """The library writes header values as UTF-8, so what is UTF-8 passes unchanged; other bytes are replaced."""
    fields = header_filter.request_headers(request.headers, endpoint.api_key)
    return CIMultiDict((name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in fields)


def _before_head(
    error: BaseException, endpoint_id: EndpointId, attempt: _Attempt, deadlines: Deadlines
) -> UpstreamError | _StaleConnection:
    """What a failure before the head of an answer means."""
    if attempt.deadline.expired():
        return FirstByteTimeout(endpoint_id, deadlines.first_byte_s)
    if not attempt.connected:
        return DialFailed(endpoint_id, _dial_reason(error, attempt.queued))
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamProtocolError(endpoint_id)
    answered = isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
    if attempt.reused and not answered:
        return _StaleConnection()
    return DialFailed(endpoint_id, DialReason.RESET)


def _dial_reason(error: BaseException, queued: bool) -> DialReason:
    match error:
        case TimeoutError():
            return DialReason.POOL if queued else DialReason.TIMEOUT
        case aiohttp.ClientConnectorDNSError():
            return DialReason.DNS
        case aiohttp.ClientSSLError():
            return DialReason.TLS
        case OSError() if error.errno in _UNREACHABLE:
            return DialReason.UNREACHABLE
        case _:
            return DialReason.REFUSED
