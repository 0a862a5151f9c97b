"""One connection to a server, spoken to directly: calls go out as bytes, replies come back in their order.

    ask ──┐
    ask ──┼─> collecting ──(end of the tick)──> one write ──> due: oldest first ──> each reply to whoever waits longest
    ask ──┘        └─ while enough is due already, or the socket is full, they wait here

redis-py makes the connection, so that addresses, logins, TLS and sentinels are its business. From then on this protocol
stands in the place of its streams: a call of redis-py's own costs 100 µs to pack, write, await and read; here it is one
join of bytes and one future.

*Deadlines* measure the server, not this process. A loop that is busy for longer than a deadline has not read its
sockets meanwhile, and the reply may lie there. So whoever seems late is looked at again a millisecond later, and in
between the loop has been to all its sockets. Who is late gets a TimeoutError and is answered no more; the connection
stays, and its late replies are read and dropped. One whose oldest reply is due longer than `patience_s` is given up.

One timer a lane, for the first of all deadlines, and armed again only once it has rung: at a thousand calls a second it
rings as often as a deadline fits into a second.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from math import inf
from time import monotonic
from typing import Any, Final, cast

import hiredis
from redis import exceptions as redis_errors
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection, DefaultParser

from prefix_index.redis_wire import NONSENSE

_MOST_DUE: Final = 64
"""Asks under way at once. A slow server gets longer writes, and no calls whose callers have given up."""
_LOOK_AGAIN_S: Final = 0.001
"""Not less: shorter timers are none in uvloop, which would look again before it has been to its sockets."""
_MORE: Final = object()
"""What the reader gives where a reply is not whole yet."""


class _Asked:
    """Calls of one caller under way. `due_s` is when an answer is late, `left_s` when the calls were written."""

    __slots__ = ("due_s", "future", "left_s", "packed", "replies", "size", "suspected", "within_s")

    def __init__(self, packed: bytes, size: int | None, within_s: float, future: asyncio.Future[Any]) -> None:
        self.packed = packed
        self.size = size or 1
        self.within_s = within_s
        self.future = future
        self.replies: list[object] | None = None if size is None else []
        self.due_s = self.left_s = inf
        self.suspected = False


class Lane(asyncio.Protocol):
    """A connection of a pool of redis-py, taken for good: `give_back` is its end. Nothing here blocks or raises."""

    def __init__(self, pool: ConnectionPool, connection: AbstractConnection, patience_s: float) -> None:
        """`connection` is connected, and nothing is under way on it."""
        self._loop = asyncio.get_running_loop()
        self._pool = pool
        self._connection = connection
        self._patience_s = patience_s
        writer = connection._writer
        assert writer is not None, "what a pool gives is connected"
        self._transport = cast(asyncio.Transport, writer.transport)
        self._streams = cast(asyncio.Protocol, self._transport.get_protocol())
        self._transport.set_protocol(self)
        self._reader = hiredis.Reader(
            protocolError=redis_errors.InvalidResponse, replyError=DefaultParser.parse_error, notEnoughData=_MORE
        )
        self._collecting: list[_Asked] = []
        self._due: deque[_Asked] = deque()
        self._is_full = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = inf
        self._overdue: _Asked | None = None
        self._end: Exception | None = None
        self._retired = False

    @property
    def is_open(self) -> bool:
        """Whether it may be asked. Of a server that was deposed redis-py takes note on the connection."""
        return self._end is None and not self._retired and not self._connection._should_reconnect

    @property
    def has_ended(self) -> bool:
        """Whether nothing is under way on it any more."""
        return self._end is not None

    @property
    def under_way(self) -> int:
        """Asks that are not answered, those of callers who gave up included."""
        return len(self._due) + len(self._collecting)

    def ask(self, packed: bytes, within_s: float | None = None) -> asyncio.Future[object]:
        """The reply to one call, or the exception that stands in its place: TimeoutError, redis-py's, or an OSError.

        Cancelling the future is all that it takes to leave.
        """
        return self._ask(_Asked(packed, None, inf if within_s is None else within_s, self._loop.create_future()))

    def ask_all(
        self, packed: Sequence[bytes], within_s: float | None = None
    ) -> "asyncio.Future[list[object] | Exception]":
        """The replies to several calls, at least one; an exception in place of all where the server does not answer."""
        within_s = inf if within_s is None else within_s
        return self._ask(_Asked(b"".join(packed), len(packed), within_s, self._loop.create_future()))

    def retire(self) -> None:
        """Ask it no more; what is under way is still answered."""
        self._retired = True
        self._close_if_done()

    async def give_back(self) -> None:
        """Close it, and let the pool have its place again."""
        self._finish(redis_errors.ConnectionError("the connection was given back"))
        await self._connection.disconnect(nowait=True)
        await self._pool.release(self._connection)

    def data_received(self, data: bytes) -> None:
        """Replies, or parts of some."""
        self._reader.feed(data)
        due, gets = self._due, self._reader.gets
        try:
            while (reply := gets()) is not _MORE:
                asked = due[0]
                if asked.replies is not None:
                    asked.replies.append(reply)
                    if len(asked.replies) < asked.size:
                        continue
                    reply = asked.replies
                due.popleft()
                if not asked.future.done():
                    asked.future.set_result(reply)
        except (redis_errors.InvalidResponse, *NONSENSE) as nonsense:  # IndexError: a reply that nobody asked for
            self._finish(redis_errors.InvalidResponse(f"what answers does not speak the protocol: {nonsense}"))
            return
        if self._collecting:
            self._leave()
        elif self._retired:
            self._close_if_done()

    def pause_writing(self) -> None:
        """The socket is full."""
        self._is_full = True

    def resume_writing(self) -> None:
        """It takes more."""
        self._is_full = False
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, or redis-py at the end, closed the connection."""
        self._finish(redis_errors.ConnectionError("Connection closed by server.") if exc is None else exc)
        self._streams.connection_lost(exc)  # redis-py waits for it when it closes

    def _ask(self, asked: _Asked) -> asyncio.Future[Any]:
        if self._end is not None:
            asked.future.set_result(self._end)
            return asked.future
        if not self._collecting:
            self._loop.call_soon(self._leave)
        self._collecting.append(asked)
        return asked.future

    def _leave(self) -> None:
        """Write what waits, as far as there is room. Deadlines run from the first time on that it might have left."""
        if self._end is not None or not self._collecting:
            return
        now_s = monotonic()
        nearest_s = inf
        waiting, self._collecting = self._collecting, []
        leaving: list[bytes] = []
        room = 0 if self._is_full else _MOST_DUE - len(self._due)
        for asked in waiting:
            if asked.future.done():
                continue
            if asked.due_s == inf:
                asked.due_s = now_s + asked.within_s
            nearest_s = min(nearest_s, asked.due_s)
            if len(leaving) < room:
                asked.left_s = now_s
                leaving.append(asked.packed)
                self._due.append(asked)
            else:
                self._collecting.append(asked)
        if leaving:
            nearest_s = min(nearest_s, now_s + self._patience_s)
            self._transport.write(leaving[0] if len(leaving) == 1 else b"".join(leaving))
        self._ring_at(nearest_s, now_s)

    def _ring_at(self, at_s: float, now_s: float) -> None:
        if at_s == inf or (self._alarm is not None and self._alarm_s <= at_s):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = self._loop.call_later(max(at_s - now_s, _LOOK_AGAIN_S), self._ring)

    def _ring(self) -> None:
        """Give up whoever is late, and was so a moment ago already; then the whole lane, if that is what is late."""
        self._alarm = None
        now_s = monotonic()
        nearest_s = inf
        for asked in (*self._due, *self._collecting):
            if asked.future.done():
                continue
            if asked.due_s <= now_s:
                if asked.suspected:
                    asked.future.set_result(TimeoutError("no answer in time"))
                    continue
                asked.suspected = True
                asked.due_s = now_s + _LOOK_AGAIN_S
            nearest_s = min(nearest_s, asked.due_s)
        if self._due:
            nearest_s = min(nearest_s, self._look_at_oldest(self._due[0], now_s))
        if self._end is None:
            self._ring_at(nearest_s, now_s)

    def _look_at_oldest(self, oldest: _Asked, now_s: float) -> float:
        """When to look again at the reply that is due the longest."""
        over_s = oldest.left_s + self._patience_s
        if over_s > now_s:
            return over_s
        if self._overdue is oldest:
            self._finish(TimeoutError(f"no answer within {self._patience_s:g} s"))
        self._overdue = oldest
        return now_s + _LOOK_AGAIN_S

    def _close_if_done(self) -> None:
        if not self._due and not self._collecting:
            self._finish(redis_errors.ConnectionError("the connection has been retired"))

    def _finish(self, why: Exception) -> None:
        """End the connection, and tell everybody who waits for it."""
        if self._end is not None:
            return
        self._end = why
        if self._alarm is not None:
            self._alarm.cancel()
        waiting = (*self._due, *self._collecting)
        self._due.clear()
        self._collecting.clear()
        for asked in waiting:
            if not asked.future.done():
                asked.future.set_result(why)
        self._transport.abort()
