"""Between each gateway and each part it calls stands a link: a TCP proxy that passes bytes on, until told otherwise.

    gateway-0 ──> link ──> engine-0        open       bytes pass as they come
    gateway-0 ──> link ──> valkey          stalled    nothing passes, nothing is closed: a partition
    gateway-1 ──> link ──> engine-0        refusing   new connections are refused, those that were open are reset
                                           delay_s    each piece of bytes waits before it passes on

It runs everywhere, as any user. Where packets can be lost for real (`namespaces.py`) the link only listens.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bench.faults.wire import Wire

_PIECE_BYTES: Final = 65536
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_BACKLOG: Final = 256
_REACH_WITHIN_S: Final = 10.0


@dataclass(eq=False, slots=True)
class _Passage:
    """One connection through a link."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    wire: Wire | None
    cut: bool = field(default=False)

    def reset(self) -> None:
        """RST on both sides: what was on its way is lost."""
        for writer in (self.near, self.far):
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            writer.transport.abort()


class Link:
    """The way of one gateway to one part: where the gateway dials, and where that leads."""

    def __init__(
        self,
        gateway: str,
        part: str,
        near: tuple[str, int],
        far: tuple[str, int],
        listen: Callable[[], Wire] | None = None,
    ) -> None:
        self.gateway = gateway
        self.part = part
        self.near = near
        self.delay_s = 0.0
        self._far = far
        self._listen = listen
        self._open = asyncio.Event()
        self._open.set()
        self._passages: set[_Passage] = set()
        self._server: asyncio.Server | None = None
        self._serving = 0

    async def start(self) -> None:
        """Take connections."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, *self.near, backlog=_BACKLOG)

    async def close_door(self) -> None:
        """Refuse new connections; those there are go on."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def refuse(self) -> None:
        """Take none any more, and reset those there are."""
        await self.close_door()
        self.reset()

    def stall(self) -> None:
        """Pass nothing on, and close nothing."""
        self._open.clear()

    def heal(self) -> None:
        """Pass on what waits, and all that comes."""
        self._open.set()
        self.delay_s = 0.0

    def reset(self) -> None:
        """Reset all connections."""
        for passage in list(self._passages):
            passage.reset()

    def cut(self) -> int:
        """Reset each connection on which a stream is under way, after a part of its next bytes; how many there were."""
        found = [one for one in self._passages if one.wire is not None and one.wire.is_answering]
        for passage in found:
            passage.cut = True
        return len(found)

    async def stop(self) -> None:
        """End."""
        self.heal()
        await self.refuse()
        while self._serving:
            self.reset()
            await asyncio.sleep(0)

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        self._serving += 1
        try:
            await self._carry(near_in, near_out)
        finally:
            self._serving -= 1

    async def _carry(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        await self._open.wait()
        try:
            async with asyncio.timeout(_REACH_WITHIN_S):
                far_in, far_out = await asyncio.open_connection(*self._far)
        except (OSError, TimeoutError):
            _Passage(near_out, near_out, None).reset()
            return
        passage = _Passage(near_out, far_out, None if self._listen is None else self._listen())
        self._passages.add(passage)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(near_in, far_out, passage, downwards=True))
                group.create_task(self._pass(far_in, near_out, passage, downwards=False))
        except* (ConnectionError, OSError):
            passage.reset()
        finally:
            self._passages.discard(passage)
            if passage.wire is not None:
                passage.wire.ended()
            for writer in (near_out, far_out):
                writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passage: _Passage, *, downwards: bool
    ) -> None:
        while data := await reader.read(_PIECE_BYTES):
            await self._open.wait()
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
                await self._open.wait()
            if passage.cut and not downwards:
                data = data[: len(data) // 2]
            if passage.wire is not None:
                (passage.wire.sent if downwards else passage.wire.got)(data)
            writer.write(data)
            if passage.cut and not downwards:
                with suppress(ConnectionError, OSError):
                    await writer.drain()
                raise ConnectionResetError
            await writer.drain()
        await self._open.wait()
        if writer.can_write_eof():
            writer.write_eof()
