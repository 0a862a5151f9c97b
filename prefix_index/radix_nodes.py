"""Nodes of the radix index and the order in which a holder would lose them.

    Node  one edge of the tree and who holds it        Seat  one claim of one holder, until it is cleared
    Hold  "this seat holds this node": a link in the seat's list from oldest to newest

    seat.ends <-> oldest <-> ... <-> newest <-> seat.ends          (a ring with one sentinel)

Within a seat a child is always older than its parent, so taking the oldest first takes tails first. Every change
here is O(1) in the number of nodes; a split is O(holders of the node).
"""

from typing import Generic

from prefix_index.types import HASH_BYTES, Claim, H

RANKS = {claim: rank for rank, claim in enumerate(Claim)}
"""Claims as small numbers: hashing an enum member costs more than all else that a match does for a seat."""


class Seat(Generic[H]):
    """One claim of one holder: how many blocks it holds, and in which order it would lose them."""

    __slots__ = ("blocks", "claim", "ends", "holder", "live", "rank")

    def __init__(self, holder: H, claim: Claim) -> None:
        self.holder = holder
        self.claim = claim
        self.rank = RANKS[claim]
        self.live = True
        self.blocks = 0
        self.ends: Hold[H] = Hold(Node(b"", 0, None), self)
        self.ends.older = self.ends.newer = self.ends

    def oldest(self) -> "Hold[H] | None":
        """What this seat loses next: its least recently used node, the deepest first; None when it holds nothing."""
        first = self.ends.newer
        return None if first is self.ends else first

    def holds_below(self, top: "Node[H]", at_most: int) -> "list[Node[H]] | None":
        """`top` and what this seat holds under it, parents first; None where it holds more than so many nodes in all.

        Newest first, parents come before their children.
        """
        found = {top: None}
        hold = self.ends.older
        for _ in range(at_most):
            if hold is self.ends:
                return list(found)
            if hold.node.parent in found:
                found[hold.node] = None
            hold = hold.older
        return list(found) if hold is self.ends else None

    def touch(self, hold: "Hold[H]", now_s: float) -> None:
        """Make a hold the newest of this seat, and its node used by somebody just now."""
        hold.used_s = hold.node.used_s = now_s
        hold.unlink()
        hold.link_after(self.ends.older)


class Hold(Generic[H]):
    """One seat's hold of one node, linked into the seat's order of use."""

    __slots__ = ("newer", "node", "older", "seat", "used_s")

    def __init__(self, node: "Node[H]", seat: Seat[H]) -> None:
        self.node = node
        self.seat = seat
        self.used_s = 0.0
        self.older: Hold[H] = self
        self.newer: Hold[H] = self

    def link_after(self, older: "Hold[H]") -> None:
        """Take the place just newer than `older`."""
        self.older, self.newer = older, older.newer
        older.newer.older = self
        older.newer = self

    def unlink(self) -> None:
        """Leave the order."""
        self.older.newer, self.newer.older = self.newer, self.older
        self.older = self.newer = self


class Node(Generic[H]):
    """One edge: `edge` holds the hashes of its blocks, `start` is the position of the first in the chain.

    `used_s` is when anybody used it last, by the clock of the index.
    """

    __slots__ = ("children", "edge", "holds", "parent", "start", "used_s")

    def __init__(self, edge: bytes, start: int, parent: "Node[H] | None") -> None:
        self.edge = edge
        self.start = start
        self.parent = parent
        self.used_s = 0.0
        self.children: set[Node[H]] = set()
        self.holds: dict[Seat[H], Hold[H]] = {}

    def __len__(self) -> int:
        """Blocks on the edge."""
        return len(self.edge) // HASH_BYTES

    @property
    def name(self) -> bytes:
        """The hash of the first block: where the node is found."""
        return self.edge[:HASH_BYTES]

    def common(self, hashes: bytes) -> int:
        """Blocks that the edge shares with the chain at its place: at least 1, as the name brought us here.

        One hash equal means all before it equal, so a binary search needs O(log blocks) comparisons.
        """
        base = self.start * HASH_BYTES
        high = min(len(self), len(hashes) // HASH_BYTES - self.start)
        low = 1
        while low < high:
            middle = (low + high + 1) // 2
            end = middle * HASH_BYTES
            if self.edge[end - HASH_BYTES : end] == hashes[base + end - HASH_BYTES : base + end]:
                low = middle
            else:
                high = middle - 1
        return low

    def only_holder_is(self, seat: Seat[H]) -> bool:
        """Whether nobody but this seat holds the node."""
        return len(self.holds) == 1 and seat in self.holds
