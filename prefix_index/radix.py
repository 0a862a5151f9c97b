"""The radix index in process: which holder has how much of a prompt cached.

    chains observed                     the tree
      A holds a b c d e                   [a b] A B C --+-- [c d e]  A
      B holds a b x y                                   +-- [x y]    B
      C holds a b
                                        match(a b c d z) = {A: 4, B: 2, C: 2}

Each hash names its block and all before it, so **a node is found by the hash of the first block on its edge**: to
walk, look up `chain[i]`, compare the edge, go on at `chain[i + len(edge)]`. Edges are packed bytes, 8 a block; no
Python object per block exists.

Invariants (`check` walks all of them):
  - who holds a node holds all of its edge, and holds its parent: a match is a leading run by construction;
  - every node has a holder; a node's parent ends exactly where the node starts;
  - in each holder's order of use a child is older than its parent, so the oldest hold is always a tail.
An edge is split where chains, or the coverages of two holders, part. A leaf of one holder grows and shrinks in place,
so that a chat that grows turn by turn stays one node.

A *generation* (`Seat`) makes `clear` and `raise_generation` O(1): the old seat stops counting at once, and later
writes give its nodes back a few at a time.

Costs, for n nodes on the path (at most `MAX_NODES`): match and observe O(n log edge), independent of how many holders
share the path except where their coverage ends; a split O(holders of that node). What a call reclaims is bounded too.
The shared index in Redis is the same structure; this one is its stand-in, the simulator's index, and pure: no clock, no
dice, no I/O. Recency is the order of calls.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic

from prefix_index.radix_check import broken_invariants
from prefix_index.radix_nodes import Hold, Node, Seat
from prefix_index.types import HASH_BYTES, Chain, Evidence, H, Match

MAX_NODES = 512
"""Nodes walked per call. Only a chain that parts from another at nearly every block needs more: an attack."""

MAX_FORGOTTEN_NODES = 512
"""Nodes visited by one `forget`; a holder that lost a block with more than this below it starts anew instead."""

DEFAULT_CAPACITY_BLOCKS = 1 << 20
"""Capacity of a holder that nobody described: 16 M tokens in blocks of 16."""

_RECLAIMED_NODES = 64


class RadixIndex(Generic[H]):
    """Leading runs per holder, in process. Plain calls on one thread; each leaves all invariants whole."""

    def __init__(self, *, capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS) -> None:
        self._default_capacity_blocks = capacity_blocks
        self._capacity_blocks: dict[H, int] = {}
        self._generations: dict[H, int] = {}
        self._nodes: dict[bytes, Node[H]] = {}
        self._seats: dict[H, Seat[H]] = {}
        self._retired: deque[Seat[H]] = deque()

    def match(self, chain: Chain) -> Match[H]:
        """The leading run of `chain` at each holder that has one. Reads only; `loads` stay empty."""
        path, walked, truncated = self._walk(chain.hashes)
        blocks: dict[H, int] = {}
        seen = 0
        end = walked
        for node in reversed(path):
            # Holders only grow towards the root, so an equal count means the same holders: nothing to look at.
            if len(node.holds) > seen:
                seen = len(node.holds)
                for seat in node.holds:
                    if seat.live:
                        blocks.setdefault(seat.holder, end)
            end = node.start
        return Match(blocks=blocks, walked_blocks=walked, truncated=truncated)

    def observe(self, holder: H, chain: Chain, evidence: Evidence = Evidence.CONFIRMED) -> int:
        """Record that `holder` has all of `chain`, and how recently. Returns the blocks that were new.

        Both kinds of evidence count as coverage for now. Beyond the holder's capacity its least recently used tails
        go, to 1/64 below the capacity so that not every call has to evict; the work of one call is bounded, so a
        holder may stand above its capacity for a few calls.
        """
        del evidence
        self._reclaim()
        hashes = chain.hashes
        if not hashes:
            return 0
        seat = self._seat(holder)
        before = seat.blocks
        path = self._cover(seat, hashes)
        for node in reversed(path):
            seat.touch(node.holds[seat])
        added = seat.blocks - before
        capacity = self.capacity_of(holder)
        if seat.blocks > capacity:
            self._shed(seat, capacity - capacity // 64, _RECLAIMED_NODES + 2 * len(path))
        return added

    def forget(self, holder: H, chain: Chain, from_block: int) -> int:
        """`holder` lost `chain[from_block]`, and with it all that comes after, on every branch. Returns blocks lost.

        Nothing happens where the holder was not known to have that block. O(nodes lost), bounded: a holder that lost
        a block with more than `MAX_FORGOTTEN_NODES` nodes below it has lost next to everything, and starts anew.
        """
        self._reclaim()
        seat = self._seats.get(holder)
        lost = self._holding(seat, chain, from_block)
        if seat is None or lost is None:
            return 0
        before = seat.blocks
        if from_block > lost.start:
            if lost.only_holder_is(seat) and not lost.children:
                self._cut(lost, from_block - lost.start)
                return before - seat.blocks
            self._split(lost, from_block - lost.start)
        below = self._below(seat, lost)
        if below is None:
            self._retire(seat)
            return before
        for node in reversed(below):
            self._drop(node.holds[seat])
        return before - seat.blocks

    def evict(self, holder: H, to_blocks: int) -> int:
        """Take tails from `holder`, least recently used first, until it has `to_blocks`. Returns what it has then."""
        self._reclaim()
        seat = self._seats.get(holder)
        if seat is None:
            return 0
        self._shed(seat, to_blocks, len(self._nodes))
        return seat.blocks

    def clear(self, holder: H) -> None:
        """`holder` has nothing any more. O(1) now, the rest with later writes."""
        self._reclaim()
        seat = self._seats.get(holder)
        if seat is not None:
            self._retire(seat)

    def raise_generation(self, holder: H) -> int:
        """`holder` was restarted: what it had is gone. Returns its new generation, counted from 0."""
        self.clear(holder)
        self._generations[holder] = self._generations.get(holder, 0) + 1
        return self._generations[holder]

    def set_capacity(self, holder: H, blocks: int) -> None:
        """Set how many blocks `holder` can keep; the next `observe` enforces it."""
        self._capacity_blocks[holder] = blocks

    def capacity_of(self, holder: H) -> int:
        """How many blocks `holder` can keep."""
        return self._capacity_blocks.get(holder, self._default_capacity_blocks)

    def blocks_of(self, holder: H) -> int:
        """How many blocks `holder` is known to have. O(1)."""
        seat = self._seats.get(holder)
        return 0 if seat is None else seat.blocks

    def holders(self) -> Iterable[H]:
        """Everyone who is known to have, or to have had, a block in the present generation."""
        return self._seats.keys()

    def _seat(self, holder: H) -> Seat[H]:
        seat = self._seats.get(holder)
        if seat is None:
            seat = self._seats[holder] = Seat(holder)
        return seat

    def _walk(self, hashes: bytes) -> tuple[list[Node[H]], int, bool]:
        """The nodes along a chain, how many blocks they share with it, and whether the cap cut the walk."""
        path: list[Node[H]] = []
        position, total = 0, len(hashes) // HASH_BYTES
        while position < total:
            node = self._nodes.get(_hash_at(hashes, position))
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

    def _cover(self, seat: Seat[H], hashes: bytes) -> list[Node[H]]:
        """Give `seat` every node along the chain, making what is missing; returns the path."""
        path, position, truncated = self._walk(hashes)
        total = len(hashes) // HASH_BYTES
        if path:
            last = path[-1]
            taken = position - last.start
            # A chain that ends inside an edge its holder has already needs no split.
            if taken < len(last) and (position < total or seat not in last.holds):
                path[-1] = self._split(last, taken)
        for node in path:
            self._take(seat, node)
        if position == total or truncated:
            return path
        rest = hashes[position * HASH_BYTES :]
        parent = path[-1] if path else None
        if parent is not None and parent.only_holder_is(seat) and not parent.children:
            parent.edge += rest
            seat.blocks += len(rest) // HASH_BYTES
            return path
        leaf = Node(rest, position, parent)
        self._nodes[leaf.name] = leaf
        if parent is not None:
            parent.children.add(leaf)
        self._take(seat, leaf)
        path.append(leaf)
        return path

    def _take(self, seat: Seat[H], node: Node[H]) -> None:
        if seat not in node.holds:
            node.holds[seat] = Hold(node, seat)
            seat.blocks += len(node)

    def _split(self, node: Node[H], at: int) -> Node[H]:
        """Part an edge after `at` blocks. `node` stays the tail, so its children need no change; returns the head."""
        head = Node(node.edge[: at * HASH_BYTES], node.start, node.parent)
        if node.parent is not None:
            node.parent.children.remove(node)
            node.parent.children.add(head)
        node.edge = node.edge[at * HASH_BYTES :]
        node.start += at
        node.parent = head
        head.children.add(node)
        self._nodes[head.name] = head
        self._nodes[node.name] = node
        for seat, hold in node.holds.items():
            upper = head.holds[seat] = Hold(head, seat)
            upper.link_after(hold)
        return head

    def _cut(self, leaf: Node[H], keep: int) -> None:
        """Shorten a leaf that one seat alone holds."""
        (seat,) = leaf.holds
        seat.blocks -= len(leaf) - keep
        leaf.edge = leaf.edge[: keep * HASH_BYTES]

    def _drop(self, hold: Hold[H]) -> None:
        """End one hold of a node under which its seat holds nothing."""
        node = hold.node
        hold.unlink()
        hold.seat.blocks -= len(node)
        del node.holds[hold.seat]
        if not node.holds:
            del self._nodes[node.name]
            if node.parent is not None:
                node.parent.children.remove(node)

    def _holding(self, seat: Seat[H] | None, chain: Chain, block: int) -> Node[H] | None:
        """The node in which `seat` holds `chain[block]`."""
        path, walked, _ = self._walk(chain.hashes)
        if seat is None or not 0 <= block < walked:
            return None
        node = next(node for node in path if node.start + len(node) > block)
        return node if seat in node.holds else None

    def _below(self, seat: Seat[H], top: Node[H]) -> list[Node[H]] | None:
        """`top` and what `seat` holds under it, parents first; None where that takes more visits than allowed."""
        found = [top]
        visits = 1
        for node in found:
            visits += len(node.children)
            if visits > MAX_FORGOTTEN_NODES:
                return None
            found.extend(child for child in node.children if seat in child.holds)
        return found

    def _shed(self, seat: Seat[H], to_blocks: int, max_nodes: int) -> None:
        for _ in range(max_nodes):
            hold = seat.oldest()
            if hold is None or seat.blocks <= to_blocks:
                return
            node, excess = hold.node, seat.blocks - to_blocks
            if len(node) > excess:
                if node.only_holder_is(seat):
                    self._cut(node, len(node) - excess)
                    return
                self._split(node, len(node) - excess)
            self._drop(node.holds[seat])

    def _retire(self, seat: Seat[H]) -> None:
        seat.live = False
        del self._seats[seat.holder]
        if seat.blocks:
            self._retired.append(seat)

    def _reclaim(self) -> None:
        """Give back a few nodes of a generation that ended."""
        if not self._retired:
            return
        seat = self._retired[0]
        self._shed(seat, 0, _RECLAIMED_NODES)
        if not seat.blocks:
            self._retired.popleft()

    def check(self) -> list[str]:
        """Every broken invariant, in words; empty when sound. O(nodes × holders): for tests and audits."""
        return broken_invariants(self._nodes, [*self._seats.values(), *self._retired])


def _hash_at(hashes: bytes, position: int) -> bytes:
    return hashes[position * HASH_BYTES : (position + 1) * HASH_BYTES]
