"""A slot: the listening sockets of one worker, and the workers that have them one after the other.

    keep      a worker --dies--> the next one, at once; where that dies soon, after a delay that doubles,
                                 in which other slots have its connections
    replace   a successor --ready--> the old one stops accepting and drains --> gone
                          `--not ready--> it is killed, the old one goes on

While both are there, both accept from the same sockets.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from gateway.log_lines import LOGGER
from gateway.workers.child import Child

READY_S = 60.0
"""How long a successor may take to be ready."""
LONG_S = 30.0
"""A worker that lived for so long did not die of its start."""
LEAST_DELAY_S, MOST_DELAY_S = 0.25, 30.0


class Slot:
    """`start` makes a worker of this slot, and has it run; `let_go` leaves its connections to other slots."""

    def __init__(self, number: int, start: Callable[[], Child], let_go: Callable[[], None]) -> None:
        self.number = number
        self._start = start
        self._let_go = let_go
        self._child: Child | None = None
        self._stopping = asyncio.Event()

    @property
    def child(self) -> Child | None:
        """The worker that has the slot."""
        return self._child

    @property
    def is_alive(self) -> bool:
        """Whether its worker takes connections."""
        child = self._child
        return child is not None and child.is_ready.is_set() and not child.gone.is_set()

    async def begin(self) -> bool:
        """Start its first worker; whether that came to be ready."""
        child = self._child = self._start()
        return await first_of(child.is_ready, child.gone, self._stopping) is child.is_ready

    async def keep(self) -> None:
        """Keep a worker, from the first one on, until `stop`, and until that one is gone."""
        loop, delay_s = asyncio.get_running_loop(), 0.0
        while True:
            began_s = loop.time()
            child = await self._gone_for_good()
            if self._stopping.is_set():
                return
            delay_s = 0.0 if loop.time() - began_s > LONG_S else delay_s
            fields = {"slot": self.number, "pid": child.pid, "status": child.status, "again_in_s": delay_s}
            LOGGER.error("worker died", extra={"fields": fields})
            if delay_s:
                self._let_go()
                await first_of(self._stopping, timeout_s=delay_s)
            delay_s = min(max(2 * delay_s, LEAST_DELAY_S), MOST_DELAY_S)
            if self._child is child and not self._stopping.is_set():
                with suppress(OSError):  # no process to be had, or no address: the next try is later
                    self._child = self._start()

    async def replace(self) -> bool:
        """Have a successor take over; False where it did not come to be, and all is as before.

        Returns once the successor takes connections, and the old one has been told to finish.
        """
        try:
            successor = self._start()
        except OSError as error:
            LOGGER.error("no worker could be started: %s", error)
            return False
        if await first_of(successor.is_ready, successor.gone, self._stopping, timeout_s=READY_S) != successor.is_ready:
            successor.kill()
            await successor.gone.wait()
            return False
        old, self._child = self._child, successor
        if old is not None:
            old.replaced()
        return True

    def stop(self) -> None:
        """Have its worker drain, and start no more."""
        self._stopping.set()
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """End its worker now."""
        self._stopping.set()
        if self._child is not None:
            self._child.kill()

    async def _gone_for_good(self) -> Child:
        """Wait until the worker that has the slot is gone, whichever that is by then."""
        while True:
            child = self._child
            assert child is not None, "keep comes after begin"
            await child.gone.wait()
            if self._child is child:
                return child


async def first_of(*events: asyncio.Event, timeout_s: float | None = None) -> asyncio.Event | None:
    """The first of the events that is set, in their order; None where none is in time."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return next((event for event in events if event.is_set()), None)
