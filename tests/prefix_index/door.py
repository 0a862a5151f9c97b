"""A TCP door in front of a server, to break the way to it without breaking the server, or to lay TLS over it."""

import asyncio
import ssl
from contextlib import suppress

WITHIN_S = 10.0


class Door:
    """Listens on a port of its own, which stays the same however often it is shut."""

    def __init__(self, server_url: str, tls: ssl.SSLContext | None = None) -> None:
        """`server_url` is unix://PATH or redis://127.0.0.1:PORT; with `tls` the door speaks that."""
        self.server_url = server_url
        self._tls = tls
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._streams: set[asyncio.StreamWriter] = set()
        self._opened = asyncio.Event()
        self._nonsense: bytes | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.entered = 0
        """Connections so far."""
        self.passed_bytes = 0
        """Bytes of requests so far."""
        self.held = 0
        """Replies, or parts of them, that wait at present."""

    @property
    def url(self) -> str:
        """Where clients knock."""
        return f"redis{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def choose_port(self) -> None:
        """Settle on a port while nothing listens on it."""
        await self._listen()
        await self.shut()

    async def open(self) -> None:
        """Let everything through."""
        await self.shut()
        self._opened.set()
        await self._listen()

    async def stall(self) -> None:
        """Accept connections and never answer."""
        await self.shut()
        await self._listen()

    async def babble(self, nonsense: bytes) -> None:
        """Answer everything with the same bytes."""
        await self.shut()
        self._nonsense = nonsense
        await self._listen()

    def hold(self) -> None:
        """Keep replies back from now on; connections stay, requests pass."""
        self._flowing.clear()

    def release(self) -> None:
        """Let the replies pass that were kept back, and all that follow."""
        self._flowing.set()

    async def shut(self) -> None:
        """Refuse connections and break those there are."""
        self._opened.clear()
        self._nonsense = None
        if self._listener is not None:
            self._listener.close()
            for stream in list(self._streams):
                stream.transport.abort()
            await self._listener.wait_closed()
            self._listener = None

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._enter, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        self.entered += 1
        try:
            with suppress(OSError):
                if self._opened.is_set():
                    await self._forward(reader, writer)
                else:
                    while await reader.read(1 << 16):
                        if self._nonsense is not None:
                            writer.write(self._nonsense)
        finally:
            writer.close()
            self._streams.discard(writer)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.server_url.startswith("unix://"):
            back, forth = await asyncio.open_unix_connection(self.server_url.removeprefix("unix://"))
        else:
            back, forth = await asyncio.open_connection("127.0.0.1", int(self.server_url.rpartition(":")[2]))
        self._streams.add(forth)
        try:
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._copy(reader, forth))
                both_ways.create_task(self._copy(back, writer, held=True))
        finally:
            forth.close()
            self._streams.discard(forth)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, held: bool = False) -> None:
        with suppress(OSError):
            while chunk := await source.read(1 << 16):
                if held:
                    self.held += 1
                    try:
                        await self._flowing.wait()
                    finally:
                        self.held -= 1
                else:
                    self.passed_bytes += len(chunk)
                target.write(chunk)
        target.close()
