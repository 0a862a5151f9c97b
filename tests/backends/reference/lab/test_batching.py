"""Whatever is under the batch or decides over it, each request gets the tokens that it would get alone."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.block_pool import BlockPool
from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.lab.contiguous import ContiguousDecoder
from backends.reference.lab.loop import Batcher, Decoder, Work, greedily, run
from backends.reference.lab.quality import greedy
from backends.reference.lab.reservation import reserved
from backends.reference.lab.static_batches import StaticBatches
from backends.reference.scheduler import Scheduler
from backends.reference.sequence import Sequence
from backends.reference.types import GenerationRequest, RequestId, SamplingParams
from tests.backends.reference.micro_model import micro_weights

VOCAB = 50
WEIGHTS = micro_weights(vocab=VOCAB)
LONGEST = 32
TOKENS = [(7 * i + i * i) % VOCAB for i in range(LONGEST)]


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.sets(st.integers(1, LONGEST - 1)).map(sorted),
    block=st.sampled_from([1, 2, 4, 8]),
    table=st.permutations(range(LONGEST)),
    slot=st.integers(0, 2),
)
def test_attention_over_any_block_table_is_attention_over_one_stretch(
    cuts: list[int], block: int, table: list[int], slot: int
) -> None:
    paged = PagedDecoder(WEIGHTS, kv_blocks=LONGEST, block_size=block, max_positions=LONGEST)
    whole = ContiguousDecoder(WEIGHTS, slots=3, max_positions=LONGEST)
    for start, end in itertools.pairwise([0, *cuts, LONGEST]):
        tokens = TOKENS[start:end]
        count = len(tokens)
        found = paged.forward([Chunk(tokens, start, table[: -(-end // block)], wants_logits=True, tail=count)])
        expected = whole.forward([Chunk(tokens, start, (slot,), wants_logits=True, tail=count)])
        assert len(found) == count
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


works = st.lists(
    st.builds(
        Work,
        prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20).map(tuple),
        output_tokens=st.integers(1, 10),
        at_step=st.integers(0, 6),
    ),
    min_size=1,
    max_size=6,
).map(lambda load: sorted(load, key=lambda work: work.at_step))


def scheduler(*, blocks: int, block_size: int, budget: int) -> Scheduler:
    return Scheduler(BlockPool(blocks), block_size=block_size, max_num_seqs=4, max_batched_tokens=budget)


@settings(max_examples=25, deadline=None)
@given(load=works, budget=st.sampled_from([4, 7, 64]), way=st.sampled_from(["paged", "contiguous", "static"]))
def test_every_way_to_batch_gives_the_answers_of_one_request_alone(load: list[Work], budget: int, way: str) -> None:
    block = LONGEST if way == "contiguous" else 4
    blocks = 4 if way == "contiguous" else 24
    inner = scheduler(blocks=blocks, block_size=block, budget=budget)
    batcher: Batcher = StaticBatches(inner, 3) if way == "static" else inner
    decoder: Decoder = PagedDecoder(WEIGHTS, kv_blocks=blocks, block_size=block, max_positions=LONGEST)
    if way == "contiguous":
        decoder = ContiguousDecoder(WEIGHTS, slots=blocks, max_positions=LONGEST)
    ticks = itertools.count()
    served = run(batcher, greedily(decoder), load, lambda: float(next(ticks)), block)
    assert [one.tokens for one in served] == [greedy(WEIGHTS, work.prompt, work.output_tokens) for work in load]
    assert not batcher.has_work
    for one in served:
        assert one.times_s == sorted(one.times_s)
        assert one.times_s[0] > one.arrived_s


def test_a_static_batch_lets_nobody_in_before_its_longest_is_done() -> None:
    load = [Work((1, 2), 2), Work((3, 4), 9), Work((5, 6), 1)]
    ticks = itertools.count()
    batcher = StaticBatches(scheduler(blocks=24, block_size=4, budget=64), 2)
    decoder = PagedDecoder(WEIGHTS, kv_blocks=24, block_size=4, max_positions=LONGEST)
    first, longest, late = run(batcher, greedily(decoder), load, lambda: float(next(ticks)), 4)
    assert first.times_s[-1] < longest.times_s[-1] < late.times_s[0]


def test_a_waiting_request_can_leave_a_static_batcher() -> None:
    batcher = StaticBatches(scheduler(blocks=24, block_size=4, budget=64), 1)
    here, waiting = (
        Sequence(GenerationRequest(RequestId(name), (1, 2), SamplingParams(max_tokens=1)), 4) for name in "ab"
    )
    batcher.add(here)
    batcher.add(waiting)
    assert [one.sequence for one in batcher.plan()] == [here]
    batcher.remove(waiting)
    assert batcher.has_work
    batcher.remove(here)
    assert not batcher.has_work


LOAD = [Work(tuple(range(number, number + 10 + number)), 5 + 3 * number) for number in range(12)]


def test_stretches_for_the_longest_waste_more_than_blocks_and_let_fewer_run() -> None:
    contiguous = reserved(LOAD, capacity_tokens=256, block_size=64, at_once=12)
    paged = reserved(LOAD, capacity_tokens=256, block_size=4, at_once=12)
    assert contiguous.running <= 4 < paged.running
    assert paged.wasted < 0.2 < contiguous.wasted
    assert paged.steps < contiguous.steps


def test_blocks_of_one_token_waste_nothing() -> None:
    assert reserved(LOAD, capacity_tokens=256, block_size=1, at_once=12).wasted == 0


def test_what_does_not_fit_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit 2 blocks of 16"):
        reserved([Work(tuple(range(30)), 5)], capacity_tokens=32, block_size=16, at_once=1)
