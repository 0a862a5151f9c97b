"""One connection to an endpoint: one request at a time, one answer to each.

                 begin                  head                  end of the answer
      idle ─────────────> asked ─────────────> answering ───────────────> idle, in the pool again
       |                    |                      |                        or closed, where it cannot be reused
       | closed, surplus    | died, garbled,       |
       v bytes, expired     v silent too long      v  Failure
      closed             Failure: STALE if it was kept and no byte came, else LOST, DISTRUSTED, GARBLED, SILENT

Invariants:
- The owner is told exactly once of every answer's end that leaves the connection usable (`give_back`), and exactly
  once that its place is free (`vacate`), when the connection has closed or is being closed.
- A connection is reused only where nothing is in doubt: the answer had a proper end by its own length, neither side
  said `close`, the whole request was written, and not one byte came after the end.
- While more than `READ_BUFFER_BYTES` wait for the reader the socket is not read: at most that and one read (256 KiB on
  uvloop and asyncio) are held.

What arrives together is handed on together: one piece per read of the socket, however many chunks were in it.

Costs: no timer per request or read. A deadline is a number; one timer per connection, armed for the earliest deadline
there was, looks at the number when it fires and is armed anew if that has moved.
"""

import asyncio
import ssl
from enum import Enum, auto
from typing import Final, Protocol, cast

from backends.http1 import AnswerParser
from backends.types import Headers

KiB: Final = 1024
READ_BUFFER_BYTES: Final = 64 * KiB
MAX_BODY_AT_ONCE_BYTES: Final = 1024 * KiB
"""Bodies longer than this are written in pieces, as the socket takes them."""
MAX_JOINED_BODY_BYTES: Final = 64 * KiB
"""Up to here head and body are made one string: one write is cheaper than the copy it saves."""
IDLE_CONNECTION_S: Final = 4.0
"""How long an unused connection is kept: under the 5 s after which uvicorn, and so most engines, close theirs."""
_PIECE_BYTES: Final = 256 * KiB
_NEVER: Final = float("inf")
_TIMER_SLACK_S: Final = 0.001
"""Loops count in milliseconds: a timer may be that early."""


class Failure(Enum):
    """Why an answer did not come to its end."""

    STALE = auto()
    """The connection had been kept, and was closed before any byte of an answer: the request may be sent once more."""
    LOST = auto()
    DISTRUSTED = auto()
    """TLS broke off before any byte of an answer: a server of TLS 1.3 refuses our certificate, or its lack."""
    GARBLED = auto()
    SILENT = auto()


class Receiver(Protocol):
    """Who gets an answer. `unread_bytes` are those handed over and not taken yet."""

    unread_bytes: int

    def head_came(self, status: int, headers: Headers) -> None:
        """The head of the answer, hop-by-hop fields removed."""

    def arrived(self, piece: bytes) -> None:
        """Some of the body."""

    def completed(self) -> None:
        """The proper end: nothing more comes, and the connection is another's."""

    def failed(self, failure: Failure) -> None:
        """Nothing more comes, and the connection is closed."""


class Owner(Protocol):
    """Who keeps connections."""

    def give_back(self, connection: "Connection") -> None:
        """It can take the next request."""

    def forget(self, connection: "Connection") -> None:
        """It is closing: it can take no request any more."""

    def vacate(self) -> None:
        """Its place is free."""

    def has_closed(self, connection: "Connection") -> None:
        """The socket is closed."""


