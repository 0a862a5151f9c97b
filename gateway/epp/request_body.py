"""The body of a request, as it is shown, until it is whole.

add, add, ... end --> whole          more than `MOST_UNWANTED_BYTES` that nobody waits for: no more is read
                                     more than the gateway takes: counted, and dropped
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.errors import BadRequest

KiB: Final = 1024
MOST_UNWANTED_BYTES: Final = 64 * KiB
"""Of a body that nobody waits for yet, since its request has to wait for its turn."""


class RequestBody:
    """Of one request."""

    def __init__(self, most_bytes: int) -> None:
        self.is_whole = False
        self._most_bytes = most_bytes
        self._pieces: list[bytes] = []
        self._received_bytes = 0
        self._left = False
        self._is_wanted = asyncio.Event()
        self._news = asyncio.Event()

    def add(self, data: bytes) -> None:
        """A part of it."""
        self._received_bytes += len(data)
        if self._received_bytes <= self._most_bytes:  # who waits for it refuses the rest
            self._pieces.append(data)
        self._news.set()

    def end(self) -> bytes:
        """It is whole: what of it was kept."""
        self.is_whole = True
        self._pieces = [b"".join(self._pieces)]
        self._news.set()
        return self._pieces[0]

    def leave(self) -> None:
        """Nothing more will come."""
        self._left = True
        self._is_wanted.set()
        self._news.set()

    async def room(self) -> None:
        """Wait until more may be read."""
        if self._received_bytes > MOST_UNWANTED_BYTES:
            await self._is_wanted.wait()

    async def whole(self, allow: Callable[[int], object]) -> bytes:
        """Wait for it. `allow` is told how many bytes have come, and raises where those are too many.

        Raises `BadRequest` where the client left before.
        """
        self._is_wanted.set()
        while not self.is_whole and not self._left:
            allow(self._received_bytes)
            self._news.clear()
            await self._news.wait()
        if not self.is_whole:
            raise BadRequest("the connection was closed before the body was whole")
        allow(self._received_bytes)
        return self._pieces[0]
