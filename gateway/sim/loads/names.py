"""Names of blocks, made in bulk: 8 bytes each, and no Python object a block that outlives its call.

A recorded trace brings ids; a generator needs ids that nothing else has. Both become packed bytes by one call of
`array`, about 20 ns a block. The names of a load are small integers, not hashes: whoever compares them sees the same
equalities, and that is all that chains are for.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.sim.loads.errors import LoadImpossible
from prefix_index import HASH_BYTES


def pack(ids: Iterable[int]) -> bytes:
    """Ids as names. Raises OverflowError for an id that does not fit 8 bytes without a sign."""
    return array("Q", ids).tobytes()


def names_from(first: int, count: int) -> bytes:
    """`count` names in a row, beginning with `first`."""
    return array("Q", range(first, first + count)).tobytes()


def names_of_runs(runs: list[int], base: int = 0, skip: int = 0) -> bytes:
    """`[first, count, first, count, ...]` as names, each `base` higher, without the leading `skip`.

    O(blocks) at the speed of `array`. Raises OverflowError as `pack` does.
    """
    names = array("Q")
    for first, count in runs_after(runs, skip):
        names.extend(range(base + first, base + first + count))
    return names.tobytes()


def runs_after(runs: list[int], skip: int) -> Iterator[tuple[int, int]]:
    """The runs that are left when the leading `skip` ids are taken away."""
    for first, count in zip(runs[::2], runs[1::2], strict=True):
        gone = min(skip, count)
        skip -= gone
        if count > gone:
            yield first + gone, count - gone


@dataclass(slots=True)
class Names:
    """A source of names that were never given before: one counter a load."""

    next: int = 0

    def fresh(self, count: int) -> bytes:
        """`count` new names in a row. O(count)."""
        first = self.next
        self.next += count
        return names_from(first, count)

    def extend(self, names: bytes, blocks: int) -> bytes:
        """`names` cut or continued with new ones to `blocks` names."""
        have = len(names) // HASH_BYTES
        return names[: blocks * HASH_BYTES] if have >= blocks else names + self.fresh(blocks - have)


def require(holds: bool, what: str) -> None:
    """Raise LoadImpossible, saying what must hold, where it does not."""
    if not holds:
        raise LoadImpossible(f"no such load: {what}")
