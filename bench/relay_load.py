"""Clients that keep a number of streams open and cost next to nothing: what arrives is counted, not parsed.

    Streams(url, request) ── open(500) ──> 500 connections, on each one request after the other

A gap is the time between two chunks of one answer; chunks that arrive in one read have gaps of 0 between them. A
transit is the time from the engine's write to our read, by the time that the chunk holds (`bench.stream_backend`); of
several in one read that of the last. Both in seconds, kept only while `recording`. Cost: about 3 µs a read.
"""

import asyncio
import random
import time
from array import array
from collections.abc import Callable
from itertools import count
from typing import Final, cast
from urllib.parse import urlsplit

_MARK: Final = b'"content"'
_BODY_END: Final = b"0\r\n\r\n"

Request = Callable[[int, int], bytes]
"""The bytes of request number n for so many chunks."""


class Streams:
    """Streams through one router. Mutable counters; `answers` came to their end, `failures` did not."""

    def __init__(self, url: str, request: Request, chunks: int, rng: random.Random) -> None:
        where = urlsplit(url)
        self.host, self.port = where.hostname or "", where.port or 80
        self.request = request
        self.chunks_each = chunks
        self.rng = rng
        self.numbers = count()
        self.recording = False
        self.reads = self.chunks = self.answers = self.failures = 0
        self.failed_with = b""
        self.gaps = array("d")
        self.transits = array("d")
        self.first_chunks = array("d")
        """From a request to its first chunk, seconds."""
        self.settled = asyncio.Event()
        """Set once an answer has come to its end, or failed."""
        self._open: list[Stream] = []

    @property
    def open_streams(self) -> int:
        """How many there are."""
        return len(self._open)

    async def open(self, streams: int, per_s: float, *, staggered: bool) -> None:
        """Open more, until there are `streams`. With `staggered` the first answers are of any length: else all
        would end at once."""
        loop = asyncio.get_running_loop()
        while len(self._open) < streams:
            chunks = self.rng.randint(1, self.chunks_each) if staggered else self.chunks_each
            _, stream = await loop.create_connection(lambda chunks=chunks: Stream(self, chunks), self.host, self.port)  # type: ignore[misc]
            self._open.append(stream)
            await asyncio.sleep(1 / per_s)

    def close(self) -> None:
        """Leave them all, in the middle."""
        for stream in self._open:
            stream.leave()
        self._open.clear()

    def record(self) -> None:
        """Forget what was counted, and count from now on."""
        self.reads = self.chunks = self.answers = self.failures = 0
        self.gaps, self.transits, self.first_chunks = array("d"), array("d"), array("d")
        self.recording = True


class Stream(asyncio.Protocol):
    """One connection, on which one request follows the other."""

    def __init__(self, streams: Streams, chunks: int) -> None:
        self._streams = streams
        self._chunks = chunks
        self._tail = b""
        self._last_s = 0.0
        self._asked_s = 0.0
        self._left = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self._transport = cast(asyncio.Transport, transport)
        self._ask(self._chunks)

    def connection_lost(self, exc: Exception | None) -> None:
        """A router that leaves in the middle has failed."""
        if not self._left:
            self._fail(b"closed")

    def leave(self) -> None:
        """Close the connection."""
        self._left = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count."""
        now_s = time.perf_counter()
        streams = self._streams
        found = data.count(_MARK)
        if found:
            if streams.recording:
                streams.reads += 1
                streams.chunks += found
                self._note(data, found, now_s)
            self._last_s = now_s
        elif not self._last_s and not data.startswith(b"HTTP/1.1 200") and data.startswith(b"HTTP/"):
            self._fail(data[:300])
            return
        self._tail = data[-5:] if len(data) >= 5 else (self._tail + data)[-5:]
        if self._tail == _BODY_END:
            if self._last_s:
                streams.answers += 1
                streams.settled.set()
            self._ask(streams.chunks_each)

    def _note(self, data: bytes, found: int, now_s: float) -> None:
        streams = self._streams
        at = data.rfind(b'"@') + 2
        written_at = data[at : at + 16]
        if len(written_at) == 16 and written_at.isdigit():  # else the last chunk is not whole
            streams.transits.append(now_s - int(written_at) / 1e6)
        if self._last_s:
            streams.gaps.append(now_s - self._last_s)
        else:
            streams.first_chunks.append(now_s - self._asked_s)
        if found > 1:
            streams.gaps.extend([0.0] * (found - 1))

    def _ask(self, chunks: int) -> None:
        streams = self._streams
        self._last_s = 0.0
        self._asked_s = time.perf_counter()
        self._transport.write(streams.request(next(streams.numbers), chunks))

    def _fail(self, why: bytes) -> None:
        self._streams.failures += 1
        self._streams.settled.set()
        self._streams.failed_with = why
        self.leave()
