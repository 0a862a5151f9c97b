"""Requests as bytes: what a client sends, recorded, and sent again without the client.

    client ──> Tap ──> server             records what one call of the client put on the wire
    RawConnection ──────> server          sends it again; an ECHO behind it says where the reply ends

So every design is measured with its own requests, and the cost of Python does not hide that of the server.
"""

import asyncio
import re
import select
import selectors
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

_MARK = b"prefixgate bench"
_CHUNK = 1 << 18
_TAIL = 512
_COMMAND = re.compile(rb"(?:^|\r\n)\*\d+\r\n\$\d+\r\n([A-Z_]+)\r\n")


def encode(*parts: bytes) -> bytes:
    """One command in the protocol of Redis."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


_ECHO = encode(b"ECHO", _MARK)
_ECHOED = b"$%d\r\n%b\r\n" % (len(_MARK), _MARK)


def commands_in(request: bytes) -> Counter[str]:
    """How many of which commands a recorded request holds."""
    return Counter(name.decode().lower() for name in _COMMAND.findall(request))


class RawConnection:
    """Sends bytes as they are, and knows when all that they are answered with has come."""

    def __init__(self, url: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(url.removeprefix("unix://"))
        self.socket.setblocking(False)
        self._unsent = memoryview(b"")
        self._tail = b""

    def ask(self, request: bytes) -> bytes:
        """Send, and wait for the whole answer; returns the end of it, up to half a kilobyte."""
        self.begin(request)
        while not self.step():
            select.select([self.socket], [self.socket] if self._unsent else [], [])
        return self._tail.removesuffix(_ECHOED)

    def begin(self, request: bytes) -> None:
        """Send what can be sent without waiting; `step` does the rest."""
        self._unsent, self._tail = memoryview(request + _ECHO), b""
        self._send()

    def step(self) -> bool:
        """Send and receive what can be without waiting. Whether the whole answer has come."""
        if self._unsent:
            self._send()
        with suppress(BlockingIOError):
            data = self.socket.recv(_CHUNK)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._tail = (self._tail + data)[-_TAIL:] if len(data) < _TAIL else data[-_TAIL:]
        return self._tail.endswith(_ECHOED)

    @property
    def sending(self) -> bool:
        """Whether part of the request is still here."""
        return bool(self._unsent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def _send(self) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]


@dataclass(frozen=True, slots=True)
class RawRate:
    """How many requests were answered in how many seconds."""

    answered: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.answered / self.seconds


def answered_in(url: str, requests: Sequence[bytes], in_flight: int, seconds: float) -> RawRate:
    """Keep `in_flight` requests going, each on a connection of its own, for as long as said and to their end."""
    turns = cycle(requests)
    answered = 0
    with ExitStack() as stack, selectors.DefaultSelector() as ready:
        began_s = time.perf_counter()
        for _ in range(in_flight):
            connection = stack.enter_context(RawConnection(url))
            connection.begin(next(turns))
            ready.register(connection.socket, _wanted(connection), connection)
        while ready.get_map():
            for key, _ in ready.select():
                connection = key.data
                was_sending = connection.sending
                if connection.step():
                    answered += 1
                    if time.perf_counter() - began_s >= seconds:
                        ready.unregister(connection.socket)
                        continue
                    connection.begin(next(turns))
                if connection.sending or was_sending:
                    ready.modify(connection.socket, _wanted(connection), connection)
        return RawRate(answered, time.perf_counter() - began_s)


def longest_wait_s(url: str, request: bytes) -> float:
    """How long at most a neighbour waited for one small command while the server was busy with `request`."""
    longest_s = 0.0
    with RawConnection(url) as busy, RawConnection(url) as neighbour:
        busy.begin(request)
        while True:
            asked_s = time.perf_counter()
            neighbour.ask(b"")
            longest_s = max(longest_s, time.perf_counter() - asked_s)
            if busy.step():
                return longest_s


class Tap:
    """A socket in front of a server that writes down what comes through. Use `async with`."""

    def __init__(self, server_url: str) -> None:
        self._server_path = server_url.removeprefix("unix://")
        self._sent = bytearray()
        self._exit = AsyncExitStack()
        self._inside: set[asyncio.Task[None]] = set()
        self._streams: list[asyncio.StreamWriter] = []
        self.url = ""

    async def record(self, call: Callable[[], Awaitable[object]]) -> bytes:
        """What the client sends for one call. Make one before it that connects."""
        self._sent.clear()
        await call()
        return bytes(self._sent)

    async def __aenter__(self) -> Self:
        directory = self._exit.enter_context(TemporaryDirectory(prefix="tap-"))
        path = str(Path(directory) / "tap.sock")
        await self._exit.enter_async_context(await asyncio.start_unix_server(self._enter, path))
        self._exit.push_async_callback(self._leave)
        self.url = f"unix://{path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    async def _leave(self) -> None:
        for stream in self._streams:
            stream.close()
        if self._inside:
            await asyncio.wait(self._inside)

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._inside.add(task)
        back, forth = await asyncio.open_unix_connection(self._server_path)
        self._streams += (writer, forth)
        async with asyncio.TaskGroup() as both_ways:
            both_ways.create_task(_copy(reader, forth, self._sent))
            both_ways.create_task(_copy(back, writer, None))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, record: bytearray | None) -> None:
    while chunk := await source.read(_CHUNK):
        if record is not None:
            record += chunk
        target.write(chunk)
    target.close()
    with suppress(OSError):
        await target.wait_closed()


def _wanted(connection: RawConnection) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.sending else 0)
