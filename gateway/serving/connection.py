"""One connection of a client: its requests are served one after the other, and each must keep to its time.

    NEW ---> HEAD ---> CALL (a request is served) ---> IDLE ---> HEAD ...
                         `--> LINGERING: the answer is out and the connection ends; what still comes is thrown away
                              for a moment, since closing at once would take the answer back (a reset)

Each state has a moment at which it is overdue (`Connections.sweep`). A body is timed only while the application waits
for it, and by how much comes; an answer by whether any of it can be written.

A client that shuts its side down has left: one that closed its connection for good looks the same until something is
sent to it, and the engine is to stop at once. Requests that come before the answer to the one before (pipelining)
wait, a few of them; the connection ends after the last of these, and the client may ask for the others again.
"""

import asyncio
import math
from collections import deque
from typing import Final, cast

from gateway.errors import GatewayError, Overloaded, RequestTimeout
from gateway.serving.answer_bytes import CONTINUE, answer_head
from gateway.serving.call import Call
from gateway.serving.connections import MOST_TURNED_AWAY, Connections
from gateway.serving.reader import RequestHead, RequestReader, StopReading
from gateway.serving.scope import Address, request_scope
from gateway.serving.unread import unread_bytes
from gateway.wire import Scope

MOST_PIPELINED: Final = 8
SLOWEST_BODY_BYTES_PER_S: Final = 500
LINGER_S: Final = 2.0


