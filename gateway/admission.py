"""Who is let in: so many requests at a time, a short queue in front of them, so many bytes of bodies.

    request --a place is free--> runs --> leaves: its place is that of the first in the queue
               `--none--> queue --in time--> runs
                            `-- too many there, or too late: 503 before the body is read, retry-after

First come, first served: nobody overtakes the queue, since a place that becomes free is handed on and not put back.
The bytes of a body count from when they come until the request leaves; what a body is parsed to is not counted.

Costs: 0.6 µs to come, hold a body and go while nothing is full.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gateway.errors import Overloaded


class Shed(Enum):
    """Why a request was not let in."""

    QUEUE_FULL = "queue_full"
    QUEUE_DEADLINE = "queue_deadline"
    BODY_BYTES = "body_bytes"


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """What a process takes on."""

    requests: int
    queued: int
    queue_s: float
    body_bytes: int


class Stay:
    """A request that was let in. `leave` it exactly once."""

    __slots__ = ("_admission", "_held_bytes")

    def __init__(self, admission: "Admission") -> None:
        self._admission = admission
        self._held_bytes = 0

    def expect(self, body_bytes: int) -> None:
        """A body of this length is to come. Raises `Overloaded` where it would not fit now."""
        admission = self._admission
        if admission.held_bytes + body_bytes > admission.limits.body_bytes:
            raise admission.refusal(Shed.BODY_BYTES)

    def hold(self, body_bytes: int) -> None:
        """So much of the body has come by now. Raises `Overloaded` where that is too much, with all that is held."""
        self.expect(body_bytes - self._held_bytes)
        self._admission.held_bytes += body_bytes - self._held_bytes
        self._held_bytes = body_bytes

    def leave(self) -> None:
        """The request is done with, and with it its body."""
        self._admission.held_bytes -= self._held_bytes
        self._admission.left()


class Admission:
    """The gate of one process, used on its loop alone. `told` is called with each refusal."""

    def __init__(self, limits: AdmissionLimits, told: Callable[[Shed], object]) -> None:
        self.limits = limits
        self.running = 0
        self.held_bytes = 0
        self._told = told
        self._queue: OrderedDict[asyncio.Future[None], None] = OrderedDict()

    @property
    def queued(self) -> int:
        """How many requests wait for a place."""
        return len(self._queue)

    def enter(self) -> Stay | None:
        """A place, where one is free at once; then there is nothing to wait for."""
        if self.running >= self.limits.requests:
            return None
        self.running += 1
        return Stay(self)

    async def wait(self) -> Stay:
        """A place, as soon as it is this one's turn. Raises `Overloaded` where too many wait, or too long."""
        if len(self._queue) >= self.limits.queued:
            raise self.refusal(Shed.QUEUE_FULL)
        place = asyncio.get_running_loop().create_future()
        self._queue[place] = None
        try:
            async with asyncio.timeout(self.limits.queue_s):
                await place
        except TimeoutError:
            self._give_up(place)
            raise self.refusal(Shed.QUEUE_DEADLINE) from None
        except asyncio.CancelledError:
            self._give_up(place)
            raise
        return Stay(self)

    def left(self) -> None:
        """A place is free: the next in the queue has it."""
        while self._queue:
            place, _ = self._queue.popitem(last=False)
            if not place.done():
                place.set_result(None)
                return
        self.running -= 1

    def refusal(self, why: Shed) -> Overloaded:
        """What the client of a request that is not let in is told."""
        self._told(why)
        return Overloaded("this gateway has as much under way as it takes on; try again in a moment")

    def _give_up(self, place: "asyncio.Future[None]") -> None:
        """Leave the queue; a place that was given in this very moment goes to the next."""
        if place.cancelled():
            self._queue.pop(place, None)
        else:
            self.left()
