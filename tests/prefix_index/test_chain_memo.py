"""The memo is the function `chain_of`, whatever was asked before and however little it may keep."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index import chain_memo
from prefix_index.blocks import chain_of, hashes_after
from prefix_index.chain_memo import SPAN_BLOCKS, ChainMemo
from prefix_index.segment_cache import ENTRY_OVERHEAD_BYTES
from prefix_index.types import HASH_BYTES, TokenIds

ENTRY_BYTES = SPAN_BLOCKS * HASH_BYTES + ENTRY_OVERHEAD_BYTES


def tokens_of(*runs: tuple[int, int]) -> TokenIds:
    """Runs of one id each: (id, how many)."""
    return TokenIds(b"".join(struct.pack("<I", number) * times for number, times in runs))


lengths = st.sampled_from([0, 1, 3, SPAN_BLOCKS - 1, SPAN_BLOCKS, SPAN_BLOCKS + 1, 3 * SPAN_BLOCKS])
prompts = st.lists(st.tuples(st.integers(0, 2), lengths), max_size=5).map(lambda runs: tokens_of(*runs))
"""They share beginnings, diverge inside spans and between them, and repeat the same span."""
roots = st.sampled_from([b"", b"root", b"other"])
block_sizes = st.integers(1, 3)


@given(st.lists(st.tuples(prompts, roots, block_sizes), max_size=12), st.sampled_from([0, 1, 2, 3, 1000]))
def test_whatever_was_asked_before_the_chain_is_the_chain(
    asked: list[tuple[TokenIds, bytes, int]], kept_spans: int
) -> None:
    memo = ChainMemo(kept_spans * ENTRY_BYTES)
    for tokens, root, block_size in asked:
        assert memo.chain_of(tokens, root, block_size) == chain_of(tokens, root, block_size)
        assert memo.size_bytes == len(memo) * ENTRY_BYTES <= kept_spans * ENTRY_BYTES


@given(st.lists(prompts, max_size=8), roots, block_sizes)
def test_a_conversation_that_grows_keeps_its_chain(turns: list[TokenIds], root: bytes, block_size: int) -> None:
    memo, tokens, known = ChainMemo(), TokenIds(b""), b""
    for turn in turns:
        tokens = TokenIds(tokens + turn)
        chain = memo.chain_of(tokens, root, block_size)
        assert chain == chain_of(tokens, root, block_size)
        assert chain.hashes.startswith(known)
        known = chain.hashes


@pytest.fixture
def hashed_blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks were hashed, call by call."""
    calls: list[int] = []

    def counted(previous: int, blocks: bytes | memoryview, block_bytes: int) -> bytes:
        calls.append(len(blocks) // block_bytes)
        return hashes_after(previous, blocks, block_bytes)

    monkeypatch.setattr(chain_memo, "hashes_after", counted)
    return calls


def test_the_next_turn_hashes_only_the_tail(hashed_blocks: list[int]) -> None:
    memo = ChainMemo()
    known = tokens_of(*((number, 16) for number in range(1000)))
    memo.chain_of(known, b"root", 16)
    assert sum(hashed_blocks) == 1000
    hashed_blocks.clear()
    memo.chain_of(TokenIds(known + tokens_of((7, 40))), b"root", 16)
    assert hashed_blocks == [1002 % SPAN_BLOCKS]


def test_a_prompt_that_diverges_is_hashed_from_that_span_on(hashed_blocks: list[int]) -> None:
    memo = ChainMemo()
    memo.chain_of(tokens_of((1, 4 * SPAN_BLOCKS)), b"root", 1)
    hashed_blocks.clear()
    memo.chain_of(tokens_of((1, 2 * SPAN_BLOCKS + 5), (2, 2 * SPAN_BLOCKS - 5)), b"root", 1)
    assert sum(hashed_blocks) == 2 * SPAN_BLOCKS


def test_a_span_of_another_root_or_block_size_is_never_taken(hashed_blocks: list[int]) -> None:
    memo = ChainMemo()
    tokens = tokens_of((1, 2 * SPAN_BLOCKS))
    chains = [memo.chain_of(tokens, root, size) for root in (b"root", b"other") for size in (1, 2)]
    assert len({chain.hashes[:HASH_BYTES] for chain in chains}) == 4
    assert sum(hashed_blocks) == 2 * (2 + 1) * SPAN_BLOCKS


def test_the_end_of_a_prompt_goes_before_its_beginning(hashed_blocks: list[int]) -> None:
    memo = ChainMemo(4 * ENTRY_BYTES)
    conversation, other = tokens_of((1, 4 * SPAN_BLOCKS)), tokens_of((2, SPAN_BLOCKS))
    memo.chain_of(conversation, b"root", 1)
    for _ in range(3):
        memo.chain_of(other, b"root", 1)
        hashed_blocks.clear()
        memo.chain_of(conversation, b"root", 1)
        assert hashed_blocks == [SPAN_BLOCKS, 0]  # the last span, and an empty tail


def test_of_a_prompt_too_long_to_be_kept_the_beginning_is_kept(hashed_blocks: list[int]) -> None:
    memo = ChainMemo(2 * ENTRY_BYTES)
    tokens = tokens_of((1, 5 * SPAN_BLOCKS))
    memo.chain_of(tokens, b"root", 1)
    hashed_blocks.clear()
    assert memo.chain_of(tokens, b"root", 1) == chain_of(tokens, b"root", 1)
    assert hashed_blocks == [SPAN_BLOCKS] * 3 + [0]


def test_spans_in_use_stay_and_the_others_go(hashed_blocks: list[int]) -> None:
    memo = ChainMemo(2 * ENTRY_BYTES)
    used = tokens_of((1, SPAN_BLOCKS))
    for number in range(2, 6):
        memo.chain_of(used, b"root", 1)
        memo.chain_of(tokens_of((number, SPAN_BLOCKS)), b"root", 1)
    hashed_blocks.clear()
    memo.chain_of(used, b"root", 1)
    assert sum(hashed_blocks) == 0
    assert len(memo) == 2


def test_short_prompts_leave_nothing_behind() -> None:
    memo = ChainMemo()
    memo.chain_of(tokens_of((1, 16 * SPAN_BLOCKS - 1)), b"root", 16)
    assert len(memo) == 0
    assert memo.size_bytes == 0


def test_bad_input_is_refused_as_without_memory() -> None:
    memo = ChainMemo()
    with pytest.raises(ValueError, match="block size"):
        memo.chain_of(tokens_of((1, 1)), b"root", 0)
    with pytest.raises(ValueError, match="no multiple"):
        memo.chain_of(TokenIds(b"\0\0\0"), b"root", 4)
    assert memo.chain_of(tokens_of((1, 9)), b"root", 2**70) == chain_of(tokens_of((1, 9)), b"root", 2**70)
