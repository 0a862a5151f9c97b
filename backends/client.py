"""One upstream call, on the data path.

    send ──pool──> connection ──request──> head ──> UpstreamResponse ──read_chunk──> b"..." ... b""
           │connect_s             │first_byte_s            │idle_s per read
           DialFailed             FirstByteTimeout         IdleTimeout, UpstreamReset

Invariants:
- Bytes pass unchanged in both directions: no decompression, no redirect, no cookies, no proxy from the environment.
- A chunk is what had arrived when it was read: events that came together leave together, and nothing waits to be
  whole. Little more than `READ_BUFFER_BYTES` is held for a slow reader; then the socket is not read any more.
- A response ends exactly once: at its end the connection returns to the pool by itself, however slowly it is read;
  `abort` before that closes it at once, so that the engine sees the client leave. `aclose` is `abort` unless the end
  has come.
- A kept connection may have been closed under us while it lay idle. A request that dies on one before any byte of an
  answer is sent once more, on a connection made for it; what dies on a fresh connection is an error.

Parts: `backends.target` how a request begins, `backends.pool` which connection, `backends.connection` what goes over
it, `backends.http1` what the bytes that come mean.

Costs: 20 to 40 µs of CPU per call of 2 to 33 KB under uvloop, a third of it event loop and kernel; one future per wait
that has to wait, no timer, no task. For a stream of small chunks that wait is most of the cost: `pump` has none.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from backends.connection import Failure
from backends.errors import (
    DialFailed,
    DialReason,
    FirstByteTimeout,
    IdleTimeout,
    UpstreamError,
    UpstreamProtocolError,
    UpstreamReset,
)
from backends.line import Line
from backends.pool import Pool
from backends.target import request_head, target_of
from backends.types import Deadlines, EndpointConfig, EndpointId, Headers, UpstreamRequest

Sink = Callable[[bytes], bool]
"""Takes bytes of a body at once; False: no more for now."""


class UpstreamResponse:
    """The answer of an endpoint: its head at hand, its body read as it comes.

    Iterate it, or call `read_chunk` until it returns b"". Use it as an async context manager, or call `aclose` on
    every path; both are safe after the end. One reader at a time.
    """

    __slots__ = (
        "_connection",
        "_deadlines",
        "_endpoint_id",
        "_failure",
        "_is_over",
        "_parts",
        "_patience_s",
        "_sink",
        "_sink_failure",
        "_waiter",
        "connected_s",
        "headers",
        "received_bytes",
        "reused_connection",
        "status",
        "unread_bytes",
    )

    def __init__(self, endpoint_id: EndpointId, connection: Line, deadlines: Deadlines, connected_s: float) -> None:
        self._endpoint_id = endpoint_id
        self._connection: Line | None = connection
        self._deadlines = deadlines
        self._patience_s = deadlines.idle_s
        self._parts: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._sink_failure: Exception | None = None
        self._failure: Failure | None = None
        self._is_over = False
        self.status = 0
        self.headers: Headers = ()
        self.received_bytes = 0
        """Body bytes taken by the reader."""
        self.unread_bytes = 0
        """Body bytes that have arrived and were not taken yet."""
        self.reused_connection = connection.is_used
        self.connected_s = connected_s
        """Seconds spent on getting the connection, by the monotonic clock; 0.0 where a kept one was at hand."""

    def take(self) -> bytes | None:
        """The bytes that have arrived, without waiting: b"" at the proper end of the body, None where none are there.

        Raises as `read_chunk` does, once what had arrived before is taken.
        """
        parts = self._parts
        if parts:
            chunk = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            self.received_bytes += len(chunk)
            self.unread_bytes = 0
            connection = self._connection
            if connection is not None and connection.paused:
                connection.resume()
            return chunk
        if self._is_over:
            return b""
        if self._failure is not None:
            self._is_over = True
            raise self._error(self._failure)
        return None

    async def read_chunk(self, within_s: float | None = None) -> bytes:
        """The bytes that have arrived, waiting for at least one; b"" at the proper end of the body, again and again.

        `within_s` is the patience of this one read, else `Deadlines.idle_s`. Raises `IdleTimeout`, `UpstreamReset` or
        `UpstreamProtocolError`, after which the connection is closed. Does not suspend where `take` has an answer.
        """
        while (chunk := self.take()) is None:
            connection = self._connection
            assert connection is not None, "it fails or ends when it loses its connection"
            self._patience_s = self._deadlines.idle_s if within_s is None else within_s
            connection.expire_after(self._patience_s)
            await self._news(connection)
        return chunk

    async def pump(self, sink: Sink) -> None:
        """Give what arrives to `sink` in the very call of the event loop that read it, for as long as it says True.

        Returns once it has said False, or nothing more comes: `read_chunk` then has the next bytes, the end, or the
        failure. Raises what `sink` raises. A chunk costs a third less than by `read_chunk`: it wakes no task.
        """
        if self._parts and not sink(self.take() or b""):
            return
        connection = self._connection
        if connection is None or self._failure is not None:
            return
        self._sink, self._patience_s = sink, self._deadlines.idle_s
        connection.expire_after(self._patience_s)
        try:
            while self._pours:
                await self._news(connection)
        finally:
            self._sink = None
        failure, self._sink_failure = self._sink_failure, None
        if failure is not None:
            raise failure

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
        self._is_over = True
        self._parts.clear()
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.abort()

    async def aclose(self) -> None:
        """Leave the response: nothing if its end has come, else `abort`."""
        self.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    async def head(self) -> bool:
        """Wait for the head; False where the connection was stale. Raises like `UpstreamClient.send`, its caller."""
        connection = self._connection
        assert connection is not None, "it has not begun"
        try:
            while not self.status and self._failure is None:
                await self._news(connection)
        except asyncio.CancelledError:
            self.abort()
            raise
        if self.status or self._failure is Failure.STALE:
            return bool(self.status)
        self.abort()
        raise self._error_before_head(self._failure)

    # What the connection calls.

    def head_came(self, status: int, headers: Headers) -> None:
        """Called by the connection."""
        self.status = status
        self.headers = headers
        self._wake()

    def arrived(self, piece: bytes) -> None:
        """Called by the connection."""
        if self._sink is not None:
            self._pour(self._sink, piece)
            return
        self._parts.append(piece)
        self.unread_bytes += len(piece)
        self._wake()

    def completed(self) -> None:
        """Called by the connection."""
        self._is_over = True
        self._connection = None
        self._wake()

    def failed(self, failure: Failure) -> None:
        """Called by the connection."""
        self._failure = failure
        self._wake()

    @property
    def _pours(self) -> bool:
        return self._sink is not None and self._failure is None and not self._is_over

    def _pour(self, sink: Sink, piece: bytes) -> None:
        self.received_bytes += len(piece)
        try:
            goes_on = sink(piece)
        except Exception as failure:  # noqa: BLE001 - raised in the task that pumps, not in the event loop
            self._sink_failure, goes_on = failure, False
        if not goes_on:
            self._sink = None
            self._wake()
        elif self._connection is not None:
            self._connection.expire_after(self._patience_s)

    async def _news(self, connection: Line) -> None:
        """Wait until the connection has something to tell."""
        self._waiter = connection.loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            if self._connection is connection:  # else it is another's by now
                connection.expire_never()
            raise
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _error_before_head(self, failure: Failure | None) -> UpstreamError:
        match failure:
            case Failure.SILENT:
                return FirstByteTimeout(self._endpoint_id, self._deadlines.first_byte_s)
            case Failure.GARBLED:
                return UpstreamProtocolError(self._endpoint_id)
            case Failure.DISTRUSTED:
                return DialFailed(self._endpoint_id, DialReason.TLS)
            case _:
                return DialFailed(self._endpoint_id, DialReason.RESET)

    def _error(self, failure: Failure) -> UpstreamError:
        match failure:
            case Failure.SILENT:
                return IdleTimeout(self._endpoint_id, self._patience_s, self.received_bytes)
            case Failure.GARBLED:
                return UpstreamProtocolError(self._endpoint_id, self.received_bytes)
            case _:
                return UpstreamReset(self._endpoint_id, self.received_bytes)


class Engines(Protocol):
    """Who sends requests to endpoints."""

    async def send(
        self,
        endpoint: EndpointConfig,
        request: UpstreamRequest,
        deadlines: Deadlines,
        begins: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """As `UpstreamClient.send`."""


class UpstreamClient:
    """Keep-alive connections to all endpoints, at most `max_connections` to each.

    Use as an async context manager; leaving it closes every connection. One client per event loop.
    """

    def __init__(self, max_connections: int = 1024) -> None:
        self._max_connections = max_connections
        self._pools: dict[EndpointConfig, Pool] = {}
        self._tls: dict[tuple[Path | None, Path | None, Path | None], ssl.SSLContext] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.close()

    async def send(
        self,
        endpoint: EndpointConfig,
        request: UpstreamRequest,
        deadlines: Deadlines,
        begins: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """Send one request and return once the head of its answer is there; any status is an answer.

        `begins` is called before the first byte of the request leaves: until then the endpoint knows nothing of it.
        Such a request is sent once, so over a new connection: of one that was kept and turns out to be closed, nobody
        knows whether the endpoint has read it.

        Raises `DialFailed`, `FirstByteTimeout` or `UpstreamProtocolError`, and `ValueError` for a request that is none.
        Cancelling it closes the connection.
        """
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._open_pool(endpoint)
        head = request_head(pool.target, request)
        connection, connected_s = pool.take(), 0.0
        if connection is None:
            connection, connected_s = await pool.obtain(deadlines.connect_s)
        if begins is not None:
            if connection.is_used:
                kept = connection
                try:
                    connection, connected_s = await pool.instead_of(kept, deadlines.connect_s)
                finally:
                    kept.abort()
            begins()
        while True:
            response = UpstreamResponse(endpoint.id, connection, deadlines, connected_s)
            connection.begin(response, head, request.body, deadlines.first_byte_s, bodiless=request.method == "HEAD")
            if await response.head():
                return response
            connection, connected_s = await pool.instead_of(connection, deadlines.connect_s)

    def retire(self, endpoint: EndpointConfig) -> None:
        """Keep no connection to an endpoint that was: idle ones close now, the others once they have done."""
        pool = self._pools.pop(endpoint, None)
        if pool is not None:
            pool.retire()

    def _open_pool(self, endpoint: EndpointConfig) -> Pool:
        """A pool for an endpoint that has none; those that nobody uses any more go."""
        self._pools = {one: pool for one, pool in self._pools.items() if not pool.is_empty}
        target = target_of(endpoint)
        tls = self._tls_context(endpoint) if target.tls else None
        self._pools[endpoint] = pool = Pool(endpoint.id, target, tls, self._max_connections)
        return pool

    def _tls_context(self, endpoint: EndpointConfig) -> ssl.SSLContext:
        files = (endpoint.ca_file, endpoint.cert_file, endpoint.key_file)
        context = self._tls.get(files)
        if context is None:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            context.set_alpn_protocols(["http/1.1"])
            if endpoint.cert_file is not None:
                context.load_cert_chain(endpoint.cert_file, endpoint.key_file)
            self._tls[files] = context
        return context
