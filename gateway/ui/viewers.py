"""Open dashboards, each kept up to date by a stream of events: a snapshot, then what changes.

    while anybody looks:  collect (all workers) --difference--> one event, encoded once --> a queue for each viewer
    nobody looks:         nothing runs, nothing is kept

A queue holds `QUEUED` events. A viewer that falls behind gets a snapshot in place of what it has missed; one that takes
nothing for `Bounds.patience_s` is cut. Collecting takes at most a sixth of the time, however large the fleet.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gateway.errors import TooManyViewers
from gateway.log_lines import LOGGER
from gateway.sse import named_event
from gateway.ui.answers import SECURE
from gateway.ui.merging import difference
from gateway.ui.types import Page
from gateway.ui_metrics import UiMetrics
from gateway.wire import Receive, Scope, Send

REST: Final = 5.0
"""Rests so many times as long as the collecting took."""
QUEUED: Final = 8
HEARTBEAT_S: Final = 15.0
_ALIVE: Final = b": alive\n\n"
_RETRY: Final = b"retry: 2000\n\n"


@dataclass(frozen=True, slots=True)
class Bounds:
    """`most`: viewers at a time. `tick_s`: how often a view is collected, and a viewer that waits for news looks
    whether it is to end. `patience_s`: how long one may take for what it is sent."""

    most: int
    tick_s: float = 1.0
    patience_s: float = 30.0


@dataclass(eq=False, slots=True)
class _Viewer:
    """`missed`: it needs a snapshot, whatever waits for it."""

    events: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    missed: bool = True

    def tell(self, event: bytes) -> None:
        if not self.missed:
            self.events.append(event)
        if len(self.events) > QUEUED:
            self.events.clear()
            self.missed = True
        self.news.set()


class Viewers:
    """One per process. `collect` gives the view of the whole gateway, `closing` whether the gateway stops.

    `run` must be under way. `forget` is told when the last one has left.
    """

    def __init__(
        self,
        collect: Callable[[], Awaitable[Page]],
        forget: Callable[[], object],
        closing: Callable[[], bool],
        metrics: UiMetrics,
        bounds: Bounds,
    ) -> None:
        self._collect = collect
        self._forget = forget
        self._closing = closing
        self._metrics = metrics
        self._bounds = bounds
        self._viewers: set[_Viewer] = set()
        self._somebody = asyncio.Event()
        self._view: Page | None = None
        self._snapshot: bytes | None = None
        self._number = 0

    @property
    def count(self) -> int:
        """How many look, at this process."""
        return len(self._viewers)

    async def run(self) -> None:
        """Collect while anybody looks, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._somebody.wait()
            began_s = loop.time()
            try:
                await self._tick()
            except Exception as error:  # noqa: BLE001 - the guard of the loop: no traffic depends on it
                LOGGER.error("the dashboard could not be brought up to date", extra={"fields": {"error": repr(error)}})
            took_s = loop.time() - began_s
            self._metrics.collecting_s.inc(took_s)
            await asyncio.sleep(max(self._bounds.tick_s - took_s, REST * took_s))

    async def _tick(self) -> None:
        view = await self._collect()
        changes = None if self._view is None else await difference(self._view, view)
        if not self._viewers:  # the last one left meanwhile
            return
        old, self._view, self._snapshot = self._view, view, None
        if old is None:
            for viewer in self._viewers:
                viewer.news.set()
            return
        if changes is not None:
            self._number += 1
            event = self._event("delta", {"as_of": view["as_of"], **changes})
            for viewer in self._viewers:
                viewer.tell(event)

    async def serve(self, scope: Scope, receive: Receive, send: Send, until: Callable[[], bool]) -> None:
        """Answer with the stream, until the client leaves, `until` says so, or the gateway stops.

        Raises `TooManyViewers`.
        """
        if len(self._viewers) >= self._bounds.most:
            self._metrics.viewers_ended("refused").inc()
            raise TooManyViewers(
                f"{self._bounds.most} dashboards are open at this process already, as many as ui.max_viewers allows: "
                "close one, or look again later"
            )
        viewer = _Viewer()
        self._viewers.add(viewer)
        self._somebody.set()
        self._metrics.viewers.set(len(self._viewers))
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(self._write(viewer, send, until))
                watching = group.create_task(_left(receive, writing))
                why = await _outcome(writing)
                watching.cancel()
            self._metrics.viewers_ended(why).inc()
        finally:
            self._leave(viewer)

    def _leave(self, viewer: _Viewer) -> None:
        self._viewers.discard(viewer)
        self._metrics.viewers.set(len(self._viewers))
        if not self._viewers:
            self._somebody.clear()
            self._view = self._snapshot = None
            self._forget()

    async def _write(self, viewer: _Viewer, send: Send, until: Callable[[], bool]) -> str:
        """Why it ended. A viewer that does not read is left with its answer cut."""
        loop = asyncio.get_running_loop()
        head = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": [*head, *SECURE]})
        told_s = loop.time()
        waiting = [_RETRY]
        try:
            while True:
                if waiting:
                    await self._tell(send, b"".join(waiting), more=True)
                    told_s = loop.time()
                why = "draining" if self._closing() else "session_over" if until() else None
                if why is not None:
                    await self._tell(send, self._event("end", {"reason": why}), more=False)
                    return why
                waiting = await self._next(viewer)
                if not waiting and loop.time() - told_s >= HEARTBEAT_S:
                    waiting = [_ALIVE]
        except TimeoutError:
            return "too_slow"

    async def _tell(self, send: Send, body: bytes, *, more: bool) -> None:
        """Raises `TimeoutError` where the viewer does not take it."""
        async with asyncio.timeout(self._bounds.patience_s):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def _next(self, viewer: _Viewer) -> list[bytes]:
        """What it is to be told now, nothing where there is nothing for a tick."""
        try:
            async with asyncio.timeout(self._bounds.tick_s):
                await viewer.news.wait()
        except TimeoutError:
            return []
        viewer.news.clear()
        if viewer.missed and self._view is not None:
            viewer.missed = False
            viewer.events.clear()
            if self._snapshot is None:
                self._snapshot = self._event("snapshot", self._view)
            return [self._snapshot]
        waiting = list(viewer.events)
        viewer.events.clear()
        return waiting

    def _event(self, name: str, content: Page) -> bytes:
        return b"id: %d\n" % self._number + named_event(name, msgspec.json.encode(content))


async def _outcome(writing: "asyncio.Task[str]") -> str:
    """Why a viewer's stream ended; one whose task is cancelled has left."""
    await asyncio.wait([writing])
    return "left" if writing.cancelled() else writing.result()


async def _left(receive: Receive, writing: "asyncio.Task[str]") -> None:
    """Ends the writing when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    writing.cancel()
