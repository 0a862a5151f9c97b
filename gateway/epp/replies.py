"""What is to be told to the gateway in front, in order, until all is said.

put(reply) --> [ waiting ] --drain--> gRPC       more than `MOST_WAITING_BYTES`: slow, until half of it has left
close()    --> nothing more comes                fail(why): the stream ends with an error
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gateway.epp.errors import EppError
from gateway.epp.messages import Reply

KiB: Final = 1024
MOST_WAITING_BYTES: Final = 256 * KiB


class Replies:
    """Of one stream. Everything but `drain` and `readable` is a plain call."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Reply, int]] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._failure: EppError | None = None
        self.closed = False

    @property
    def is_slow(self) -> bool:
        """Whether as much waits as may."""
        return not self._room.is_set()

    async def readable(self) -> None:
        """Wait until most has left, or nothing will any more."""
        await self._room.wait()

    def put(self, reply: Reply, size_bytes: int = 0) -> None:
        """Say this. Nothing once it is closed."""
        if self.closed:
            return
        self._waiting.append((reply, size_bytes))
        self._waiting_bytes += size_bytes
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self._room.clear()
        self._news.set()

    def put_all(self, replies: Iterable[Reply], size_bytes: int) -> None:
        """Say these, of so many bytes together."""
        for number, reply in enumerate(replies):
            self.put(reply, size_bytes if number == 0 else 0)

    def close(self) -> None:
        """All is said."""
        self.closed = True
        self._room.set()
        self._news.set()

    def fail(self, why: EppError) -> None:
        """Nothing can be said any more: what waits is dropped, and the stream ends with an error."""
        if not self.closed:
            self._failure = why
            self._waiting.clear()
            self.close()

    async def drain(self, write: Callable[[Reply], Awaitable[None]]) -> None:
        """Write what is put, as it comes, until it is closed. Raises what it failed of."""
        while True:
            while self._waiting:
                reply, size_bytes = self._waiting.popleft()
                await write(reply)
                self._waiting_bytes -= size_bytes
                if self._waiting_bytes <= MOST_WAITING_BYTES // 2:
                    self._room.set()
            if self.closed:
                break
            self._news.clear()
            await self._news.wait()
        if self._failure is not None:
            raise self._failure
