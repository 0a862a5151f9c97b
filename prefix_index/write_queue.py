"""Writes on their way to Redis: bounded, in order, dropped only where that cannot make the index claim too much.

    observe      full: not taken in. The index knows less than it could.
    forget       full: becomes a clear. Losing it would leave a claim that is known to be wrong.
    clear        always taken in; it makes all earlier writes of its holder moot, which leave the queue.

So the queue holds at most its limit and one ending per holder. Claims are runs of their own, so only the order of
writes about one claim of a holder matters, and a write is one with the last that waits about the same claim where it
leaves nothing of it to be said:

    observe a b        then  observe a b c      -->  observe a b c      a chain that grows is one write
    observe a b c      then  observe a b        -->  observe a b c      which was used as lately, as far as that counts
    observe a b c      then  forget  a b c, 0   -->  forget  a b c, 0   and of a speculation also from a later block on:
                                                                        it is taken back as far as this one made it
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Set
from itertools import islice
from typing import Final

import msgspec

from prefix_index.types import HASH_BYTES, Chain, Claim

NO_CHAIN = Chain(hashes=b"", block_size=1, prompt_tokens=0)
_CLAIMS: Final = tuple(Claim)
_SPECULATIVE: Final = Claim.SPECULATIVE


class Write(msgspec.Struct, gc=False):
    """One change on its way. `claim` is what it is about; None: all claims."""

    holder: str
    claim: Claim | None
    chain: Chain = NO_CHAIN
    from_block: int | None = None
    """The first block of the chain that is lost; None for an observation."""
    ending: bool = False
    """Whether nothing that the holder had before matters after it."""
    capacity: int | None = None
    generation: int | None = None
    """What an observation or an ending carries along."""
    moot: bool = False
    """Whether another write has taken its place."""

    @property
    def size_bytes(self) -> int:
        """What it weighs, roughly: its chain."""
        return len(self.chain.hashes)

    def is_like(self, other: "Write") -> bool:
        """Of two observations: whether they say the same but for the chain."""
        return self.capacity == other.capacity and self.generation == other.generation

    def leaves_nothing_of(self, other: "Write") -> bool:
        """Of a loss: whether the observation of the same claim before it may as well not have been made."""
        first = self.from_block or 0
        if first > 0 and self.claim is not _SPECULATIVE:
            return False
        lost = slice(first * HASH_BYTES, (first + 1) * HASH_BYTES)
        block = self.chain.hashes[lost]
        return len(block) > 0 and block == other.chain.hashes[lost]


class WriteQueue:
    """First in, first out; `dropped` counts the writes that never reached Redis."""

    def __init__(self, *, max_writes: int, max_bytes: int) -> None:
        self._max_writes = max_writes
        self._max_bytes = max_bytes
        self._writes: OrderedDict[int, Write] = OrderedDict()
        self._last: dict[tuple[str, Claim], int] = {}
        """The place of the last write about each claim of a holder that has one here."""
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
        """Take a write in; False where there is no room. O(chain), or O(queue) for an ending while full.

        Of two that become one, the one that leaves is `moot`.
        """
        if write.claim is not None:
            place = self._last.get((write.holder, write.claim))
            if place is not None and self._is_one(write, place):
                return True
        if self.full:
            if not write.ending:
                self.dropped += 1
                return False
            self._make_moot(write.holder)
        for name in _names(write):
            self._last[name] = self._next_place
        self._writes[self._next_place] = write
        self._next_place += 1
        self._came(write)
        return True

    def latest(self, at_most: int) -> list[Write]:
        """The last writes, oldest first; they stay. O(at_most)."""
        if len(self._writes) <= at_most:
            return [*self._writes.values()]
        return [*islice(reversed(self._writes.values()), at_most)][::-1]

    def take(self, at_most: int) -> list[Write]:
        """The oldest writes, which leave the queue."""
        taken: list[Write] = []
        for _ in range(min(at_most, len(self._writes))):
            place, write = self._writes.popitem(last=False)
            for name in _names(write):
                if self._last.get(name) == place:
                    del self._last[name]
            self._went(write)
            taken.append(write)
        return taken

    def give_back(self, writes: Iterable[Write]) -> None:
        """Return writes that were taken and not delivered, to the front and in their order."""
        for write in reversed(list(writes)):
            self._first_place -= 1
            self._writes[self._first_place] = write
            self._writes.move_to_end(self._first_place, last=False)
            for name in _names(write):
                self._last.setdefault(name, self._first_place)
            self._came(write)

    def _is_one(self, write: Write, place: int) -> bool:
        """Whether a write and the one at `place`, the last about the same claim, have become one."""
        other = self._writes[place]
        if other.from_block is not None or other.ending:
            return False
        mine, its = write.chain.hashes, other.chain.hashes
        if write.from_block is not None:
            if not write.leaves_nothing_of(other):
                return False
        elif not mine.startswith(its):
            write.moot = its.startswith(mine) and write.is_like(other)
            return write.moot
        elif not write.is_like(other):
            return False
        self._bytes += len(mine) - len(its)
        self._writes[place] = write
        other.moot = True
        return True

    def _make_moot(self, holder: str) -> None:
        moot = [place for place, write in self._writes.items() if write.holder == holder]
        for place in moot:
            self._went(self._writes.pop(place))
        for claim in _CLAIMS:
            self._last.pop((holder, claim), None)
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


def _names(write: Write) -> Iterable[tuple[str, Claim]]:
    if write.claim is not None:
        return ((write.holder, write.claim),)
    return [(write.holder, claim) for claim in _CLAIMS]