class Connection(asyncio.Protocol):
    """A connection, as the event loop sees it."""

    __slots__ = (
        "_answering",
        "_client",
        "_deadline_s",
        "_deaf",
        "_flushed_at_s",
        "_flushed_bytes",
        "_head_is_timed",
        "_is_new",
        "_loop",
        "_marked_bytes",
        "_queue",
        "_read_paused",
        "_reader",
        "_reading",
        "_resumed",
        "_server",
        "all",
        "handed_bytes",
        "transport",
        "write_paused",
    )

    def __init__(self, connections: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self.all = connections
        self.write_paused = False
        self._loop = loop
        self.transport: asyncio.Transport
        self._reader = RequestReader(self)
        self._deadline_s = math.inf
        self._is_new = True
        self._deaf = self._head_is_timed = self._read_paused = False
        self._client: Address = None
        self._server: Address = None
        self._answering: Call | None = None
        self._reading: Call | None = None
        """The call whose body is coming in."""
        self._queue: deque[tuple[Call, Scope]] = deque()
        self._marked_bytes = 0
        """Of the body, when it was last looked at."""
        self._resumed: asyncio.Event | None = None
        self.handed_bytes = 0
        self._flushed_bytes = -1
        self._flushed_at_s = 0.0

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here; one too many is told so."""
        self.transport = cast("asyncio.Transport", transport)
        self._deadline_s = self._loop.time() + self.all.limits.header_s
        is_one_too_many = self.all.is_full
        self.all.open.add(self)
        if is_one_too_many:
            self._turn_away()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._deaf:
            return
        try:
            self._reader.feed(data)
        except StopReading:
            self._deaf = True
        except GatewayError as error:
            self._unreadable(error)
        if self._reader.in_head and not self._head_is_timed:
            self._head_is_timed = True
            if not self._is_new:
                self._deadline_s = self._loop.time() + self.all.limits.header_s

    def eof_received(self) -> None:
        """The client will send no more: it has left. What it was answered before is still flushed."""
        if self._answering is not None:
            self._leave()
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.all.open.discard(self)
        self.all.turned_away.discard(self)
        self._deaf = True
        self._leave()
        self.resume_writing()
        self._reader.close()

    def pause_writing(self) -> None:
        """The client does not read as fast as the application writes."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The client has read."""
        self.write_paused = False
        if self._resumed is not None:
            self._resumed.set()

    # What the reader calls

    def request_begins(self, head: RequestHead) -> None:
        """A head is whole: its request is served, or waits for the answers before."""
        if len(self._queue) == MOST_PIPELINED:
            self._queue[-1][0].keep_alive = False
            raise StopReading
        if self._server is None:
            self._look_up_addresses()
        call = Call(self, head)
        scope = request_scope(head, call, self._server, self._client)
        self._is_new = self._head_is_timed = False
        self._deadline_s, self._reading, self._marked_bytes = math.inf, call, 0
        if self._answering is None:
            self._begin(call, scope)
        else:
            self._queue.append((call, scope))

    def request_goes_on(self, piece: bytes | memoryview) -> None:
        """A piece of the body came."""
        if self._reading is not None:
            self._reading.put(piece)

    def request_ends(self) -> None:
        """The request is whole."""
        call, self._reading = self._reading, None
        if call is None:
            return
        self._deadline_s = math.inf
        call.end()
        self._resume_reading()  # to see that the client leaves
        if not call.keep_alive:
            self._deaf = True
        elif self._answering is None:
            self._rest()

    # What a call asks for

    def write(self, parts: tuple[bytes, ...]) -> None:
        """Send bytes, as one write."""
        if len(parts) == 1:
            (data,) = parts
            self.handed_bytes += len(data)
            self.transport.write(data)
        else:
            self.handed_bytes += sum(map(len, parts))
            self.transport.writelines(parts)

    async def writable(self) -> None:
        """Wait until the client has read most of what is buffered for it, or has left."""
        self._resumed = self._resumed or asyncio.Event()
        self._resumed.clear()
        await self._resumed.wait()

    def wants_body(self, call: Call) -> None:
        """The application waits for a body: from now on it must come, and not too slowly."""
        if call is not self._reading:
            return
        self._deadline_s = self._loop.time() + self.all.limits.body_idle_s
        self._marked_bytes = call.received_bytes
        self._resume_reading()
        if call.waits_for_continue:
            call.waits_for_continue = False
            if not call.received_bytes:
                self.write((CONTINUE,))

    def pause_reading(self) -> None:
        """Leave what comes to the client's own buffers."""
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    @property
    def closes_after(self) -> bool:
        """Whether the server wants the answer that begins now to be the last one here."""
        return self.all.closing and not self._queue

    def answered(self, call: Call) -> None:
        """An answer is complete."""
        self._answering = None
        if not call.keep_alive:
            self._end()
        elif self._queue:
            self._begin(*self._queue.popleft())
        else:
            self._resume_reading()
            self._rest()

    def cut(self) -> None:
        """End the connection as it is: an answer that is under way stays incomplete, and the client sees that."""
        self._deaf = True
        self.transport.close()

    # Time

    def look(self, now_s: float) -> None:
        """End this connection if it is overdue."""
        waiting_bytes = unread_bytes(self.transport)
        if waiting_bytes:
            flushed_bytes = self.handed_bytes - waiting_bytes
            if flushed_bytes != self._flushed_bytes:
                self._flushed_bytes, self._flushed_at_s = flushed_bytes, now_s
            elif now_s - self._flushed_at_s >= self.all.limits.write_idle_s:
                self.all.metrics.cut("unread").inc()
                self.transport.abort()
                return
        if now_s >= self._deadline_s:
            self._overdue(now_s)

    def close_when_idle(self, at_s: float) -> None:
        """Close by then, if nothing comes before."""
        if self._answering is None and not self._reader.in_head:
            self._deadline_s = min(self._deadline_s, at_s)

    def _overdue(self, now_s: float) -> None:
        call, body_idle_s = self._reading, self.all.limits.body_idle_s
        if self._reader.in_head:
            self.all.metrics.cut("head").inc()
            self._unreadable(RequestTimeout("the head of the request did not arrive in time"))
        elif call is None or call.complete:
            self.transport.close()
        elif call.is_waiting and call.received_bytes - self._marked_bytes < SLOWEST_BODY_BYTES_PER_S * body_idle_s:
            self.all.metrics.cut("body").inc()
            self._unreadable(RequestTimeout("the body of the request comes too slowly"))
        else:
            self._deadline_s, self._marked_bytes = now_s + body_idle_s, call.received_bytes

    # Steps

    def _begin(self, call: Call, scope: Scope) -> None:
        self._answering = call
        self.all.calls.add(call)
        call.task = self._loop.create_task(call.serve(scope))

    def _rest(self) -> None:
        """Wait for the next request, or for what is left of one that was answered early."""
        limits = self.all.limits
        patience_s = limits.keep_alive_s
        if self._reading is not None:
            patience_s = LINGER_S
        elif self._reader.in_head:
            patience_s = limits.header_s
        elif self.all.closing:
            patience_s = limits.close_idle_s
        self._deadline_s = self._loop.time() + patience_s

    def _end(self) -> None:
        """Close, once the client has what was written: what it still sends must not take that back."""
        self._deaf = True
        self._queue.clear()
        if self._reading is None and not self.all.closing:
            self.transport.close()
            return
        self._reading = None
        self.transport.write_eof()
        self._resume_reading()
        self._deadline_s = self._loop.time() + LINGER_S

    def _unreadable(self, error: GatewayError) -> None:
        """What came is no request, or comes too slowly: whoever reads it is told, else it is answered here."""
        self._deaf, self._deadline_s = True, math.inf
        self._reader.in_head = False
        if self._reading is not None:
            self._reading.break_off(error)
            if self._reading.complete:
                self.transport.close()
        elif self._answering is not None:
            (self._queue[-1][0] if self._queue else self._answering).keep_alive = False
        else:
            self._answer(error)

    def _answer(self, error: GatewayError) -> None:
        """Answer what is no request, and close."""
        status, fields, body = self.all.error_answer(error, self._reader.target.decode("latin-1"))
        head = answer_head(status, fields, self.all.date, is_head=False, http_1_0=False, closes=True)
        self.write((head.data + body,))
        self.transport.write_eof()
        self._deadline_s = self._loop.time() + LINGER_S

    def _turn_away(self) -> None:
        """One connection too many: say so, unless too many were told so and have not gone."""
        self._deaf = True
        self.all.metrics.shed("connections").inc()
        if len(self.all.turned_away) >= MOST_TURNED_AWAY:
            self.transport.abort()
            return
        self.all.turned_away.add(self)
        self._answer(Overloaded("this gateway has as many connections as it takes on; try again in a moment"))

    def _leave(self) -> None:
        calls = [self._answering, *(call for call, _ in self._queue)]
        self._answering = self._reading = None
        self._queue.clear()
        for call in calls:
            if call is not None:
                call.leave()

    def _resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self.transport.resume_reading()

    def _look_up_addresses(self) -> None:
        here, there = (self.transport.get_extra_info(which) for which in ("sockname", "peername"))
        self._server = (str(here[0]), int(here[1])) if isinstance(here, tuple) else (str(here), None)
        self._client = (str(there[0]), int(there[1])) if isinstance(there, tuple) else None
