"""One server on one core, and its own account of what it did.

Two accounts of a call's cost. `command_us`, from INFO commandstats: what the commands took, as the server counts them;
neither reading the request nor writing the reply is in it. `cpu_us`, from INFO cpu: all that the process used.
"""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from prefix_index import EmbeddedServer


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the server started: microseconds of each command, microseconds of the processor."""

    command_us: Mapping[str, float]
    cpu_us: float

    def since(self, before: "Counters", commands: Iterable[str]) -> tuple[float, float]:
        """Microseconds that `commands` took in between, and those of the processor."""
        spent = sum(self.command_us.get(name, 0.0) - before.command_us.get(name, 0.0) for name in commands)
        return spent, self.cpu_us - before.cpu_us


@dataclass(frozen=True, slots=True)
class Memory:
    """What the server has allocated, and what of it is resident."""

    used_bytes: int
    resident_bytes: int


class Server:
    """A running server; `client` is for questions about it."""

    def __init__(self, url: str, client: Redis) -> None:
        self.url, self.client = url, client

    async def counters(self) -> Counters:
        """As of now."""
        commands = await self.client.info("commandstats")
        cpu = await self.client.info("cpu")
        return Counters(
            {name.removeprefix("cmdstat_"): float(stats["usec"]) for name, stats in commands.items()},
            1e6 * (cpu["used_cpu_user"] + cpu["used_cpu_sys"]),
        )

    async def memory(self) -> Memory:
        """As of now."""
        info = await self.client.info("memory")
        return Memory(info["used_memory"], info["used_memory_rss"])

    async def watch_calls(self) -> None:
        """Forget slow calls, and write down those of a tenth of a millisecond and more from now on."""
        await self.client.config_set("slowlog-log-slower-than", 100)
        await self.client.config_set("slowlog-max-len", 100_000)
        await self.client.slowlog_reset()

    async def longest_call_us(self) -> int:
        """The longest single call since then; 0 where none was slow."""
        return max((call["duration"] for call in await self.client.slowlog_get(100_000)), default=0)


@asynccontextmanager
async def pinned_server() -> AsyncIterator[Server]:
    """A fresh server on the last of our cores, ourselves on the others meanwhile; unpinned where that cannot be."""
    async with EmbeddedServer() as embedded:
        cores = pin_apart(embedded.pid)
        client = Redis.from_url(embedded.url)
        try:
            yield Server(embedded.url, client)
        finally:
            await client.aclose()
            if cores is not None:
                os.sched_setaffinity(0, cores)


def pin_apart(pid: int | None) -> set[int] | None:
    """Give a process the last of our cores and keep to the others. Returns those we had; None where nothing is done."""
    if pid is None or not hasattr(os, "sched_setaffinity"):
        return None
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        return None
    last = max(cores)
    os.sched_setaffinity(pid, {last})
    os.sched_setaffinity(0, cores - {last})
    return cores
