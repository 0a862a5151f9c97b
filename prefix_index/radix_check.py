"""Audit of the radix index in process: every invariant that its essay states, walked over the whole tree."""

from collections.abc import Iterable, Mapping, Sequence

from prefix_index.radix_nodes import Node, Seat
from prefix_index.radix_tree import Tree
from prefix_index.types import H


def broken_invariants(tree: Tree[H], seats: Sequence[Seat[H]]) -> list[str]:
    """What is wrong, in words; empty when sound. `seats` are all that still hold something, cleared ones included.

    O(nodes × holders).
    """
    nodes = tree.nodes
    holds = sum(len(node.holds) for node in nodes.values())
    miscounted = [] if holds == tree.holds else [f"{tree.holds} holds are counted, and there are {holds}"]
    return [*miscounted, *_broken_nodes(nodes), *_broken_counts(nodes, seats), *_broken_orders(nodes, seats)]


def _broken_nodes(nodes: Mapping[bytes, Node[H]]) -> Iterable[str]:
    for name, node in nodes.items():
        where = f"node {name.hex()} at block {node.start}"
        if name != node.name:
            yield f"{where} is found under a name that is not its first hash"
        if not node.holds:
            yield f"{where} has no holder"
        if any(child.parent is not node for child in node.children):
            yield f"{where} has a child that hangs elsewhere"
        parent = node.parent
        if parent is None:
            if node.start:
                yield f"{where} is an orphan"
            continue
        if nodes.get(parent.name) is not parent or node not in parent.children:
            yield f"{where} hangs under a node that is not in the tree"
        if parent.start + len(parent) != node.start:
            yield f"{where} does not start where its parent ends"
        if not node.holds.keys() <= parent.holds.keys():
            yield f"{where} is held by someone who does not hold its parent"


def _broken_counts(nodes: Mapping[bytes, Node[H]], seats: Sequence[Seat[H]]) -> Iterable[str]:
    held: dict[Seat[H], int] = {}
    for node in nodes.values():
        for seat in node.holds:
            held[seat] = held.get(seat, 0) + len(node)
    if not held.keys() <= set(seats):
        yield "a node is held by a seat that nobody will reclaim"
    for seat in seats:
        if seat.blocks != held.get(seat, 0):
            yield f"holder {seat.holder!r} ({seat.claim}) counts {seat.blocks} blocks and holds {held.get(seat, 0)}"


def _broken_orders(nodes: Mapping[bytes, Node[H]], seats: Sequence[Seat[H]]) -> Iterable[str]:
    for seat in seats:
        passed: set[Node[H]] = set()
        hold = seat.ends.newer
        while hold is not seat.ends:
            if hold.node.holds.get(seat) is not hold:
                yield f"holder {seat.holder!r} keeps in order a node it does not hold"
            if hold.node.parent in passed:
                yield f"holder {seat.holder!r} would lose a parent before its child"
            passed.add(hold.node)
            hold = hold.newer
        if len(passed) != sum(seat in node.holds for node in nodes.values()):
            yield f"holder {seat.holder!r} holds a node that is not in its order"
