"""The paged decoder computes what a plain forward pass computes, however work is cut and wherever blocks lie."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.weights import ModelWeights
from tests.backends.reference.micro_model import micro_weights
from tests.backends.reference.naive_llama import naive_logits

VOCAB = 50
BLOCK = 4
KV_BLOCKS = 24
WEIGHTS = micro_weights(vocab=VOCAB)
PROMPT = [(7 * i + i * i) % VOCAB for i in range(26)]
EXPECTED = naive_logits(WEIGHTS, PROMPT)


def new_decoder(weights: ModelWeights = WEIGHTS) -> PagedDecoder:
    return PagedDecoder(weights, kv_blocks=KV_BLOCKS, block_size=BLOCK, max_positions=64)


@dataclass
class Run:
    """One sequence run through a decoder in chunks that end at `cuts`."""

    tokens: list[int]
    cuts: list[int]
    blocks: list[int]
    logits: dict[int, Tensor] = field(default_factory=dict)

    def chunks(self) -> list[Chunk]:
        edges = [0, *self.cuts, len(self.tokens)]
        return [
            Chunk(self.tokens[start:end], start, self.blocks[: -(-end // BLOCK)], wants_logits=True)
            for start, end in pairwise(edges)
        ]


def assert_as_expected(logits: Tensor, end: int, expected: Tensor = EXPECTED) -> None:
    torch.testing.assert_close(logits.double(), expected[end - 1], rtol=1e-4, atol=1e-4)


cuts = st.sets(st.integers(1, len(PROMPT) - 1)).map(sorted)


@settings(max_examples=40, deadline=None)
@given(cuts=cuts, blocks=st.permutations(range(KV_BLOCKS)))
def test_any_chunk_boundaries_and_any_blocks_give_the_same_logits(cuts: list[int], blocks: list[int]) -> None:
    decoder = new_decoder()
    for chunk in Run(PROMPT, cuts, list(blocks)).chunks():
        [logits] = decoder.forward([chunk])
        assert_as_expected(logits, chunk.start + len(chunk.tokens))


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, len(PROMPT)), min_size=2, max_size=3), data=st.data())
def test_requests_in_one_batch_do_not_see_each_other(lengths: list[int], data: st.DataObject) -> None:
    decoder = new_decoder()
    runs = [
        Run(PROMPT[:length], [cut for cut in data.draw(cuts) if cut < length], list(range(i * 8, i * 8 + 8)))
        for i, length in enumerate(lengths)
    ]
    queues = [run.chunks() for run in runs]
    while any(queues):
        batch = [queue.pop(0) for queue in queues if queue]
        for chunk, logits in zip(batch, decoder.forward(batch), strict=True):
            assert_as_expected(logits, chunk.start + len(chunk.tokens))


@pytest.mark.parametrize("shared_blocks", [1, 3, 6])
def test_a_prefix_computed_by_another_request_is_as_good_as_ones_own(shared_blocks: int) -> None:
    decoder = new_decoder()
    shared = shared_blocks * BLOCK
    decoder.forward([Chunk([*PROMPT[:shared], 1, 2, 3], 0, range(8), wants_logits=True)])
    table = [*range(shared_blocks), *range(10, 10 + 8 - shared_blocks)]
    [logits] = decoder.forward([Chunk(PROMPT[shared:], shared, table, wants_logits=True)])
    assert_as_expected(logits, len(PROMPT))


def test_cached_keys_and_values_are_read_not_recomputed() -> None:
    """The counter-proof: with another prefix in the blocks, the logits are the other prefix's."""
    decoder = new_decoder()
    other = [VOCAB - 1 - token for token in PROMPT[:8]]
    decoder.forward([Chunk(other, 0, range(2), wants_logits=False)])
    [logits] = decoder.forward([Chunk(PROMPT[8:], 8, range(7), wants_logits=True)])
    assert_as_expected(logits, len(PROMPT), naive_logits(WEIGHTS, [*other, *PROMPT[8:]]))


def test_logits_come_only_for_the_chunks_that_want_them() -> None:
    decoder = new_decoder()
    chunks = [
        Chunk(PROMPT[:5], 0, range(2), wants_logits=False),
        Chunk(PROMPT[:3], 0, range(2, 3), wants_logits=True),
    ]
    logits = decoder.forward(chunks)
    assert logits.shape == (1, VOCAB)
    assert_as_expected(logits[0], 3)


def test_what_was_never_written_is_never_read() -> None:
    decoder = new_decoder()
    decoder._kv.fill_(float("nan"))
    for chunk in Run(PROMPT, [5, 6, 17], list(range(8))).chunks():
        [logits] = decoder.forward([chunk])
        assert_as_expected(logits, chunk.start + len(chunk.tokens))
