"""The blocks of one cache as a forest: arrays indexed by small numbers, no Python object for a block.

    engine's hash -> slot              slot -> parent, first child, siblings
    our hash      -> slots             slot -> end, count, last: which of our blocks it completes, and their hashes
                                       slot -> state: does it have a chain of ours?

    tokens        0       16      32      48                blocks of ours: 16
    one of 32     |---------------|                         completes 2: count 2, end 32
    four of 8     |---|---|---|---|                         complete 0, 1, 0, 1: the second of each pair

A slot's chain is read by walking up to the root. Engine blocks need not begin where ours do: what a slot holds of an
unfinished block of ours stays with it (`_open`), and its descendants finish that block. Most engines' blocks are ours
or a multiple of them, and then there is nothing of that.

Several slots may stand for one chain (*twins*): an engine that hashes more than tokens tell us, such as a draft model's
look-ahead, names one chain twice. The table of our hashes finds them.

Memory, with the mirror's other arrays, measured at a million blocks: 63 bytes each where they are ours, 8 more for each
further one of ours in them.
"""

from array import array
from collections.abc import Iterator
from struct import pack, unpack

from prefix_index.blocks import hashes_after
from prefix_index.kv_events.slot_table import SlotTable
from prefix_index.types import TOKEN_BYTES, Chain

ROOT = -1
"""The parent of the first block of a prompt; also: no child, no sibling."""
UNKNOWN = -2
"""The parent of a block that was only heard of as a parent."""
NONE = -1


FREE = 0
"""State of a slot without a block."""
ORPHAN = 1
"""State of a block whose chain is unknown, since a block before it is."""
OPAQUE = 2
"""State of a block whose chain is not to be known from tokens, nor that of any below: media, a root that nobody has, a
hash that stands for two blocks."""
CHAINED = 3
"""State of a block whose chain is known."""
STATES = 4


WIDEST_ROW = 16
"""Numbers in a row. All rows are as wide as the widest, so the few wider ones are kept apart."""


class Rows:
    """A row of numbers for each slot, as wide as the widest so far, up to `WIDEST_ROW`; wider ones stand apart."""

    __slots__ = ("_numbers", "_slots", "_wide", "width")

    def __init__(self, typecode: str) -> None:
        self._numbers = array(typecode)
        self._slots = 0
        self._wide: dict[int, array[int]] = {}
        self.width = 0

    @property
    def size_bytes(self) -> int:
        """Memory of all rows."""
        numbers = len(self._numbers) + sum(map(len, self._wide.values()))
        return numbers * self._numbers.itemsize

    def reach(self, slots: int) -> None:
        """Make rows for that many slots."""
        self._numbers.frombytes(bytes((slots - self._slots) * self.width * self._numbers.itemsize))
        self._slots = slots

    def put(self, slot: int, numbers: "array[int]") -> None:
        """Set the beginning of a row. O(all rows) where it is wider than any before."""
        self._wide.pop(slot, None)
        if len(numbers) > WIDEST_ROW:
            self._wide[slot] = numbers
            return
        if len(numbers) > self.width:
            self._widen(len(numbers))
        start = slot * self.width
        self._numbers[start : start + len(numbers)] = numbers

    def get(self, slot: int, count: int) -> "array[int]":
        """The first `count` numbers of a row."""
        if slot in self._wide:
            return self._wide[slot][:count]
        start = slot * self.width
        return self._numbers[start : start + count]

    def drop(self, slot: int) -> None:
        """Nobody asks for this row again before it is put."""
        self._wide.pop(slot, None)

    def _widen(self, width: int) -> None:
        wider = array(self._numbers.typecode, bytes(self._slots * width * self._numbers.itemsize))
        for column in range(self.width):
            wider[column::width] = self._numbers[column :: self.width]
        self._numbers, self.width = wider, width


