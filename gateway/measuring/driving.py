"""A load for a while: each request at its moment, or so many clients that ask again.

open      ---a--bc-----d->      each at its time, whoever is still waiting; waiting counts from that time
closed    a|b|c, the next whenever one has ended: the address decides how fast they come; they begin one after the
          other while it warms up, so that they are not all in step

    begins   from_s                    to_s          at most drain_s
      ├─────────┼────────────────────────┼───────────────┤
      warm-up        what is told of       nobody comes; who is still under way is waited for, then cut off
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gateway.measuring.asking import Asker, until

Timed = Iterable[tuple[float, bytes]]
"""Seconds after the beginning, in order, and a body."""
_AFTER_FAILURE_S: Final = 0.05
"""So long a client waits then: an address that refuses everything is not flooded."""


@dataclass(frozen=True, slots=True)
class Phase:
    """How long a level lasts: `warm_s` before what is told of, `seconds` of it, and `drain_s` for the last answers. It
    ends early with its `most_requests`th."""

    warm_s: float = 2.0
    seconds: float = 10.0
    drain_s: float = 30.0
    most_requests: int | None = None

    @property
    def lasts_s(self) -> float:
        """In which requests are sent."""
        return self.warm_s + self.seconds


async def drive_open(asker: Asker, requests: Timed, phase: Phase) -> tuple[float, float]:
    """Send each at its time. Returns from when to when, in seconds after `asker.began_s`, it is to be told of. What
    could not be sent in time, since more is due than this machine can send, is left out."""
    begun_s = asker.clock()
    async with _drained(asker, begun_s, phase) as start:
        for count, (after_s, body) in enumerate(requests):
            if after_s >= phase.lasts_s:
                await until(begun_s + phase.lasts_s, asker.clock)
                break
            if count == phase.most_requests:
                break
            at_s = begun_s + after_s
            await until(at_s, asker.clock)
            if asker.clock() >= begun_s + phase.lasts_s:
                break  # more was due than this machine can send
            start(asker.ask(body, at_s))
    return _window(asker, begun_s, phase, asker.clock())


async def drive_closed(asker: Asker, bodies: Iterator[bytes], clients: int, phase: Phase) -> tuple[float, float]:
    """So many clients, each asking as soon as it was answered. Returns as `drive_open`."""
    begun_s = asker.clock()
    ends_s = begun_s + phase.lasts_s
    left = iter(range(phase.most_requests)) if phase.most_requests is not None else None

    async def asks_again(number: int) -> None:
        await until(begun_s + phase.warm_s * number / clients, asker.clock)
        while asker.clock() < ends_s:
            body = next(bodies, None)
            if body is None or (left is not None and next(left, None) is None):
                return
            found = await asker.ask(body, asker.clock())
            if not found.is_whole:
                await asyncio.sleep(_AFTER_FAILURE_S)

    async with _drained(asker, begun_s, phase) as start:
        workers = [start(asks_again(number)) for number in range(clients)]
        await asyncio.wait(workers, timeout=phase.lasts_s)
    return _window(asker, begun_s, phase, asker.clock())


@asynccontextmanager
async def _drained(
    asker: Asker, begun_s: float, phase: Phase
) -> AsyncIterator[Callable[[Coroutine[None, None, object]], "asyncio.Task[object]"]]:
    """Starts tasks, and waits for them at the end, as long as the phase says; then they are cut off."""
    async with asyncio.TaskGroup() as group:
        tasks: set[asyncio.Task[object]] = set()

        def start(work: Coroutine[None, None, object]) -> "asyncio.Task[object]":
            task = group.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        yield start
        patience_s = max(begun_s + phase.lasts_s + phase.drain_s - asker.clock(), 0.0)
        if tasks:
            await asyncio.wait(set(tasks), timeout=patience_s)
        for task in list(tasks):
            task.cancel()


def _window(asker: Asker, begun_s: float, phase: Phase, now_s: float) -> tuple[float, float]:
    """A load that ended early, since its requests did, is told of until the last was answered; all of it, where that
    was before it had warmed up."""
    to_s = min(begun_s + phase.lasts_s, now_s)
    from_s = begun_s + phase.warm_s
    return (from_s if from_s < to_s else begun_s) - asker.began_s, to_s - asker.began_s
