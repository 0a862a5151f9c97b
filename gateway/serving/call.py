"""One request on a connection, and its answer: the application's side, which speaks ASGI.

    connection --put, end, leave--> Call --receive--> application
               <--write, answered--      <--send-----

The head of an answer waits for the first bytes of its body and leaves with them, in one write. `receive` wakes the
application when the body is whole or `WAKE_BYTES` of it are there, and not for every piece.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gateway.errors import BadRequest, BodyTooLarge, GatewayError, Internal
from gateway.log_lines import LOGGER
from gateway.serving.answer_bytes import JOINED_BYTES, AnswerMalformed, Framing, answer_head, chunk_parts, plain_parts
from gateway.serving.body import Piece, add_piece, whole
from gateway.serving.reader import RequestHead
from gateway.wire import Message, Scope

if TYPE_CHECKING:
    from gateway.serving.connection import Connection

WAKE_BYTES: Final = 64 * 1024
"""Of a body: at so many bytes that nobody took the connection is not read any more."""
DISCARDED_BYTES: Final = 256 * 1024
"""The rest of a body that nobody wants is read to keep the connection, if it is no longer than this."""


class Call:
    """A request that is being served. `gone` once the client has left, `complete` once the answer is."""

    more_body = True
    received_bytes = 0
    started = complete = gone = False
    is_served = False
    """Whether the application has this request by now."""
    task: asyncio.Task[None] | None = None
    _waiting_bytes = 0
    """Of the body: what came and was not taken."""
    _all_taken = False
    _news: asyncio.Event | None = None
    _failure: GatewayError | None = None
    _on_leave: Callable[[], object] | None = None
    _head = b""
    _framing = Framing.NONE
    _in_chunks = False
    _left_bytes = 0
    """Of an answer whose head says how long it is."""

    def __init__(self, connection: "Connection", head: RequestHead) -> None:
        self._connection = connection
        self._request = head
        self.keep_alive = head.keep_alive
        self.waits_for_continue = head.expects_continue
        self._pieces: list[Piece] = []

    async def serve(self, scope: Scope) -> None:
        """Run the application. A failure before the answer has begun is an answer, a later one cuts it."""
        connection, self.is_served = self._connection, True
        try:
            await connection.all.app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            pass  # the server stops, or the client left: nobody waits for more
        except GatewayError as error:
            self.fail(error)
        except Exception:  # noqa: BLE001 - the edge of every application: a fault must not stay unanswered
            LOGGER.exception("an application failed")
            self.fail(Internal("the gateway failed to handle this request; its log has the details"))
        finally:
            connection.all.calls.discard(self)
            self._on_leave = None
            if not self.complete and not self.gone:
                self._cut()

    async def receive(self) -> Message:
        """The next part of the body, and after the last one the news that the client left or has its answer.

        Raises the `GatewayError` of a body that cannot be read, or came too slowly.
        """
        most_bytes = self._connection.all.limits.max_body_bytes
        while not self.gone and not self.complete:
            if max(self.received_bytes, self._request.content_length or 0) > most_bytes:
                raise BodyTooLarge(f"the request body is longer than {most_bytes} bytes")
            if not self._all_taken and (not self.more_body or self._waiting_bytes >= WAKE_BYTES):
                piece = self._pieces.pop(0) if self._pieces else b""
                self._waiting_bytes -= len(piece)
                more = self.more_body or bool(self._pieces)
                self._all_taken = not more
                return {"type": "http.request", "body": bytes(piece), "more_body": more}
            await self._wait()
        return {"type": "http.disconnect"}

    async def whole_body(self, allow: Callable[[int], object]) -> bytes:
        """The body, once it is whole. `allow` is told how much of it has come, each time that is more, and may raise.

        Raises what `receive` raises, and `BadRequest` where the client leaves. The bytes are copied once, or not at
        all where they came in one piece.
        """
        while self.more_body and not self.gone:
            allow(self.received_bytes)
            self._waiting_bytes = 0
            await self._wait()
        if self.gone:
            raise BadRequest("the connection was closed before the body was whole")
        allow(self.received_bytes)
        pieces, self._pieces, self._all_taken = self._pieces, [], True
        return whole(pieces)

    async def _wait(self) -> None:
        """Until there is something new to look at. Raises the failure of a body."""
        self._news = self._news or asyncio.Event()
        self._news.clear()
        if self.more_body:
            self._connection.wants_body(self)
        if self._failure is None:
            await self._news.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    @property
    def is_waiting(self) -> bool:
        """Whether the application waits for more of the body."""
        return self.more_body and self._news is not None and not self._news.is_set()

    async def send(self, message: Message) -> None:
        """Send a part of the answer; waits while the client reads slowly. Raises for what is no proper answer."""
        if self._connection.write_paused:
            await self.readable()
        if message["type"] == "http.response.start":
            self.start(message["status"], message.get("headers", ()))
        else:
            self.write(message.get("body", b""), more=message.get("more_body", False))

    @property
    def is_slow(self) -> bool:
        """Whether as much waits for the client as may: then `readable` is to be awaited before the next `write`."""
        return self._connection.write_paused

    async def readable(self) -> None:
        """Wait until the client has read most of what waits for it, or has left."""
        if not self.gone:
            await self._connection.writable()

    def start(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> None:
        """The head of the answer. Raises `AnswerMalformed`."""
        if self.gone:
            return
        if self.started:
            raise AnswerMalformed("the answer has begun already")
        connection, request = self._connection, self._request
        closes = not self.keep_alive or self._leaves_body() or connection.closes_after
        is_head, http_1_0 = request.method == "HEAD", request.version == "1.0"
        head = answer_head(status, fields, connection.all.date, is_head=is_head, http_1_0=http_1_0, closes=closes)
        self.started = True
        self._head, self._framing, self._left_bytes, closes = head
        self._in_chunks = self._framing is Framing.CHUNKED
        self.keep_alive = not closes

    def write(self, body: bytes, *, more: bool) -> None:
        """A part of the body of the answer; the last one has no `more`. Raises `AnswerMalformed`."""
        if self._in_chunks and more and 0 < len(body) <= JOINED_BYTES and not self.gone:  # nearly all of a stream
            data = b"%b%x\r\n%b\r\n" % (self._head, len(body), body)
            self._head = b""
            connection = self._connection
            connection.handed_bytes += len(data)
            connection.transport.write(data)
        elif not self.gone:
            self._write(body, more=more)

    def on_leave(self, callback: Callable[[], object] | None) -> None:
        """Call this when the client leaves before its answer is complete; at once where it has left. None: nothing."""
        self._on_leave = callback
        if self.gone and callback is not None:
            callback()

    def put(self, piece: bytes | memoryview) -> None:
        """A part of the body came."""
        self.received_bytes += len(piece)
        if self.complete:
            return
        add_piece(self._pieces, piece)
        self._waiting_bytes += len(piece)
        if self._waiting_bytes >= WAKE_BYTES:
            if self.is_waiting:
                self._wake()
            else:
                self._connection.pause_reading()

    def end(self) -> None:
        """The body is whole."""
        self.more_body = False
        self._wake()

    def break_off(self, failure: GatewayError) -> None:
        """The rest of the body will not come: the application is told why, if it still wants it."""
        self._failure = failure
        self.keep_alive = False
        self._wake()

    def leave(self) -> None:
        """The client left."""
        if self.gone or self.complete:
            return
        self.gone = True
        self._pieces.clear()
        self._wake()
        if self._on_leave is not None:
            self._on_leave()

    def fail(self, error: GatewayError) -> None:
        """Answer with an error, where no answer has begun."""
        if not self.started and not self.gone:
            status, fields, body = self._connection.all.error_answer(error, self._request.target.decode("latin-1"))
            self.start(status, fields)
            self.write(body, more=False)

    def _leaves_body(self) -> bool:
        """Whether so much of the body is still to come, and unwanted, that the connection must end."""
        if not self.more_body:
            return False
        length_bytes = self._request.content_length
        if self.waits_for_continue or length_bytes is None:
            return True
        return length_bytes - self.received_bytes > DISCARDED_BYTES

    def _write(self, body: bytes, *, more: bool) -> None:
        if self.complete or not self.started:
            raise AnswerMalformed("a part of an answer that has ended, or not begun")
        head, self._head = self._head, b""
        if self._framing is Framing.CHUNKED:
            parts = chunk_parts(head, body, more=more)
        elif self._framing is Framing.NONE:
            parts = (head,)
        else:
            parts = plain_parts(head, body)
            self._count(body, more=more)
        self._connection.write(parts)
        if not more:
            self.complete = True
            self._in_chunks = False
            self._pieces.clear()
            self._wake()
            self._connection.answered(self)

    def _count(self, body: bytes, *, more: bool) -> None:
        """Hold a body against what its head has said."""
        if self._framing is Framing.LENGTH:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not more):
                raise AnswerMalformed("the body of the answer is not as long as its head says")

    def _cut(self) -> None:
        """End the connection in the middle of the answer: a client that sees its head does not ask once more."""
        head, self._head = self._head, b""
        if head:
            self._connection.write((head,))
        self._connection.cut()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()
