"""The memory of earlier prompts that miss reasons rest on."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gateway.divergence.earlier import MOST_PROMPTS, RecentPrompts, bytes_of
from gateway.divergence.fingerprints import Fingerprint
from gateway.divergence.types import Earlier
from prefix_index import Chain, chain_of, pack

BLOCK = 4
NO_PARTS = Fingerprint(0, 0, 0, 0, 0, (), (), 0)


def chain(*numbers: int, block_size: int = BLOCK) -> Chain:
    """One block for each number."""
    return chain_of(pack(array("I", [number for number in numbers for _ in range(block_size)])), b"root", block_size)


def prompt(*numbers: int, parts: Fingerprint = NO_PARTS) -> Earlier:
    return Earlier(chain(*numbers).hashes, BLOCK, b"root", False, "e@1", 0.0, parts)


def test_of_earlier_prompts_the_one_that_shares_most_is_the_closest() -> None:
    recent = RecentPrompts()
    assert recent.closest("k", "m", chain(1)) is None
    for numbers in ((1, 2, 3), (1, 2, 4, 5), (9,)):
        recent.keep("k", "m", prompt(*numbers))
    found = recent.closest("k", "m", chain(1, 2, 4, 6))
    assert found is not None
    assert (found[0].hashes, found[1]) == (chain(1, 2, 4, 5).hashes, 3)
    assert recent.closest("other key", "m", chain(1)) is None
    assert recent.closest("k", "other model", chain(1)) is None


def test_of_those_that_share_as_much_the_one_with_more_parts_in_common_is_the_closest_then_the_latest() -> None:
    recent = RecentPrompts()
    agent, other = Fingerprint(1, 9, 5, 5, 0, (), (), 9), Fingerprint(2, 9, 6, 6, 0, (), (), 9)
    for number, parts in enumerate((other, agent, agent, other)):
        recent.keep("k", "m", prompt(number, parts=parts))
    found = recent.closest("k", "m", chain(7), lambda: agent)
    assert found is not None
    assert (found[0].hashes, found[1]) == (chain(2).hashes, 0)


def test_a_prompt_that_continues_an_earlier_one_takes_its_place() -> None:
    recent = RecentPrompts()
    recent.keep("k", "m", prompt(7))
    for turn in range(1, 4 * MOST_PROMPTS):
        recent.keep("k", "m", prompt(*range(10, 10 + turn)))
    found = recent.closest("k", "m", chain(7, 8))
    assert found is not None
    assert found[1] == 1


def test_a_prompt_continues_the_longest_that_it_begins_with_unless_it_shares_more_with_another() -> None:
    recent = RecentPrompts()
    for numbers in ((1, 2, 3), (1,), (1, 2)):
        recent.keep("k", "m", prompt(*numbers))
    for asked, continued in (((1, 2, 3, 4), (1, 2, 3)), ((1, 2, 5), (1, 2))):
        found = recent.closest("k", "m", chain(*asked), lambda: NO_PARTS)
        assert found is not None
        assert found[0].hashes == chain(*continued).hashes
    recent.keep("k", "m", prompt(1, 2, 5, 6))
    found = recent.closest("k", "m", chain(1, 2, 5, 7), lambda: NO_PARTS)
    assert found is not None
    assert (found[0].hashes, found[1]) == (chain(1, 2, 5, 6).hashes, 3)


def test_other_block_sizes_are_not_compared() -> None:
    recent = RecentPrompts()
    recent.keep("k", "m", prompt(1, 2))
    assert recent.closest("k", "m", chain(1, block_size=8)) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.integers(1, 3), min_size=1, max_size=6)), max_size=60))
def test_the_memory_is_bounded_and_drops_the_key_that_was_quiet_for_longest(calls: list[tuple[str, list[int]]]) -> None:
    most = 25 * bytes_of(prompt(1))
    recent = RecentPrompts(most)
    for key, numbers in calls:
        recent.keep(key, "m", prompt(*numbers))
        kept = [one for prompts in recent._prompts.values() for one in prompts]
        assert sum(map(bytes_of, kept)) == recent.kept_bytes <= most
        assert all(len(prompts) <= MOST_PROMPTS for prompts in recent._prompts.values())
        found = recent.closest(key, "m", chain(*numbers))
        assert found is not None
        assert found[1] == len(numbers)


@given(
    st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=6), max_size=12),
    st.lists(st.integers(1, 2), min_size=1, max_size=6),
)
def test_the_closest_shares_as_much_as_the_best_of_all_that_are_kept(kept: list[list[int]], asked: list[int]) -> None:
    recent = RecentPrompts()
    for numbers in kept:
        recent.keep("k", "m", prompt(*numbers))
    found = recent.closest("k", "m", chain(*asked))
    shared = [
        next((place for place, (one, other) in enumerate(zip(numbers, asked, strict=False)) if one != other), None)
        for numbers in ([*one] for one in kept[-MOST_PROMPTS:])
    ]
    best = max(
        (
            min(len(numbers), len(asked)) if at is None else at
            for numbers, at in zip(kept[-MOST_PROMPTS:], shared, strict=True)
        ),
        default=None,
    )
    if len(kept) <= MOST_PROMPTS:
        assert (None if found is None else found[1]) == best
