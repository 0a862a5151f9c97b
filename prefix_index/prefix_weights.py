"""Which stored prefixes weigh most: their length × the prompts that run through them.

    [ 10 ] -+- [ 1 ]  1 prompt         weight of the first: 10 × 3
            +- [ 1 ]  1 prompt
            `- [ 1 ]  1 prompt

The tree is read node by node, in no order. Who is whose parent follows from hashes; sums go from the leaves up, depths
from the roots down. All in turns, since it runs where requests are served.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from prefix_index.redis_wire import StoredNode
from prefix_index.turns import in_turns
from prefix_index.types import HASH_BYTES

_NOBODY: Final = -1
_UNREAD: Final = -2


class _Stem(msgspec.Struct, frozen=True, gc=False):
    """A node without its edge, which may be long."""

    prev: bytes | None
    end: bytes
    blocks: int
    slots: frozenset[int]
    used_s: int


@dataclass(frozen=True, slots=True)
class Weighed:
    """One node. `end` is the hash of its last block; `depth_blocks` is None where what is before it was not read.

    `goes_on_from` is the `end` of the closest of the others found that it begins with; None where it begins with none.
    """

    end: bytes
    blocks: int
    depth_blocks: int | None
    prompts: int
    children: int
    slots: frozenset[int]
    used_s: int
    goes_on_from: bytes | None = None


class PrefixWeights:
    """Nodes of one tree, as read. About 300 bytes each, whatever the length of their edges."""

    def __init__(self) -> None:
        self._stems: dict[bytes, _Stem] = {}
        self._same: dict[frozenset[int], frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self._stems)

    def add(self, node: StoredNode) -> None:
        """Take a node in; one that was read before is replaced."""
        slots = self._same.setdefault(node.slots, node.slots)
        self._stems[node.name] = _Stem(node.parent_end, node.edge[-HASH_BYTES:], len(node), slots, node.used_s)

    async def heaviest(self, top: int, block_weight: Callable[[frozenset[int]], int]) -> list[Weighed]:
        """The `top` heaviest, heaviest first; the nodes are given back. O(nodes), in turns.

        `block_weight` says what a block of such holders weighs; 0 leaves the node out. It is asked once for each set.
        """
        stems = list(self._stems.values())
        parents = await _parents(stems)
        children = [0] * len(stems)
        async for at in in_turns(range(len(stems))):
            if parents[at] >= 0:
                children[parents[at]] += 1
        prompts, order = await _prompts(parents, children)
        best: list[tuple[int, int]] = []
        weights: dict[frozenset[int], int] = {}
        async for at in in_turns(range(len(stems))):
            slots = stems[at].slots
            if slots not in weights:
                weights[slots] = block_weight(slots)
            weight = stems[at].blocks * prompts[at] * weights[slots]
            if weight:
                (heapq.heappush if len(best) < top else heapq.heappushpop)(best, (weight, -at))
        depths = await _depths(stems, parents, order)
        best.sort(reverse=True)
        nearest = await _nearest(parents, order, {-negated for _, negated in best})
        found = []
        async for _, negated in in_turns(best):
            at = -negated
            stem, above = stems[at], nearest[at]
            described = (stem.end, stem.blocks, depths[at], prompts[at], children[at], stem.slots, stem.used_s)
            found.append(Weighed(*described, None if above == _NOBODY else stems[above].end))
        async for _ in in_turns(range(len(stems))):  # at once, giving back 100,000 of them takes 7 ms
            self._stems.popitem()
            stems.pop()
        return found


async def _parents(stems: list[_Stem]) -> list[int]:
    """Where each one's parent is; `_NOBODY` for a root, `_UNREAD` where it was not read."""
    by_end: dict[bytes, int] = {}
    async for at in in_turns(range(len(stems))):
        by_end[stems[at].end] = at
    parents = []
    async for at in in_turns(range(len(stems))):
        prev = stems[at].prev
        parents.append(_NOBODY if prev is None else by_end.get(prev, _UNREAD))
    return parents


async def _prompts(parents: list[int], children: list[int]) -> tuple[list[int], list[int]]:
    """How many leaves are below each, a leaf itself being one; and all of them, children before their parents."""
    prompts, pending = [0] * len(parents), list(children)
    order = [at async for at in in_turns(range(len(children))) if not children[at]]
    async for at in in_turns(order):  # which grows meanwhile
        prompts[at] = prompts[at] or 1
        parent = parents[at]
        if parent >= 0:
            prompts[parent] += prompts[at]
            pending[parent] -= 1
            if not pending[parent]:
                order.append(parent)
    return prompts, order


async def _depths(stems: list[_Stem], parents: list[int], order: list[int]) -> list[int | None]:
    """Where each one ends, in blocks from the root."""
    depths: list[int | None] = [None] * len(stems)
    async for at in in_turns(reversed(order)):
        above = 0 if parents[at] == _NOBODY else depths[parents[at]] if parents[at] >= 0 else None
        depths[at] = None if above is None else above + stems[at].blocks
    return depths


async def _nearest(parents: list[int], order: list[int], chosen: set[int]) -> list[int]:
    """Of each one the closest above it that is chosen; `_NOBODY` where none is, or what is between was not read."""
    nearest = [_NOBODY] * len(parents)
    async for at in in_turns(reversed(order)):
        parent = parents[at]
        if parent >= 0:
            nearest[at] = parent if parent in chosen else nearest[parent]
    return nearest