class Connection(asyncio.Protocol):
    """Made by its owner through `loop.create_connection`; then `begin` for every request, `abort` to leave."""

    __slots__ = (
        "_answer",
        "_answered",
        "_deadline_s",
        "_owner",
        "_parser",
        "_rest",
        "_timer",
        "_timer_at_s",
        "_transport",
        "_write_paused",
        "has_place",
        "is_closed",
        "is_used",
        "loop",
        "paused",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.loop = loop
        self._owner = owner
        self._parser = AnswerParser()
        self._transport: asyncio.Transport | None = None
        self._answer: Receiver | None = None
        self._answered = False
        self._rest: memoryview | None = None
        self._write_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = self._deadline_s = _NEVER
        self.has_place = False
        """Whether it takes up one of the connections that its owner may have."""
        self.is_used = False
        """Whether a request was sent on it before the present one."""
        self.is_closed = False
        """Whether it can take no request any more."""
        self.paused = False
        """Whether the socket is not read, because its reader is slow."""

    def begin(self, answer: Receiver, head: bytes, body: bytes, first_byte_s: float, *, bodiless: bool) -> None:
        """Send a request; `answer` is told what comes. `bodiless`: the head of the answer is all of it."""
        transport = self._transport
        if transport is None or self.is_closed:
            answer.failed(Failure.LOST)
            return
        self._answer = answer
        self._answered = False
        self._parser.begin(bodiless=bodiless)
        self.expire_after(first_byte_s)
        if len(body) <= MAX_JOINED_BODY_BYTES:
            transport.write(head + body)
        elif len(body) <= MAX_BODY_AT_ONCE_BYTES:
            transport.writelines((head, body))
        else:
            transport.write(head)
            self._rest = memoryview(body)
            self._write_rest()

    def expire_after(self, patience_s: float) -> None:
        """Fail the answer as silent, or close the idle connection, unless something comes within so many seconds."""
        self._deadline_s = deadline_s = self.loop.time() + patience_s
        if deadline_s < self._timer_at_s:
            self._arm(deadline_s)

    def expire_never(self) -> None:
        """Nobody waits any more."""
        self._deadline_s = _NEVER

    def resume(self) -> None:
        """Read the socket again."""
        self.paused = False
        if self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close now, dropping what is unsent and unread; the other side sees it at once. Idempotent."""
        self._answer = None
        self._close()
        if self.has_place:
            self.has_place = False
            self._owner.vacate()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # those of uvloop are not derived from it

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        answer = self._answer
        if answer is None:  # between two answers: whatever it is, it answers nothing that was asked
            self.abort()
            return
        parser = self._parser
        self._answered = True
        had_head = parser.status
        is_proper = parser.feed(data)
        if had_head != parser.status:
            self._deadline_s = _NEVER
            answer.head_came(parser.status, parser.headers)
        piece = parser.take()
        if piece:
            self._deadline_s = _NEVER
            answer.arrived(piece)
        if parser.complete:
            self._end(answer)
        elif not is_proper:
            self._fail(Failure.GARBLED)
        elif answer.unread_bytes > READ_BUFFER_BYTES and not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Called by the loop."""
        self._lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._lost(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._transport = None
        self._parser.close()
        self._owner.has_closed(self)

    def pause_writing(self) -> None:
        """Called by the loop."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self._write_paused = False
        if self._rest is not None:
            self._write_rest()

    def _write_rest(self) -> None:
        """Write the request's body for as long as the socket takes it."""
        rest = self._rest
        assert self._transport is not None
        while rest and not self._write_paused and not self.is_closed:
            self._transport.write(rest[:_PIECE_BYTES])
            rest = rest[_PIECE_BYTES:]
        self._rest = rest or None

    def _end(self, answer: Receiver) -> None:
        self._answer = None
        if self.paused:
            self.resume()
        if self._parser.reusable and self._rest is None and not self.is_closed:
            self.is_used = True
            self.expire_after(IDLE_CONNECTION_S)
            self._owner.give_back(self)
        else:
            self.abort()
        answer.completed()

    def _fail(self, failure: Failure) -> None:
        answer = self._answer
        self.abort()
        if answer is not None:
            answer.failed(failure)

    def _lost(self, error: Exception | None) -> None:
        """The other side has closed. A stale connection keeps its place, for the one that is made in its stead."""
        if self.is_closed:
            return
        answer = self._answer
        if answer is None:
            self.abort()
        elif self.is_used and not self._answered:
            self._answer = None
            self._close()
            answer.failed(Failure.STALE)
        elif error is None and self._parser.ends_with_connection:
            self.abort()
            answer.completed()
        else:
            distrusted = isinstance(error, ssl.SSLError) and not self._answered
            self._fail(Failure.DISTRUSTED if distrusted else Failure.LOST)

    def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._rest = None
        self._deadline_s = _NEVER
        self._owner.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = at_s
        self._timer = self.loop.call_at(at_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._timer_at_s = _NEVER
        if self._deadline_s == _NEVER:
            return
        if self.loop.time() + _TIMER_SLACK_S < self._deadline_s:
            self._arm(self._deadline_s)
        else:
            self._fail(Failure.SILENT)
