"""From the engine's thread to an event loop: the deltas of one request, as an async queue that aborts what is left."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from backends.reference.engine import Engine
from backends.reference.types import Delta, GenerationRequest


class DeltaQueue:
    """Deltas of one request in order; read until one has a finish reason."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Delta] = asyncio.Queue()
        self.finished = False

    def put_from_engine(self, delta: Delta) -> None:
        """Called on the engine's thread; a loop that is gone means a client that is gone."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._queue.put_nowait, delta)

    async def get(self) -> Delta:
        """The next delta. Waits as long as the engine takes; a stopping engine sends a last one."""
        delta = await self._queue.get()
        self.finished = delta.finish is not None
        return delta


@contextmanager
def generating(engine: Engine, request: GenerationRequest) -> Iterator[DeltaQueue]:
    """Run `request` while the block is open: whoever leaves it early, however, aborts the request.

    Must be entered on a running event loop. Raises `EngineStopped`.
    """
    queue = DeltaQueue(asyncio.get_running_loop())
    engine.submit(request, queue.put_from_engine)
    try:
        yield queue
    finally:
        if not queue.finished:
            engine.abort(request.request_id)
