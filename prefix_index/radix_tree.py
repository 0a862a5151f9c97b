"""The tree of the radix index in process: how nodes are found, parted, joined, taken and given up.

    split   [a b c d] A B        ->   [a b] A B --- [c d] A B        where chains, or the coverages of two seats, part
    join    [a b] A  --- [c d] A ->   [a b c d] A                    where the same seats used both in the same calls

Neither changes what anybody holds, nor any order of use. Who may hold what, and for how long, is decided in `radix.py`.
"""

from typing import Generic

from prefix_index.radix_nodes import Hold, Node, Seat
from prefix_index.types import HASH_BYTES, H

MAX_NODES = 512
"""Nodes walked per call. Only a chain that parts from another at nearly every block needs more: an attack."""

_JOINED_PAIRS = 4
"""Pairs of nodes that one call joins: the next call goes on."""

_JOINED_HOLDERS = 8
"""Most holders of a node that is joined: each costs a look, and nodes of many are soon split again."""


class Tree(Generic[H]):
    """All nodes by name, and how many holds there are on them."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, Node[H]] = {}
        self.holds = 0

    def walk(self, hashes: bytes) -> tuple[list[Node[H]], int, bool]:
        """The nodes along a chain, how many blocks they share with it, and whether the cap cut the walk."""
        path: list[Node[H]] = []
        position, total = 0, len(hashes) // HASH_BYTES
        while position < total:
            node = self.nodes.get(_hash_at(hashes, position))
            if node is None:
                break
            if len(path) == MAX_NODES:
                return path, position, True
            path.append(node)
            taken = node.common(hashes)
            position += taken
            if taken < len(node):
                break
        return path, position, False

    def cover(self, seat: Seat[H], hashes: bytes) -> list[Node[H]]:
        """Give `seat` every node along the chain, making what is missing; returns the path."""
        path, position, truncated = self.walk(hashes)
        total = len(hashes) // HASH_BYTES
        if path:
            last = path[-1]
            taken = position - last.start
            # A chain that ends inside an edge its holder has already needs no split.
            if taken < len(last) and (position < total or seat not in last.holds):
                path[-1] = self.split(last, taken)
        for node in path:
            self._take(seat, node)
        if position < total and not truncated:
            self._grow(seat, path, hashes[position * HASH_BYTES :], position)
        return path

    def split(self, node: Node[H], at: int) -> Node[H]:
        """Part an edge after `at` blocks. `node` stays the tail, so its children need no change; returns the head."""
        head = Node(node.edge[: at * HASH_BYTES], node.start, node.parent)
        head.used_s = node.used_s
        if node.parent is not None:
            node.parent.children.remove(node)
            node.parent.children.add(head)
        node.edge = node.edge[at * HASH_BYTES :]
        node.start += at
        node.parent = head
        head.children.add(node)
        self.nodes[head.name] = head
        self.nodes[node.name] = node
        for seat, hold in node.holds.items():
            upper = head.holds[seat] = Hold(head, seat)
            upper.used_s = hold.used_s
            upper.link_after(hold)
        self.holds += len(node.holds)
        return head

    def join_up(self, path: list[Node[H]]) -> None:
        """Make one node of those at the end of a path that need not be two. O(holders), a few pairs at most."""
        for at in range(len(path) - 1, max(0, len(path) - 1 - _JOINED_PAIRS), -1):
            if not _are_one(path[at - 1], path[at]):
                return
            self._join(path[at - 1], path[at])
            path[at - 1] = path[at]

    def cut(self, leaf: Node[H], keep: int) -> None:
        """Shorten a leaf that one seat alone holds."""
        (seat,) = leaf.holds
        seat.blocks -= len(leaf) - keep
        leaf.edge = leaf.edge[: keep * HASH_BYTES]

    def drop(self, hold: Hold[H]) -> None:
        """End one hold of a node under which its seat holds nothing."""
        node = hold.node
        hold.unlink()
        hold.seat.blocks -= len(node)
        del node.holds[hold.seat]
        self.holds -= 1
        if not node.holds:
            del self.nodes[node.name]
            if node.parent is not None:
                node.parent.children.remove(node)

    def _take(self, seat: Seat[H], node: Node[H]) -> None:
        if seat not in node.holds:
            node.holds[seat] = Hold(node, seat)
            seat.blocks += len(node)
            self.holds += 1

    def _grow(self, seat: Seat[H], path: list[Node[H]], rest: bytes, start: int) -> None:
        parent = path[-1] if path else None
        if parent is not None and parent.only_holder_is(seat) and not parent.children:
            parent.edge += rest
            seat.blocks += len(rest) // HASH_BYTES
            return
        leaf = Node(rest, start, parent)
        self.nodes[leaf.name] = leaf
        if parent is not None:
            parent.children.add(leaf)
        self._take(seat, leaf)
        path.append(leaf)

    def _join(self, upper: Node[H], lower: Node[H]) -> None:
        """The lower node stays, so its children need no change."""
        del self.nodes[lower.name]
        lower.edge = upper.edge + lower.edge
        lower.start = upper.start
        lower.parent = upper.parent
        self.nodes[lower.name] = lower
        if upper.parent is not None:
            upper.parent.children.remove(upper)
            upper.parent.children.add(lower)
        for hold in upper.holds.values():
            hold.unlink()
        self.holds -= len(upper.holds)


def _are_one(upper: Node[H], lower: Node[H]) -> bool:
    """Whether a node and its only child are held by the same seats, side by side in the order of each."""
    if len(lower.holds) != len(upper.holds) or len(lower.holds) > _JOINED_HOLDERS or len(upper.children) > 1:
        return False
    return all(hold.newer is upper.holds[seat] for seat, hold in lower.holds.items())


def _hash_at(hashes: bytes, position: int) -> bytes:
    return hashes[position * HASH_BYTES : (position + 1) * HASH_BYTES]
