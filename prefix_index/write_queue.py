"""Writes on their way to Redis: bounded, in order, dropped only where that cannot make the index claim too much.

    observe              full: not taken in. The index knows less than it could.
    forget               full: becomes a clear. Losing it would leave a claim that is known to be wrong.
    clear, raise         always taken in; they make all earlier writes of their holder moot, which leave the queue.

So the queue holds at most its limit and one ending per holder.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from prefix_index.redis_wire import Call


@dataclass(frozen=True, slots=True)
class Write:
    """One call on its way; `ending` where nothing that the holder had before matters after it."""

    holder: str
    call: Call
    ending: bool = False

    @property
    def size_bytes(self) -> int:
        """What it weighs, roughly: its chain."""
        return sum(len(part) for part in self.call.args if isinstance(part, bytes))


class WriteQueue:
    """First in, first out; `dropped` counts the writes that never reached Redis."""

    def __init__(self, *, max_writes: int, max_bytes: int) -> None:
        self._max_writes = max_writes
        self._max_bytes = max_bytes
        self._writes: deque[Write] = deque()
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def full(self) -> bool:
        """Whether the next observation would be dropped."""
        return len(self._writes) >= self._max_writes or self._bytes >= self._max_bytes

    def put(self, write: Write) -> bool:
        """Take a write in; False where there is no room. O(1), or O(queue) for an ending while full."""
        if self.full:
            if not write.ending:
                self.dropped += 1
                return False
            kept = [other for other in self._writes if other.holder != write.holder]
            self.dropped += len(self._writes) - len(kept)
            self._writes = deque(kept)
            self._bytes = sum(other.size_bytes for other in kept)
        self._writes.append(write)
        self._bytes += write.size_bytes
        return True

    def take(self, at_most: int) -> list[Write]:
        """The oldest writes, which leave the queue."""
        taken = [self._writes.popleft() for _ in range(min(at_most, len(self._writes)))]
        self._bytes -= sum(write.size_bytes for write in taken)
        return taken

    def give_back(self, writes: Iterable[Write]) -> None:
        """Return writes that were taken and not delivered, to the front and in their order."""
        for write in reversed(list(writes)):
            self._writes.appendleft(write)
            self._bytes += write.size_bytes
