"""Static batching: a batch begins together and ends together; nobody joins it on the way.

    continuous   a a a a a e e e e e        static    a a a a a . . . | e e e e e
                 b b b d d d d d f f                  b b b . . . . . | f f
                 c c c c c c c c g g                  c c c c c c c c | g g

A request that is done leaves its place empty until the longest of its batch is done, and who came meanwhile waits for
that. Kind to static batching in one point: an empty place costs nothing here, where real ones computed padding.

A gate in front of the engine's own scheduler, nothing more: it lets the next batch in when the last one is gone.
"""

from collections import deque
from collections.abc import Iterable

from backends.reference.scheduler import Scheduler, Slice
from backends.reference.sequence import Sequence


class StaticBatches:
    """Hands its scheduler `batch` requests at a time; the interface is the scheduler's."""

    def __init__(self, scheduler: Scheduler, batch: int) -> None:
        self._scheduler = scheduler
        self._batch = batch
        self.waiting: deque[Sequence] = deque()

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting) or self._scheduler.has_work

    def add(self, sequence: Sequence) -> None:
        """Queue a request for a later batch."""
        self.waiting.append(sequence)

    def plan(self) -> list[Slice]:
        """The slices of the next step; the first step of a batch takes it in."""
        if not self._scheduler.has_work:
            for _ in range(min(self._batch, len(self.waiting))):
                self._scheduler.add(self.waiting.popleft())
        return self._scheduler.plan()

    def commit(self, slices: Iterable[Slice]) -> None:
        """The slices ran."""
        self._scheduler.commit(slices)

    def remove(self, sequence: Sequence) -> None:
        """The request is finished."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            self._scheduler.remove(sequence)
