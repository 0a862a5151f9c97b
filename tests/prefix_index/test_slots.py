"""Engines of slots: what is overwritten, and what is still there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.blocks import chain_of, common_blocks
from prefix_index.slots import SlotBook
from prefix_index.types import Chain, TokenIds

BLOCK = 4


def chain(word: str) -> Chain:
    """A chain with a block for each letter."""
    return chain_of(TokenIds(b"".join(ord(letter).to_bytes(4, "little") * BLOCK for letter in word)), b"root", BLOCK)


def use(book: SlotBook, one: Chain) -> tuple[Chain, int] | None:
    """A request that is served and ends."""
    lost = book.place(one)
    book.free(one)
    return lost


def test_one_slot_holds_one_prompt() -> None:
    book = SlotBook(1)
    assert use(book, chain("abcd")) is None
    assert use(book, chain("xy")) == (chain("abcd"), 0)
    assert use(book, chain("xyz")) is None
    assert use(book, chain("xa")) == (chain("xyz"), 1)
    assert book.chains == (chain("xa"),)


def test_a_prompt_takes_the_slot_that_is_most_alike_else_the_oldest() -> None:
    book = SlotBook(2)
    use(book, chain("abcd"))
    use(book, chain("xy"))
    assert use(book, chain("abe")) == (chain("abcd"), 2)
    assert use(book, chain("pq")) == (chain("xy"), 0)
    assert book.chains == (chain("abe"), chain("pq"))


def test_what_another_slot_holds_too_is_not_lost() -> None:
    book = SlotBook(2)
    use(book, chain("ab" + "c" * 20))
    use(book, chain("x" * 30))
    use(book, chain("ab" + "d" * 40))  # two of 42 blocks alike: less than a tenth, so it takes the oldest slot
    assert {word.hashes for word in book.chains} == {chain("x" * 30).hashes, chain("ab" + "d" * 40).hashes}
    assert use(book, chain("abz")) == (chain("ab" + "d" * 40), 2)


def test_a_prompt_without_a_whole_block_takes_a_slot_all_the_same() -> None:
    book = SlotBook(1)
    use(book, chain("abc"))
    assert use(book, chain("")) == (chain("abc"), 0)


def test_a_slot_that_is_busy_is_given_to_nobody() -> None:
    book, first, second = SlotBook(2), chain("abcd"), chain("abxy")
    assert book.place(first) is None
    assert book.place(second) is None
    assert book.chains == (first, second)
    book.free(first)
    assert book.place(chain("abq")) == (first, 2)


def test_where_all_are_busy_the_first_gives_way_and_its_end_frees_nothing_else() -> None:
    book, first, second = SlotBook(1), chain("ab"), chain("xy")
    book.place(first)
    assert book.place(second) == (first, 0)
    book.free(first)
    assert book.place(chain("pq")) == (second, 0)


@pytest.mark.parametrize("slots", [0, -1])
def test_an_engine_has_at_least_one_slot(slots: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        SlotBook(slots)


@given(st.text("ab", max_size=12), st.text("ab", max_size=12))
def test_common_blocks_are_the_leading_ones(one: str, other: str) -> None:
    alike = 0
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    assert common_blocks(chain(one).hashes, chain(other).hashes) == alike


@given(st.integers(1, 3), st.lists(st.text("abc", min_size=1, max_size=6), max_size=20))
def test_what_is_said_to_be_lost_is_in_no_slot_and_all_else_is(slots: int, words: list[str]) -> None:
    """An oracle that keeps every prefix ever placed, less what was said to be overwritten."""
    book = SlotBook(slots)
    held: set[str] = set()
    for word in words:
        lost = use(book, chain(word))
        if lost is not None:
            given_up, kept = lost
            gone = next(old for old in held if len(old) > kept and chain(old) == given_up)[: kept + 1]
            held = {prefix for prefix in held if not prefix.startswith(gone)}
        held |= {word[:end] for end in range(1, len(word) + 1)}
        in_slots = {one.hashes for one in book.chains}
        prefixes = {chain(prefix).hashes for prefix in held}
        assert in_slots <= prefixes
        assert len(book.chains) <= slots
        assert prefixes == {one[:end] for one in in_slots for end in range(8, len(one) + 1, 8)}
