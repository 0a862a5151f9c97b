"""From the engine's thread to an event loop: the deltas of an answer, as an async queue that aborts what is left."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from backends.reference.engine import Engine
from backends.reference.types import Delta, GenerationRequest, Listener


class DeltaQueue:
    """Deltas of the choices of one answer, in the order they come; read while some are `unfinished`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, choices: int) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
        self.unfinished = set(range(choices))

    def listener(self, choice: int) -> Listener:
        """What the engine's thread calls with the deltas of a choice."""

        def listen(delta: Delta) -> None:
            with suppress(RuntimeError):  # a loop that is gone means a client that is gone
                self._loop.call_soon_threadsafe(self._queue.put_nowait, (choice, delta))

        return listen

    async def get(self) -> tuple[int, Delta]:
        """The next delta and its choice. Waits as long as the engine takes; a stopping engine sends last ones."""
        choice, delta = await self._queue.get()
        if delta.finish is not None:
            self.unfinished.discard(choice)
        return choice, delta


@contextmanager
def generating(engine: Engine, requests: Sequence[GenerationRequest]) -> Iterator[DeltaQueue]:
    """Run `requests` while the block is open: whoever leaves it early, however, aborts what is unfinished.

    Must be entered on a running event loop. Raises `EngineStopped`.
    """
    queue = DeltaQueue(asyncio.get_running_loop(), len(requests))
    try:
        for choice, request in enumerate(requests):
            engine.submit(request, queue.listener(choice))
        yield queue
    finally:
        for choice in queue.unfinished:
            engine.abort(requests[choice].request_id)
