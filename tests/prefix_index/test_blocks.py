"""Blocks and roots: the hash is a wire format, so its values are pinned."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from prefix_index.blocks import chain_of, coarser, common_blocks, extend, prompt_root
from prefix_index.types import Chain, TokenIds

ROOT = prompt_root(model="llama", adapter=None, kind=b"\x01\x02", block_size=4, salt=b"tenant")

token_lists = st.lists(st.integers(0, 3) | st.integers(0, 2**32 - 1), max_size=40)


def packed(ids: list[int]) -> TokenIds:
    return TokenIds(struct.pack(f"<{len(ids)}I", *ids))


def hashes(chain: Chain) -> list[int]:
    return list(struct.unpack(f"<{len(chain)}Q", chain.hashes))


def test_the_root_is_pinned() -> None:
    assert ROOT == (
        b"prefixgate root 1"
        b"\x05\x00\x00\x00llama"
        b"\x00\x00\x00\x00"
        b"\x02\x00\x00\x00\x01\x02"
        b"\x04\x00\x00\x00\x04\x00\x00\x00"
        b"\x06\x00\x00\x00tenant"
    )


def test_the_chain_is_pinned() -> None:
    chain = chain_of(packed([1, 2, 3, 4, 5, 6, 7, 8, 9]), ROOT, 4)
    assert [f"{value:016x}" for value in hashes(chain)] == ["0b840ad9308988f0", "4226b1e1af4a0781"]
    assert chain.prompt_tokens == 9


def test_the_chain_follows_its_definition_step_by_step() -> None:
    previous = xxh3_64_intdigest(ROOT, 1337)
    first = xxh3_64_intdigest(struct.pack("<4I", 1, 2, 3, 4), previous)
    second = xxh3_64_intdigest(struct.pack("<4I", 5, 6, 7, 8), first)
    assert hashes(chain_of(packed([1, 2, 3, 4, 5, 6, 7, 8]), ROOT, 4)) == [first, second]


def test_roots_that_differ_in_one_field_differ() -> None:
    roots = {
        prompt_root(model=model, adapter=adapter, kind=kind, block_size=block_size, salt=salt)
        for model in ("m", "ma")
        for adapter in (None, "", "a")
        for kind in (b"", b"a")
        for block_size in (16, 64)
        for salt in (b"", b"a")
    }
    assert len(roots) == 2 * 3 * 2 * 2 * 2


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3) | st.none(), st.binary(max_size=3)), unique=True))
def test_no_two_sets_of_fields_share_a_root(fields: list[tuple[str, str | None, bytes]]) -> None:
    roots = {
        prompt_root(model=model, adapter=adapter, kind=salt, block_size=16, salt=salt)
        for model, adapter, salt in fields
    }
    assert len(roots) == len(fields)


@given(token_lists, st.integers(0, 40), st.integers(1, 5))
def test_the_chain_of_a_prefix_is_a_prefix_of_the_chain(ids: list[int], cut: int, block_size: int) -> None:
    whole = chain_of(packed(ids), ROOT, block_size)
    part = chain_of(packed(ids[:cut]), ROOT, block_size)
    assert whole.hashes.startswith(part.hashes)
    assert len(part) == len(ids[:cut]) // block_size


@given(token_lists, st.integers(0, 40), st.integers(1, 5))
def test_extending_a_known_chain_gives_the_whole_chain(ids: list[int], cut: int, block_size: int) -> None:
    known = chain_of(packed(ids[:cut]), ROOT, block_size)
    assert extend(known, ROOT, packed(ids)) == chain_of(packed(ids), ROOT, block_size)


@given(st.lists(st.integers(0, 1), min_size=8, max_size=8), st.lists(st.integers(0, 1), min_size=8, max_size=8))
def test_chains_agree_exactly_as_far_as_the_tokens_do(left: list[int], right: list[int]) -> None:
    pairs = zip(hashes(chain_of(packed(left), ROOT, 2)), hashes(chain_of(packed(right), ROOT, 2)), strict=True)
    for block, (a, b) in enumerate(pairs):
        end = 2 * (block + 1)
        assert (a == b) == (left[:end] == right[:end])


def test_a_longer_chain_is_pinned() -> None:
    """Over more blocks than are hashed in one go anywhere, with a tail that is not a whole block."""
    chain = chain_of(packed(list(range(16 * 300 + 5))), ROOT, 16)
    assert len(chain) == 300
    assert [f"{hashes(chain)[place]:016x}" for place in (0, 127, 128, 299)] == [
        "664fa80a576fa3f3",
        "90073d6ec1dfafb6",
        "77287df877ebe8ef",
        "eb379668df78a939",
    ]


def test_a_block_size_no_prompt_reaches_gives_no_blocks() -> None:
    assert chain_of(packed([1, 2, 3]), ROOT, 2**70) == Chain(b"", 2**70, 3)
    assert chain_of(packed([]), ROOT, 16) == Chain(b"", 16, 0)


def test_two_roots_share_no_block() -> None:
    other = prompt_root(model="llama", adapter=None, kind=b"\x01\x02", block_size=4, salt=b"other")
    tokens = packed(list(range(64)))
    assert not set(hashes(chain_of(tokens, ROOT, 4))) & set(hashes(chain_of(tokens, other, 4)))


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="block size"):
        chain_of(packed([1]), ROOT, 0)
    with pytest.raises(ValueError, match="no multiple"):
        chain_of(TokenIds(b"\x00\x00\x00"), ROOT, 4)
    with pytest.raises(ValueError, match="end before"):
        extend(chain_of(packed([1, 2, 3, 4]), ROOT, 4), ROOT, packed([1]))


@given(token_lists, token_lists, token_lists, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_in_larger_blocks_chains_share_what_their_prompts_share(
    shared: list[int], one: list[int], other: list[int], block_size: int, every: int, again: int
) -> None:
    size = block_size * every
    chains = [coarser(chain_of(packed(shared + rest), ROOT, block_size), size) for rest in (one, other)]
    alike = next((n for n, (a, b) in enumerate(zip(shared + one, shared + other, strict=False)) if a != b), None)
    shortest = len(shared) + min(len(one), len(other))
    assert common_blocks(chains[0].hashes, chains[1].hashes) == (shortest if alike is None else alike) // size
    for chain, rest in zip(chains, (one, other), strict=True):
        assert (chain.block_size, chain.prompt_tokens) == (size, len(shared + rest))
        assert len(chain) == len(shared + rest) // size
        assert coarser(chain, size * again) == coarser(chain_of(packed(shared + rest), ROOT, block_size), size * again)


@given(token_lists, st.integers(0, 40), st.integers(1, 3), st.integers(1, 4))
def test_in_larger_blocks_the_chain_of_a_prefix_is_a_prefix_of_the_chain(
    tokens: list[int], cut: int, block_size: int, every: int
) -> None:
    whole, prefix = (
        coarser(chain_of(packed(ids), ROOT, block_size), block_size * every) for ids in (tokens, tokens[:cut])
    )
    assert whole.hashes.startswith(prefix.hashes)


@pytest.mark.parametrize("block_size", [-4, 0, 2, 6])
def test_larger_blocks_are_made_of_whole_ones(block_size: int) -> None:
    with pytest.raises(ValueError, match="whole blocks of 4"):
        coarser(chain_of(packed([1, 2, 3, 4]), ROOT, 4), block_size)
