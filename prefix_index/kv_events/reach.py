"""How far the prefix of each block is to be had, what the index was told of it, and the difference of the two.

    level   2 0 . 0        the nearest memory that has the block (. = none)
    reach   2 2 3 3        the worst from the root to here: never less than the parent's
    told    D D - -        under which claims the index was told: never what the parent was not

After every batch: a block is told under the claim of its reach, and under none that is nearer. So what must be
forgotten and observed follows from the two arrays, whatever happened in between. Under claims that are farther than
its reach a block may or may not be told: who reads the index takes the better of the two anyway.
"""

from collections.abc import Iterable, Iterator

from prefix_index.kv_events.copies import LEVELS, NOWHERE, Copies
from prefix_index.kv_events.forest import CHAINED, Forest
from prefix_index.kv_events.types import Forget, Observe
from prefix_index.types import Claim

CLAIMS = (Claim.CONFIRMED, Claim.HOST, Claim.DISK)
"""The claim of each level."""


class Reach:
    """Reach and telling of the blocks of a forest."""

    __slots__ = ("_copies", "_forest", "_told", "_within", "reach")

    def __init__(self, forest: Forest, copies: Copies) -> None:
        self._forest = forest
        self._copies = copies
        self._told = bytearray()
        self._within = 0
        self.reach = bytearray()

    @property
    def size_bytes(self) -> int:
        """Memory of both arrays."""
        return len(self._told) + len(self.reach)

    @property
    def within(self) -> int:
        """Blocks that some claim reaches."""
        return self._within

    def make_room(self, slots: int) -> None:
        """Let there be all slots below `slots`; new ones are nowhere."""
        self._told += bytes(slots - len(self._told))
        self.reach += bytes([NOWHERE]) * (slots - len(self.reach))

    def is_out(self, slot: int) -> bool:
        """Whether no claim reaches the block."""
        return self.reach[slot] == NOWHERE

    def settle(self, touched: Iterable[int]) -> list[Forget | Observe]:
        """What to tell the index, after these slots were stored, removed, or given a chain. O(changed × depth)."""
        changed = self._spread(touched)
        changes: list[Forget | Observe] = []
        for level in range(LEVELS):
            changes += self._forgets(changed, level)
        wanted = [slot for slot in changed if self.reach[slot] < NOWHERE and not self._is_told(slot, self.reach[slot])]
        reach, parent = self.reach, self._forest.parent
        covered = {parent[slot] for slot in wanted if parent[slot] >= 0 and reach[parent[slot]] == reach[slot]}
        changes += self._observes(slot for slot in wanted if slot not in covered)
        return changes

    def retell(self) -> list[Observe]:
        """All there is to tell to an index that knows nothing. O(blocks + leaves × depth)."""
        forest, reach = self._forest, self.reach
        self._told = bytearray(len(self._told))
        covered = bytearray(len(reach))
        slots = [slot for slot in range(forest.slots) if reach[slot] < NOWHERE]
        for slot in slots:
            parent = forest.parent[slot]
            if parent >= 0 and reach[parent] == reach[slot]:
                covered[parent] = 1
        return list(self._observes(slot for slot in slots if not covered[slot]))

    def _spread(self, touched: Iterable[int]) -> list[int]:
        """Compute reach anew at these slots and wherever it changes below them; returns the slots that changed."""
        reach, child, after = self.reach, self._forest.child, self._forest.after
        changed: dict[int, None] = {}
        for first in touched:
            # What changed once follows its parent from then on.
            if first in changed:
                continue
            waiting = [first]
            while waiting:
                slot = waiting.pop()
                now = self._computed(slot)
                if now == reach[slot]:
                    continue
                self._within += (now < NOWHERE) - (reach[slot] < NOWHERE)
                reach[slot] = now
                changed[slot] = None
                below = child[slot]
                while below >= 0:
                    waiting.append(below)
                    below = after[below]
        return list(changed)

    def _computed(self, slot: int) -> int:
        forest = self._forest
        if forest.state[slot] != CHAINED:
            return NOWHERE
        parent = forest.parent[slot]
        above = self.reach[parent] if parent >= 0 else 0
        return above if above == NOWHERE else max(above, self._copies.level(slot))

    def _is_told(self, slot: int, level: int) -> bool:
        return bool(self._told[slot] & (1 << level))

    def _is_lost(self, slot: int, level: int) -> bool:
        return self._is_told(slot, level) and self.reach[slot] > level

    def _forgets(self, changed: Iterable[int], level: int) -> Iterator[Forget]:
        """One for each topmost block of ours that is lost; where a twin has it still, that inherits what was told."""
        forest = self._forest
        lost = [slot for slot in changed if self._is_lost(slot, level)]
        named: set[int] = set()
        waiting = [slot for slot in lost if forest.parent[slot] < 0 or not self._is_lost(forest.parent[slot], level)]
        while waiting:
            slot = waiting.pop()
            heir = next((twin for twin in forest.twins(slot) if self.reach[twin] <= level), None)
            if forest.count[slot] and heir is None:
                if forest.last[slot] not in named:
                    named.add(forest.last[slot])
                    yield Forget(forest.chain(slot), forest.start(slot) // forest.block_size, CLAIMS[level])
                continue
            if heir is not None:
                self._tell(heir, level)
            waiting.extend(child for child in forest.children(slot) if self._is_lost(child, level))
        for slot in lost:
            self._told[slot] &= ~(1 << level)

    def _observes(self, ends: Iterable[int]) -> Iterator[Observe]:
        """One for each end of a run that says something new."""
        for end in ends:
            level = self.reach[end]
            if self._tell(end, level):
                yield Observe(self._forest.chain(end), CLAIMS[level])

    def _tell(self, slot: int, level: int) -> bool:
        """Note that all up to this slot is told; returns whether any block of ours was not."""
        forest, is_new = self._forest, False
        while slot >= 0 and not self._is_told(slot, level):
            self._told[slot] |= 1 << level
            is_new = is_new or forest.count[slot] > 0
            slot = forest.parent[slot]
        return is_new
