"""What is copied out of one cache and adopted by another is the same, and nothing of another prompt gets in."""

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.reference.apart import Carried, adopted, copied
from backends.reference.block_pool import HASH_BYTES, BlockPool
from backends.reference.engine import KvCache
from backends.reference.errors import TransferFailed
from backends.reference.sequence import Sequence
from backends.reference.types import BlockHash, GenerationRequest, RequestId, SamplingParams

BLOCK = 3
MODEL = bytes(range(HASH_BYTES))


def sequence(tokens: list[int], salt: str = "") -> Sequence:
    return Sequence(GenerationRequest(RequestId("r"), tuple(tokens), SamplingParams(1), salt), BLOCK)


def cache(blocks: int) -> KvCache:
    return KvCache(BlockPool(blocks), torch.randn(2, 2, blocks, BLOCK, 2, 4), MODEL)


def filled(one: KvCache, prompt: Sequence, blocks: int) -> None:
    """The first blocks of a prompt are cached; what they hold depends on their names alone, as it does in an engine."""
    held = []
    for name in prompt.reusable_chain()[:blocks]:
        held.append(one.pool.allocate())
        one.pool.publish(held[-1], name)
        one.values[:, :, held[-1]] = content(one, name)
    one.pool.release(held)


def content(one: KvCache, name: BlockHash) -> torch.Tensor:
    return torch.full_like(one.values[:, :, 0], int.from_bytes(name[:2], "big"))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=25), st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_what_is_adopted_is_what_was_computed(tokens: list[int], there: int, here: int, room: int) -> None:
    prompt = sequence(tokens)
    source, target = cache(9), cache(room)
    filled(source, prompt, there)
    filled(target, prompt, min(here, room))
    carried = Carried.from_bytes(copied(source, prompt).to_bytes())
    names = prompt.reusable_chain()
    assert carried.names == tuple(names[:there])
    found = adopted(target, sequence(tokens), carried)
    assert found == min(there, len(names), room)
    blocks = target.pool.match(names)
    assert len(blocks) >= found
    for name, block in zip(names, blocks, strict=False):
        assert torch.equal(target.values[:, :, block], content(target, name))
    assert (target.pool.held_blocks, target.pool.free_blocks) == (0, room)


def test_blocks_that_others_hold_are_left_to_them() -> None:
    prompt, target = sequence(list(range(20))), cache(4)
    busy = [target.pool.allocate() for _ in range(3)]
    source = cache(9)
    filled(source, prompt, 6)
    assert adopted(target, prompt, copied(source, prompt)) == 1
    assert target.pool.held_blocks == len(busy)


@pytest.mark.parametrize("other", [sequence([9] * 20), sequence(list(range(20)), salt="another tenant's")])
def test_blocks_of_another_prompt_or_salt_are_refused(other: Sequence) -> None:
    source, target = cache(9), cache(9)
    prompt = sequence(list(range(20)))
    filled(source, prompt, 4)
    with pytest.raises(TransferFailed, match="another prompt"):
        adopted(target, other, copied(source, prompt))
    assert target.pool.cached_blocks == 0


def test_blocks_of_another_model_and_what_are_none_are_refused() -> None:
    prompt, source = sequence(list(range(20))), cache(9)
    filled(source, prompt, 4)
    deeper = KvCache(BlockPool(9), torch.randn(3, 2, 9, BLOCK, 2, 4), MODEL)
    taught_more = KvCache(BlockPool(9), torch.randn(2, 2, 9, BLOCK, 2, 4), bytes(HASH_BYTES))
    for other in (deeper, taught_more):
        with pytest.raises(TransferFailed, match="another model"):
            adopted(other, prompt, copied(source, prompt))
        assert other.pool.cached_blocks == 0
    names, values = torch.ones(2, 4, dtype=torch.bfloat16)
    nameless, of_halves = ({"values": values.clone()}, {"names": names.clone(), "values": values.clone()})
    for none in (b"<html>", *map(safetensors.torch.save, (nameless, of_halves))):
        with pytest.raises(TransferFailed, match="no file of blocks"):
            Carried.from_bytes(none)