class Forest:
    """Blocks and their chains. What the cache holds of them is the mirror's business.

    `block_size` is ours, in tokens. Arrays are public to their one user, the mirror, which reads them in its loops.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.names = SlotTable()
        self._ours = SlotTable()
        self.last = self._ours.keys
        """Our hash of the last whole block at or before the slot's end; of a chain's beginning, its root's."""
        self.parent = array("i")
        self.child = array("i")
        self.after = array("i")
        self._before = array("i")
        self.state = bytearray()
        self.end = array("I")
        """Tokens of the chain up to and with this slot."""
        self.count = array("H")
        """Blocks of ours that end within this slot."""
        self._inner = Rows("Q")
        """Our hashes of those but the last."""
        self._open = Rows("I")
        """The slot's own tokens of the block of ours that it leaves unfinished."""
        self._free = NONE

    def __len__(self) -> int:
        """Slots in use."""
        return self.names.used

    @property
    def slots(self) -> int:
        """Slots there are, in use or not: every slot is below."""
        return len(self.parent)

    @property
    def size_bytes(self) -> int:
        """Memory of all arrays."""
        arrays = (self.parent, self.child, self.after, self._before, self.end, self.count)
        rows = self._inner.size_bytes + self._open.size_bytes + len(self.state)
        return sum(len(a) * a.itemsize for a in arrays) + rows + self.names.size_bytes + self._ours.size_bytes

    def new(self, name: int) -> int:
        """A slot for an engine's block that has none: an orphan of unknown parent."""
        if self._free == NONE:
            self._grow()
        slot = self._free
        self._free = self.after[slot]
        self.names.put(slot, name)
        self.parent[slot] = UNKNOWN
        self.child[slot] = self.after[slot] = self._before[slot] = NONE
        self.state[slot] = ORPHAN
        return slot

    def drop(self, slot: int) -> None:
        """Free a slot without children."""
        if self.parent[slot] >= 0:
            self._unlink(slot)
        if self.count[slot]:
            self._ours.drop(slot)
            self.count[slot] = 0
        self._inner.drop(slot)
        self._open.drop(slot)
        self.names.drop(slot)
        self.state[slot] = FREE
        self.after[slot], self._free = self._free, slot

    def link(self, slot: int, parent: int) -> None:
        """Give a slot of unknown parent its parent, or the root."""
        self.parent[slot] = parent
        if parent >= 0:
            first = self.child[parent]
            self.after[slot], self._before[slot] = first, NONE
            if first != NONE:
                self._before[first] = slot
            self.child[parent] = slot

    def children(self, slot: int) -> Iterator[int]:
        """The children of a slot; those of the root are not linked."""
        child = self.child[slot]
        while child != NONE:
            yield child
            child = self.after[child]

    def is_above(self, slot: int, other: int) -> bool:
        """Whether `slot` is `other` or an ancestor of it. O(depth)."""
        while other >= 0 and other != slot:
            other = self.parent[other]
        return other == slot

    def start(self, slot: int) -> int:
        """Tokens of the chain before this slot."""
        parent = self.parent[slot]
        return self.end[parent] if parent >= 0 else 0

    def fix_chain(self, slot: int, tokens: bytes, before: int) -> None:
        """The slot's chain goes on from its parent's, or from the hash `before` at the root, by these token ids.

        Once for each slot. O(tokens), and O(slots in one block of ours) where the slot begins within one.
        """
        parent = self.parent[slot]
        start, ours = 0, self.block_size
        if parent >= 0:
            start, before = self.end[parent], self.last[parent]
        known = self._open_tokens(parent, start % ours)
        end = start + len(tokens) // TOKEN_BYTES
        count = end // ours - start // ours
        self.end[slot], self.count[slot] = end, count
        if rest := end % ours:
            self._open.put(slot, array("I", tokens[-rest * TOKEN_BYTES :]))
        if not count:
            self.last[slot] = before
            return
        block_bytes = ours * TOKEN_BYTES
        packed = hashes_after(before, (known + tokens)[: count * block_bytes], block_bytes)
        *inner, last = unpack(f"<{count}Q", packed)
        if inner:
            self._inner.put(slot, array("Q", inner))
        self._ours.put(slot, last)

    def twins(self, slot: int) -> Iterator[int]:
        """The slots whose last block of ours is that of this one, itself among them; none where it completes none."""
        return self._ours.find_all(self.last[slot]) if self.count[slot] else iter(())

    def chain(self, slot: int) -> Chain:
        """The chain up to and with this slot. O(depth)."""
        hashes: list[int] = []
        parent, count, last = self.parent, self.count, self.last
        while slot >= 0:
            if count[slot]:
                hashes.append(last[slot])
                if count[slot] > 1:
                    hashes.extend(reversed(self._inner.get(slot, count[slot] - 1)))
            slot = parent[slot]
        hashes.reverse()
        return Chain(pack(f"<{len(hashes)}Q", *hashes), self.block_size, len(hashes) * self.block_size)

    def _open_tokens(self, slot: int, tokens: int) -> bytes:
        """The last `tokens` up to the end of a slot, all of one block of ours. O(slots that share it)."""
        parts: list[bytes] = []
        while tokens:
            own = min(tokens, self.end[slot] - self.start(slot))
            parts.append(self._open.get(slot, own).tobytes())
            tokens -= own
            slot = self.parent[slot]
        return b"".join(reversed(parts))

    def _unlink(self, slot: int) -> None:
        before, after = self._before[slot], self.after[slot]
        if before == NONE:
            self.child[self.parent[slot]] = after
        else:
            self.after[before] = after
        if after != NONE:
            self._before[after] = before

    def _grow(self) -> None:
        old = self.slots
        new = old + max(64, old // 8)
        for numbers in (self.parent, self.child, self._before, self.end):
            numbers.frombytes(bytes((new - old) * numbers.itemsize))
        self.count.frombytes(bytes((new - old) * self.count.itemsize))
        for keys in (self.names.keys, self.last):
            keys.frombytes(bytes((new - old) * keys.itemsize))
        self.state += bytes(new - old)
        self._inner.reach(new)
        self._open.reach(new)
        self.after.extend(range(old + 1, new + 1))
        self.after[new - 1] = self._free
        self._free = old
