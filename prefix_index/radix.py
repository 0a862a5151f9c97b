"""The radix index in process: which holder has how much of a prompt cached.

    chains observed                     the tree
      A holds a b c d e                   [a b] A B C --+-- [c d e]  A
      B holds a b x y                                   +-- [x y]    B
      C holds a b
                                        match(a b c d z) = {A: 4, B: 2, C: 2}

Each hash names its block and all before it, so **a node is found by the hash of the first block on its edge**: to
walk, look up `chain[i]`, compare the edge, go on at `chain[i + len(edge)]`. Edges are packed bytes, 8 a block; no
Python object per block exists.

Each claim of a holder (`Claim`) is a *seat* of its own: a leading run, an order of use, a count. The tree knows seats,
not claims; only speculation is special, as it counts for a short while (`speculative_s`).

Invariants (`check` walks all of them):
  - who holds a node holds all of its edge, and holds its parent: a match is a leading run by construction;
  - every node has a holder; a node's parent ends exactly where the node starts;
  - in each seat's order of use a child is older than its parent, so the oldest hold is always a tail.
An edge is split where chains, or the coverages of two seats, part, and joined again where that is over. A leaf of one
seat grows and shrinks in place. So a chat that grows turn by turn, speculated and then confirmed, stays one node.

`clear` is O(1): the old seat stops counting at once, and later writes give its nodes back a few at a time. What is
held in all is bounded (`max_holds`): beyond, the largest seats lose their oldest tails.

Costs, for n nodes on the path (at most `MAX_NODES`): match and observe O(n log edge), independent of how many holders
share the path except where their coverage ends; a split O(holders of that node). What a call reclaims is bounded too.
The shared index in Redis is the same structure; this one is its stand-in, the simulator's index, and pure: its clock is
an argument, and where there is none, recency is the order of calls.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from prefix_index.radix_check import broken_invariants
from prefix_index.radix_nodes import Node, Seat
from prefix_index.radix_tree import MAX_NODES, Tree
from prefix_index.types import Chain, Claim, H, Match

__all__ = [
    "DEFAULT_CAPACITY_BLOCKS",
    "IN_ENGINE_MEMORY",
    "MAX_FORGOTTEN_NODES",
    "MAX_NODES",
    "SPECULATIVE_S",
    "RadixIndex",
]

MAX_FORGOTTEN_NODES = 512
"""Nodes visited by one `forget`; a seat that holds more, and lost a block with more below it, starts anew instead."""

DEFAULT_CAPACITY_BLOCKS = 1 << 20
"""Capacity of a holder that nobody described: 16 M tokens in blocks of 16."""

DEFAULT_MAX_HOLDS = 1 << 17
"""Holds in all, about 1 KB each where prompts share nothing."""

IN_ENGINE_MEMORY = (Claim.SPECULATIVE, Claim.CONFIRMED)
"""Claims on the memory that a holder computes from, whose capacity is known; the others have the default capacity."""

SPECULATIVE_S = 600.0
"""How long a speculation counts that nobody renews: as long as an engine may take to its first byte. A prompt of
800,000 tokens is computed for minutes, and with less its next turn would be computed again elsewhere."""

_RECLAIMED_NODES = 64
_KEPT_CAPACITIES = 4096


class RadixIndex(Generic[H]):
    """Leading runs per holder and claim, in process. Plain calls on one thread; each leaves all invariants whole.

    `clock` gives seconds; without it ages are unknown and speculation does not expire.
    """

    def __init__(
        self,
        *,
        capacity_blocks: int = DEFAULT_CAPACITY_BLOCKS,
        clock: Callable[[], float] | None = None,
        speculative_s: float = SPECULATIVE_S,
        max_holds: int = DEFAULT_MAX_HOLDS,
    ) -> None:
        self._default_capacity_blocks = capacity_blocks
        self._capacity_blocks: dict[H, int] = {}
        self._clock = clock
        self._speculative_s = speculative_s
        self._max_holds = max_holds
        self._tree: Tree[H] = Tree()
        self._seats: dict[tuple[H, Claim], Seat[H]] = {}
        self._short_lived: deque[Seat[H]] = deque()
        self._retired: deque[Seat[H]] = deque()

    def match(self, chain: Chain) -> Match[H]:
        """The leading run of `chain` at each holder that has one. Reads only; `loads` stay empty."""
        path, walked, truncated = self._tree.walk(chain.hashes)
        runs: tuple[dict[H, int], ...] = ({}, {}, {}, {})
        ages_s: dict[H, float] = {}
        now_s = self._now_s()
        seen, end = 0, walked
        for node in reversed(path):
            # Seats only grow towards the root, so an equal count means the same seats: nothing to look at.
            if len(node.holds) > seen:
                seen = len(node.holds)
                for seat, hold in node.holds.items():
                    if not seat.live:
                        continue
                    if seat.claim is Claim.SPECULATIVE and self._has_expired(hold.used_s, now_s):
                        seen -= 1  # it may be younger further up
                    elif seat.holder not in runs[seat.rank]:
                        runs[seat.rank][seat.holder] = end
                        if seat.claim is Claim.CONFIRMED:
                            ages_s[seat.holder] = now_s - node.used_s
            end = node.start
        speculative, confirmed, host, disk = runs
        known_ages_s = {} if self._clock is None else ages_s
        return Match(confirmed, {}, walked, truncated, speculative, host, disk, known_ages_s)

    def observe(self, holder: H, chain: Chain, claim: Claim = Claim.CONFIRMED) -> int:
        """Record that `holder` has all of `chain`, and how recently. Returns the blocks that were new to this claim.

        Beyond the holder's capacity the least recently used tails of the claim go, to 1/64 below the capacity so that
        not every call has to evict; the work of one call is bounded, so a holder may stand above its capacity for a
        few calls.
        """
        self._reclaim()
        if not chain.hashes:
            return 0
        seat = self._seat(holder, claim)
        if claim is Claim.SPECULATIVE:
            self._expire(seat)
        before = seat.blocks
        path = self._tree.cover(seat, chain.hashes)
        now_s = self._now_s()
        for node in reversed(path):
            seat.touch(node.holds[seat], now_s)
        self._tree.join_up(path)
        added = seat.blocks - before
        budget = _RECLAIMED_NODES + 2 * len(path)
        capacity = self.capacity_of(holder) if claim in IN_ENGINE_MEMORY else self._default_capacity_blocks
        if seat.blocks > capacity:
            self._shed(seat, capacity - capacity // 64, budget)
        if self._tree.holds > self._max_holds:
            self._shed(max(self._seats.values(), key=lambda other: other.blocks), 0, budget)
        return added

    def forget(self, holder: H, chain: Chain, from_block: int, claim: Claim | None = None) -> int:
        """`holder` lost `chain[from_block]`, and with it all that comes after, on every branch. Returns blocks lost.

        `claim` None means all of them, their losses summed. Nothing happens where the holder was not known to have
        that block. O(nodes lost), bounded: a claim that lost a block with more than `MAX_FORGOTTEN_NODES` nodes below
        it has lost next to everything, and starts anew.
        """
        self._reclaim()
        return sum(self._lose(seat, chain, from_block) for seat in self._seats_of(holder, claim))

    def evict(self, holder: H, to_blocks: int, claim: Claim = Claim.CONFIRMED) -> int:
        """Take tails from `holder`, least recently used first, until it has `to_blocks`. Returns what it has then."""
        self._reclaim()
        seat = self._seats.get((holder, claim))
        if seat is None:
            return 0
        self._shed(seat, to_blocks, self._tree.holds)
        return seat.blocks

    def clear(self, holder: H, claim: Claim | None = None) -> None:
        """`holder` has nothing any more, or nothing of one claim. O(1) now, the rest with later writes."""
        self._reclaim()
        for seat in self._seats_of(holder, claim):
            self._retire(seat)

    def set_capacity(self, holder: H, blocks: int) -> None:
        """Set how many blocks `holder` can keep in the memory it computes from; the next `observe` enforces it.

        Kept over `clear`. What it has in the host's memory and on disk is bounded by the default capacity alone.
        """
        self._capacity_blocks.pop(holder, None)
        self._capacity_blocks[holder] = blocks
        if len(self._capacity_blocks) > _KEPT_CAPACITIES:  # holders that left long ago
            del self._capacity_blocks[next(iter(self._capacity_blocks))]

    def capacity_of(self, holder: H) -> int:
        """How many blocks `holder` can keep in the memory it computes from."""
        return self._capacity_blocks.get(holder, self._default_capacity_blocks)

    def blocks_of(self, holder: H, claim: Claim = Claim.CONFIRMED) -> int:
        """How many blocks `holder` is known to have, expired speculation included until it is given back. O(1)."""
        seat = self._seats.get((holder, claim))
        return 0 if seat is None else seat.blocks

    @property
    def holds(self) -> int:
        """Nodes in all, each counted once for everyone who holds it: what memory goes by. O(1)."""
        return self._tree.holds

    def holders(self) -> Iterable[H]:
        """Everyone who is known to have, or to have had, a block since it was last cleared."""
        return dict.fromkeys(holder for holder, _ in self._seats)

    def check(self) -> list[str]:
        """Every broken invariant, in words; empty when sound. O(nodes × holders): for tests and audits."""
        return broken_invariants(self._tree, [*self._seats.values(), *self._retired])

    def _now_s(self) -> float:
        return 0.0 if self._clock is None else self._clock()

    def _has_expired(self, used_s: float, now_s: float) -> bool:
        return self._clock is not None and used_s < now_s - self._speculative_s

    def _seat(self, holder: H, claim: Claim) -> Seat[H]:
        seat = self._seats.get((holder, claim))
        if seat is None:
            seat = self._seats[holder, claim] = Seat(holder, claim)
            if claim is Claim.SPECULATIVE and self._clock is not None:
                self._short_lived.append(seat)
        return seat

    def _seats_of(self, holder: H, claim: Claim | None) -> Iterator[Seat[H]]:
        for each in Claim if claim is None else [claim]:
            seat = self._seats.get((holder, each))
            if seat is not None:
                yield seat

    def _lose(self, seat: Seat[H], chain: Chain, block: int) -> int:
        lost = self._holding(seat, chain, block)
        if lost is None:
            return 0
        before = seat.blocks
        if block > lost.start:
            if lost.only_holder_is(seat) and not lost.children:
                self._tree.cut(lost, block - lost.start)
                return before - seat.blocks
            self._tree.split(lost, block - lost.start)
        below = self._below(seat, lost)
        if below is None:
            self._retire(seat)
            return before
        for node in reversed(below):
            self._tree.drop(node.holds[seat])
        return before - seat.blocks

    def _holding(self, seat: Seat[H], chain: Chain, block: int) -> Node[H] | None:
        """The node in which `seat` holds `chain[block]`."""
        path, walked, _ = self._tree.walk(chain.hashes)
        if not 0 <= block < walked:
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
                return seat.holds_below(top, MAX_FORGOTTEN_NODES)
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
                    self._tree.cut(node, len(node) - excess)
                    return
                self._tree.split(node, len(node) - excess)
            self._tree.drop(node.holds[seat])

    def _expire(self, seat: Seat[H]) -> None:
        now_s = self._now_s()
        for _ in range(_RECLAIMED_NODES):
            hold = seat.oldest()
            if hold is None or not self._has_expired(hold.used_s, now_s):
                return
            self._tree.drop(hold)

    def _retire(self, seat: Seat[H]) -> None:
        seat.live = False
        del self._seats[seat.holder, seat.claim]
        if seat.blocks:
            self._retired.append(seat)

    def _reclaim(self) -> None:
        """Give back a few nodes of a seat that was cleared, and of the next one whose speculation expires."""
        if self._retired:
            seat = self._retired[0]
            self._shed(seat, 0, _RECLAIMED_NODES)
            if not seat.blocks:
                self._retired.popleft()
        if self._short_lived:
            seat = self._short_lived.popleft()
            if seat.live:
                self._expire(seat)
                if seat.blocks:
                    self._short_lived.append(seat)
                else:
                    self._retire(seat)
