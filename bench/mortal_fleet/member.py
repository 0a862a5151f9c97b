"""One process of a fleet, which may be killed and started again at the same address."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from gateway.demo.processes import started_process

READY_WITHIN_S: Final = 120.0


class Member:
    """A command that is run again and again, each time with a log of its own in `logs`."""

    def __init__(self, name: str, command: Sequence[str], logs: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._logs = logs
        self._environment = environment
        self._stack = AsyncExitStack()
        self._starts = 0
        self._kill: Callable[[], None] = _nothing
        self.pid: int | None = None

    async def start(self, *, tells_url: bool = True) -> None:
        """Start it; with `tells_url` wait until it has told its address. Raises `DemoFailed`."""
        self._starts += 1
        starting = await self._stack.enter_async_context(
            started_process(
                self.name,
                self._command,
                log=self._logs / f"{self.name}.{self._starts}.log",
                environment=self._environment,
                ready_within_s=READY_WITHIN_S,
            )
        )
        self.pid, self._kill = starting.process.pid, starting.process.kill
        if tells_url:
            await starting.url()

    async def kill(self) -> None:
        """kill -9; returns once it is gone."""
        self._kill()
        await self.stop()

    async def stop(self) -> None:
        """TERM, and wait until it has ended. Nothing where it does not run."""
        await self._stack.aclose()
        self.pid = None


def _nothing() -> None:
    """To kill what does not run."""
