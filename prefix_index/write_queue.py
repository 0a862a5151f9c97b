"""Writes on their way to Redis: bounded, in order, dropped only where that cannot make the index claim too much.

    observe      full: not taken in. The index knows less than it could.
    forget       full: becomes a clear. Losing it would leave a claim that is known to be wrong.
    clear        always taken in; it makes all earlier writes of its holder moot, which leave the queue.

So the queue holds at most its limit and one ending per holder. An observation that extends the last one that waits for
its holder takes its place: a chain that grows block by block, as KV events tell it, is one write.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import islice

from prefix_index.redis_wire import Call
from prefix_index.types import Claim


@dataclass(frozen=True, slots=True)
class Write:
    """One call on its way; `ending` where nothing that the holder had before matters after it."""

    holder: str
    call: Call
    ending: bool = False
    claims: tuple[Claim, ...] = tuple(Claim)
    """What it is about."""
    hashes: bytes = b""
    """Its chain, where it is not ending."""
    from_block: int | None = None
    """The first block that is lost; None for an observation."""
    kind: tuple[object, ...] = ()
    """Of an observation: all that it says beside the chain. Those of one kind can be one."""

    @property
    def size_bytes(self) -> int:
        """What it weighs, roughly: its chain."""
        return sum(len(part) for part in self.call.args if isinstance(part, bytes))

    def extends(self, other: "Write") -> bool:
        """Whether this says all that `other` says."""
        return bool(self.kind) and self.kind == other.kind and self.hashes.startswith(other.hashes)


class WriteQueue:
    """First in, first out; `dropped` counts the writes that never reached Redis."""

    def __init__(self, *, max_writes: int, max_bytes: int) -> None:
        self._max_writes = max_writes
        self._max_bytes = max_bytes
        self._writes: OrderedDict[int, Write] = OrderedDict()
        self._last: dict[str, int] = {}
        """The place of the last write of each holder that has one here."""
        self._endings: Counter[str] = Counter()
        self._first_place = 0
        self._next_place = 0
        self._bytes = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def full(self) -> bool:
        """Whether the next observation would be dropped."""
        return len(self._writes) >= self._max_writes or self._bytes >= self._max_bytes

    @property
    def ending(self) -> Set[str]:
        """The holders for which an ending waits, at whatever place. O(1); changes with the queue."""
        return self._endings.keys()

    def put(self, write: Write) -> bool:
        """Take a write in; False where there is no room. O(chain), or O(queue) for an ending while full."""
        place = self._last.get(write.holder)
        if place is not None and write.extends(self._writes[place]):
            self._bytes += write.size_bytes - self._writes[place].size_bytes
            self._writes[place] = write
            return True
        if self.full:
            if not write.ending:
                self.dropped += 1
                return False
            self._make_moot(write.holder)
        self._last[write.holder] = self._next_place
        self._writes[self._next_place] = write
        self._next_place += 1
        self._came(write)
        return True

    def latest(self, at_most: int) -> list[Write]:
        """The last writes, oldest first; they stay. O(at_most)."""
        return [*islice(reversed(self._writes.values()), at_most)][::-1]

    def take(self, at_most: int) -> list[Write]:
        """The oldest writes, which leave the queue."""
        taken: list[Write] = []
        for _ in range(min(at_most, len(self._writes))):
            place, write = self._writes.popitem(last=False)
            if self._last[write.holder] == place:
                del self._last[write.holder]
            self._went(write)
            taken.append(write)
        return taken

    def give_back(self, writes: Iterable[Write]) -> None:
        """Return writes that were taken and not delivered, to the front and in their order."""
        for write in reversed(list(writes)):
            self._first_place -= 1
            self._writes[self._first_place] = write
            self._writes.move_to_end(self._first_place, last=False)
            self._last.setdefault(write.holder, self._first_place)
            self._came(write)

    def _make_moot(self, holder: str) -> None:
        moot = [place for place, write in self._writes.items() if write.holder == holder]
        for place in moot:
            self._went(self._writes.pop(place))
        self._last.pop(holder, None)
        self.dropped += len(moot)

    def _came(self, write: Write) -> None:
        self._bytes += write.size_bytes
        if write.ending:
            self._endings[write.holder] += 1

    def _went(self, write: Write) -> None:
        self._bytes -= write.size_bytes
        if write.ending:
            self._endings[write.holder] -= 1
            if not self._endings[write.holder]:
                del self._endings[write.holder]
