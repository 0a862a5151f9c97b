"""Weights of prefixes against a walk that anyone can follow; long work leaves the loop to others."""

import asyncio
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.prefix_weights import PrefixWeights
from prefix_index.redis_wire import StoredNode
from prefix_index.turns import in_turns


@dataclass(frozen=True, slots=True)
class Drawn:
    """One node of a tree: its parent, by place, its length, who holds it, and whether it is read."""

    parent: int | None
    blocks: int
    slots: frozenset[int]
    is_read: bool


@st.composite
def trees(draw: st.DrawFn) -> list[Drawn]:
    nodes = []
    for place in range(draw(st.integers(1, 30))):
        parent = draw(st.none() | st.integers(0, place - 1)) if place else None
        slots = draw(st.frozensets(st.integers(0, 3), min_size=1))
        nodes.append(Drawn(parent, draw(st.integers(1, 5)), slots, draw(st.sampled_from((True, True, True, False)))))
    return nodes


def stored(tree: list[Drawn], place: int) -> StoredNode:
    hashes = [(place * 100 + block).to_bytes(8, "big") for block in range(1, tree[place].blocks + 1)]
    parent = tree[place].parent
    prev = bytes(8) if parent is None else (parent * 100 + tree[parent].blocks).to_bytes(8, "big")
    return StoredNode(hashes[0], prev, 1_000 + place, tree[place].slots, b"".join(hashes))


def prompts(tree: list[Drawn], place: int) -> int:
    below = [child for child, one in enumerate(tree) if one.parent == place and one.is_read]
    return sum(prompts(tree, child) for child in below) or 1


def depth(tree: list[Drawn], place: int) -> int | None:
    parent = tree[place].parent
    above = 0 if parent is None else depth(tree, parent) if tree[parent].is_read else None
    return None if above is None else above + tree[place].blocks


def closest(tree: list[Drawn], place: int, chosen: set[int]) -> int | None:
    parent = tree[place].parent
    while parent is not None and tree[parent].is_read:
        if parent in chosen:
            return parent
        parent = tree[parent].parent
    return None


def block_weight(slots: frozenset[int]) -> int:
    return 0 if slots == {0} else min(slots) + 1


@given(trees(), st.integers(1, 40))
async def test_the_heaviest_are_those_of_a_plain_walk(tree: list[Drawn], top: int) -> None:
    read = [place for place, one in enumerate(tree) if one.is_read]
    weights = PrefixWeights()
    for place in reversed(read):
        weights.add(stored(tree, place))
        weights.add(stored(tree, place))
    assert len(weights) == len(read)
    found = await weights.heaviest(top, block_weight)
    everyone = [
        (tree[place].blocks * prompts(tree, place) * block_weight(tree[place].slots), place)
        for place in read
        if block_weight(tree[place].slots)
    ]
    assert [one.blocks * one.prompts * block_weight(one.slots) for one in found] == sorted(
        (weight for weight, _ in everyone), reverse=True
    )[:top]
    chosen = {one.used_s - 1_000 for one in found}
    for one in found:
        place = one.used_s - 1_000
        above = closest(tree, place, chosen)
        assert one.goes_on_from == (None if above is None else stored(tree, above).edge[-8:])
        assert one.end == stored(tree, place).edge[-8:]
        assert (one.blocks, one.slots) == (tree[place].blocks, tree[place].slots)
        assert (one.prompts, one.depth_blocks) == (prompts(tree, place), depth(tree, place))
        assert one.children == sum(child.parent == place and child.is_read for child in tree)


async def test_others_have_the_loop_in_the_middle_of_long_work() -> None:
    others_ran = 0

    async def others() -> None:
        nonlocal others_ran
        while True:
            await asyncio.sleep(0)
            others_ran += 1

    async with asyncio.TaskGroup() as group:
        beside = group.create_task(others())
        assert [item async for item in in_turns(range(200_000))] == list(range(200_000))
        beside.cancel()
    assert others_ran > 1
