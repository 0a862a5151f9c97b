"""Something that speaks the protocol of Redis and answers as it is told, command by command."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import hiredis
from redis.asyncio import Redis

from prefix_index.redis_clients import connect_one


@dataclass
class ScriptedRedis:
    """`answer` gives the bytes for each command; b"" says nothing."""

    answer: Callable[[list[bytes]], bytes]
    port: int = 0
    writes: list[list[list[bytes]]] = field(default_factory=list)
    """What arrived together: commands, by connection and read."""
    streams: list[asyncio.StreamWriter] = field(default_factory=list)
    """Connections so far."""
    _asked: asyncio.StreamWriter | None = None

    @property
    def commands(self) -> list[list[bytes]]:
        """All that arrived."""
        return [command for together in self.writes for command in together]

    @property
    def url(self) -> str:
        """For a client."""
        return f"redis://127.0.0.1:{self.port}"

    def say(self, reply: bytes) -> None:
        """Say something on the connection on which a command came last."""
        assert self._asked is not None
        self._asked.write(reply)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams.append(writer)
        parser = hiredis.Reader()
        with suppress(OSError):
            while chunk := await reader.read(1 << 20):
                parser.feed(chunk)
                together: list[list[bytes]] = []
                while (command := parser.gets()) is not False:
                    together.append(command)
                self.writes.append(together)
                self._asked = writer
                for command in together:
                    writer.write(self.answer(command))
        writer.close()


@asynccontextmanager
async def scripted_redis(answer: Callable[[list[bytes]], bytes]) -> AsyncIterator[ScriptedRedis]:
    """It listens until the end, and then breaks what is connected."""
    scripted = ScriptedRedis(answer)
    listener = await asyncio.start_server(scripted._serve, "127.0.0.1", 0)
    scripted.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield scripted
        for stream in scripted.streams:
            stream.transport.abort()
        await asyncio.sleep(0)  # their sockets are closed in the next tick


@asynccontextmanager
async def scripted_client(answer: Callable[[list[bytes]], bytes]) -> AsyncIterator[tuple[ScriptedRedis, Redis]]:
    """The same with a client of it."""
    async with scripted_redis(answer) as scripted, connect_one(scripted.url) as client:
        yield scripted, client
