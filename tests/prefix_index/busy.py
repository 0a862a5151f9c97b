"""A process that is busy: each pass of its loop takes longer than a deadline, in its tasks or in reading sockets."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

BUSY_S = 0.1


def hold_up(for_s: float) -> None:
    """Keep the loop from going on. The processor is left to the server: whether that is late is not what is asked."""
    time.sleep(for_s)


@asynccontextmanager
async def busy_loop() -> AsyncIterator[list[float]]:
    """A task takes so long in each pass. The list grows with each."""
    passes: list[float] = []

    async def be_busy() -> None:
        while True:
            passes.append(time.monotonic())
            hold_up(BUSY_S)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(be_busy())
        try:
            yield passes
        finally:
            task.cancel()


class _Busy(asyncio.Protocol):
    """Answers each byte after a while, by a byte: two of them are never done with each other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        hold_up(BUSY_S)
        assert self.transport is not None
        self.transport.write(data)


@asynccontextmanager
async def busy_sockets() -> AsyncIterator[None]:
    """What arrives on other sockets takes so long to be read, each time that the loop looks at its sockets."""
    loop, ends = asyncio.get_running_loop(), socket.socketpair()
    transports = [(await loop.create_connection(_Busy, sock=end))[0] for end in ends]
    transports[0].write(b"x")
    try:
        yield
    finally:
        for transport in transports:
            transport.abort()
        await asyncio.sleep(0)  # their sockets are closed in the next pass
