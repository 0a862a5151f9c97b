"""The connections to one endpoint: kept while they are warm, bounded, given out in order.

    take ──idle? yes: the one used last──────────────────────────────> connection
           |no: a place free? yes──dial──────────────────────────────> connection, fresh
           |no: stand in line ──── until one is given back ──────────> connection
                              `─── until one has closed: its place ──> dial

Used last, taken first: the few that the load needs stay warm, the others grow old and close by themselves. Whatever
becomes free goes to the first in line and is never seen by who comes later, so the line is served in order; there is a
line only while all places are taken and nothing is idle.

A *place* is one of the connections allowed. It is taken before a connection is dialled and free once that is being
closed. Costs: O(1) each.
"""

import asyncio
import errno
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from typing import Final

from backends.connection import Connection
from backends.dialing import Address, dial
from backends.errors import DialFailed, DialReason
from backends.target import Target
from backends.types import EndpointId

_UNREACHABLE: Final = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN})
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file is left to this process or machine, or no port of its own: whoever is dialled has no part in it."""
_CLOSING_S: Final = 1.0
"""How long to wait for sockets to close; the loop does that in its next turns."""


class Pool:
    """At most `limit` connections to `target`. Its user aborts what it does not need; `close` aborts all."""

    def __init__(self, endpoint_id: EndpointId, target: Target, tls: ssl.SSLContext | None, limit: int) -> None:
        self.target = target
        self._endpoint_id = endpoint_id
        self._address = Address(target.host, target.port, tls, target.server_name)
        self._limit = limit
        self._places = 0
        self._is_retired = False
        self._idle: dict[Connection, None] = {}
        self._line: deque[asyncio.Future[Connection | None]] = deque()
        self._open: set[Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._emptied = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a connection nor anybody who wants one."""
        return not self._places and not self._open

    def take(self) -> Connection | None:
        """A kept connection, if one is idle."""
        return self._idle.popitem()[0] if self._idle else None

    async def obtain(self, connect_s: float) -> tuple[Connection, float]:
        """A connection where none is idle, and the seconds that it took to get it.

        Raises `DialFailed`: for `POOL` where no place became free in time.
        """
        began_s = time.monotonic()
        in_line = True
        try:
            async with asyncio.timeout(connect_s):
                connection = await self._in_line()
                in_line = False
                if connection is None:
                    connection = await self._dial()
                return connection, time.monotonic() - began_s
        except (OSError, UnicodeError) as error:
            raise DialFailed(self._endpoint_id, DialReason.POOL if in_line else _reason(error)) from None

    async def instead_of(self, stale: Connection, connect_s: float) -> tuple[Connection, float]:
        """A new connection in the place of one that turned out to be closed. Raises `DialFailed`."""
        began_s = time.monotonic()
        stale.has_place = False
        try:
            async with asyncio.timeout(connect_s):
                return await self._dial(), time.monotonic() - began_s
        except (OSError, UnicodeError) as error:
            raise DialFailed(self._endpoint_id, _reason(error)) from None

    async def close(self) -> None:
        """Abort every connection, and wait until their sockets are closed."""
        for connection in tuple(self._open):
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                while self._open:
                    self._emptied.clear()
                    await self._emptied.wait()

    def retire(self) -> None:
        """Keep no connection any more: idle ones close now, the others when they are given back."""
        self._is_retired = True
        while self._idle:
            self._idle.popitem()[0].abort()

    def give_back(self, connection: Connection) -> None:
        """Called by a connection that can take the next request."""
        if self._is_retired:
            connection.abort()
        elif not self._hand_over(connection):
            self._idle[connection] = None

    def forget(self, connection: Connection) -> None:
        """Called by a connection that is closing."""
        self._idle.pop(connection, None)

    def vacate(self) -> None:
        """Called by a connection that is closing, for its place."""
        if not self._hand_over(None):
            self._places -= 1

    def has_closed(self, connection: Connection) -> None:
        """Called by a connection when its socket has closed."""
        self._open.discard(connection)
        if not self._open:
            self._emptied.set()

    def _hand_over(self, connection: Connection | None) -> bool:
        """Give a connection, or the place for one, to the first in line."""
        while self._line:
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def _in_line(self) -> Connection | None:
        """A kept connection, or None: a place was taken for a new one."""
        first = False
        while True:
            connection = self.take()
            if connection is not None:
                return connection
            if self._places < self._limit:
                self._places += 1
                return None
            given = await self._turn(first=first)
            if given is None or not given.is_closed:
                return given
            first = True  # it closed between being given and being taken

    async def _turn(self, *, first: bool) -> Connection | None:
        """Stand in line, or `first` in it, for a connection, or None: the place for one."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        if first:
            self._line.appendleft(waiter)
        else:
            self._line.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it was served in the very turn in which it gave up
                connection = waiter.result()
                if connection is None:
                    self.vacate()
                elif not connection.is_closed:
                    self.give_back(connection)
            elif waiter in self._line:
                self._line.remove(waiter)
            raise

    async def _dial(self) -> Connection:
        """A connection for a place that is taken already."""
        try:
            connection = await dial(self._address, self._made)
        except BaseException:
            self.vacate()
            raise
        connection.has_place = True
        if not connection.is_closed:
            self._open.add(connection)
        return connection

    def _made(self) -> Connection:
        return Connection(self._loop, self)


def _reason(error: OSError | UnicodeError) -> DialReason:
    match error:
        case TimeoutError():
            return DialReason.TIMEOUT
        case socket.gaierror() | UnicodeError():
            return DialReason.DNS
        case ssl.SSLError():
            return DialReason.TLS
        case ConnectionResetError() | ConnectionAbortedError() | BrokenPipeError():
            return DialReason.RESET
        case OSError() if error.errno in _UNREACHABLE:
            return DialReason.UNREACHABLE
        case OSError() if error.errno in _OURS:
            return DialReason.POOL
        case _:
            return DialReason.REFUSED
