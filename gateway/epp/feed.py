"""An engine's answer as the gateway in front shows it, in the place of a connection to the engine.

    head ──> UpstreamResponse.head_came
    chunk ─> [ waiting ] ──one at a time, when the reader asks for the next──> arrived ... completed
    nothing comes for longer than the reader's patience ──> failed

One at a time, since a gateway that shows an answer in parts (STREAMED) wants a reply to each: by the time the reader
asks for the next, all that the last one led to has been written.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from backends import Failure, UpstreamResponse
from gateway.types import Headers

MiB: Final = 1 << 20
MOST_WAITING_BYTES: Final = MiB
"""Shown and not read yet: then the stream is not read any more."""


class Feed:
    """Of one request. `handed` is called for each chunk that the reader gets (or nobody will get), with whether it said
    that it is the last, and `wanted` when the reader asks for the next."""

    is_used = False  # as every `Line` says: no connection of ours, so none is used again
    paused = False

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handed: Callable[[bool], None], wanted: Callable[[], None]
    ) -> None:
        self.loop = loop
        self._handed = handed
        self._wanted = wanted
        self._response: UpstreamResponse | None = None
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._is_asked = self._ends = self._is_due = False
        self.left = False
        """Whether nobody reads any more, or the reader was told that nothing comes."""
        self.expired = False
        self._timer: asyncio.TimerHandle | None = None
        self._head: tuple[int, Headers] | None = None
        self.patient = False
        """Whether the reader waits as long as it takes: nothing will be shown before the end."""

    def begin(self, response: UpstreamResponse, first_byte_s: float) -> None:
        """The request leaves; its answer is for `response`."""
        self._response = response
        self._expire(first_byte_s)

    def hand_over(self, response: UpstreamResponse) -> None:
        """The answer that has begun is for another reader, who has to know of its head."""
        self._response, self.left = response, False
        if self._head is not None:
            response.head_came(*self._head)

    def head(self, status: int, fields: Headers, *, ends: bool) -> None:
        """The head of the answer, as the client of engines would have it."""
        self.expire_never()
        self._head = status, fields
        if self._response is not None:
            self._response.head_came(status, fields)
            if ends:
                self.end()

    def chunk(self, data: bytes, *, ends: bool) -> None:
        """A part of the body."""
        if self.left:
            self._handed(ends)
            return
        self._waiting.append((data, ends))
        self._waiting_bytes += len(data)
        self._ends = ends
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self._room.clear()
        self._deliver_soon()

    def end(self) -> None:
        """The body is whole, and its last part was no sign of that."""
        self._ends = True
        self._deliver_soon()

    async def room(self) -> None:
        """Wait until not much waits for the reader."""
        await self._room.wait()

    # What the response calls.

    def resume(self) -> None:
        """Nothing is ever paused here."""

    def expire_after(self, patience_s: float) -> None:
        """The reader asks for the next part."""
        self._expire(patience_s)
        self._is_asked = True
        self._wanted()
        self._deliver_soon()

    def expire_never(self) -> None:
        """The reader does not wait."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def abort(self) -> None:
        """The reader has left: the rest is for nobody."""
        self.expire_never()
        self.left, self._response = True, None
        while self._waiting:
            self._handed(self._waiting.popleft()[1])
        self._room.set()

    def _expire(self, patience_s: float) -> None:
        self.expire_never()
        if not self.patient:
            self._timer = self.loop.call_later(patience_s, self._expired)

    def _expired(self) -> None:
        self._timer = None
        response = self._response
        if response is not None:
            self.expired = True
            self.abort()
            response.failed(Failure.SILENT)

    def _deliver_soon(self) -> None:
        """Not at once: who asks for a part is not waiting for it yet when it says so."""
        if self._is_asked and not self._is_due and (self._waiting or self._ends):
            self._is_due = True
            self.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_due = False
        response = self._response
        if response is None or not self._is_asked:
            return
        if self._waiting:
            data = self._next_part()
            if data:
                self._is_asked = False
                self.expire_never()
                response.arrived(data)
            elif self._waiting or not self._ends:
                self._wanted()
                self._deliver_soon()
                return
        if self._ends and not self._waiting:
            self.expire_never()
            self._response = None
            response.completed()

    def _next_part(self) -> bytes:
        """What has waited for longest, which the reader gets now."""
        data, ends = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        if self._waiting_bytes <= MOST_WAITING_BYTES // 2:
            self._room.set()
        self._handed(ends)
        return data
