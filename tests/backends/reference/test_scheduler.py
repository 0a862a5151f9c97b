"""The scheduler with a pretended model: what a request reads from the cache is what it would have computed itself."""

from collections.abc import Iterator
from collections.abc import Sequence as Run

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference.block_pool import BlockPool, block_hash, root_hash
from backends.reference.scheduler import Scheduler, Slice
from backends.reference.sequence import Sequence
from backends.reference.types import BlockHash, BlockId, GenerationRequest, RequestId, SamplingParams

BLOCK = 2
names = iter(range(10**9))


def new_sequence(prompt: list[int], *, outputs: int = 1, salt: str = "") -> Sequence:
    request = GenerationRequest(
        RequestId(str(next(names))), tuple(prompt), SamplingParams(max_tokens=outputs, temperature=0), cache_salt=salt
    )
    return Sequence(request, BLOCK)


class Follower:
    """Knows the cache by what it hears, and believes nothing that does not fit."""

    def __init__(self) -> None:
        self.held: dict[BlockHash, BlockHash | None] = {}

    def stored(self, names: Run[BlockHash], parent: BlockHash | None, tokens: Run[int], salt: str) -> None:
        assert names
        assert len(tokens) == len(names) * BLOCK
        assert parent is None or parent in self.held
        for index, name in enumerate(names):
            above = parent or root_hash(salt)
            assert block_hash(above, tokens[index * BLOCK : (index + 1) * BLOCK]) == name
            assert name not in self.held
            self.held[name] = parent
            parent = name

    def removed(self, name: BlockHash) -> None:
        del self.held[name]
        assert name not in self.held.values(), "a head died before its tail"

    def cleared(self) -> None:
        self.held.clear()


class Pretend:
    """A "model" whose keys and values are the prefix itself: any wrong, stale or foreign block shows at once."""

    def __init__(self, *, blocks: int, max_num_seqs: int = 4, max_batched_tokens: int = 5) -> None:
        self.follower = Follower()
        self.pool = BlockPool(blocks, self.follower)
        self.max_batched_tokens = max_batched_tokens
        self.max_num_seqs = max_num_seqs
        self.scheduler = Scheduler(
            self.pool, block_size=BLOCK, max_num_seqs=max_num_seqs, max_batched_tokens=max_batched_tokens
        )
        self.cache: dict[tuple[BlockId, int], tuple[str, tuple[int, ...]]] = {}
        self.computed_by: dict[Sequence, int] = {}
        self.finished: list[Sequence] = []

    def step(self) -> list[Slice]:
        slices = self.scheduler.plan()
        assert sum(one.count for one in slices) <= self.max_batched_tokens
        assert len(self.scheduler.running) <= self.max_num_seqs
        assert all(not waiting.blocks for waiting in self.scheduler.waiting)
        written: list[tuple[BlockId, int]] = []
        for one in slices:
            written += self.run(one)
        assert len(written) == len(set(written)), "two requests wrote to one place"
        self.scheduler.commit(slices)
        for one in slices:
            sequence = one.sequence
            if sequence.pending_tokens == 0:
                sequence.tokens.append(sum(sequence.tokens) % 3)
                if sequence.output_tokens == sequence.request.sampling.max_tokens:
                    self.scheduler.remove(sequence)
                    self.finished.append(sequence)
        held = {block for one in self.scheduler.running for block in one.blocks}
        assert self.pool.held_blocks == len(held)
        self.check_what_was_told()
        return slices

    def check_what_was_told(self) -> None:
        assert len(self.follower.held) == self.pool.cached_blocks
        assert all(self.pool.match([name]) for name in self.follower.held)

    def run(self, one: Slice) -> Iterator[tuple[BlockId, int]]:
        sequence = one.sequence
        for position in range(one.start):
            assert self.cache[self.slot(sequence, position)] == self.content(sequence, position)
        for position in range(one.start, one.end):
            self.cache[self.slot(sequence, position)] = self.content(sequence, position)
            self.computed_by[sequence] = self.computed_by.get(sequence, 0) + 1
            yield self.slot(sequence, position)

    def slot(self, sequence: Sequence, position: int) -> tuple[BlockId, int]:
        return sequence.blocks[position // BLOCK], position % BLOCK

    def content(self, sequence: Sequence, position: int) -> tuple[str, tuple[int, ...]]:
        return sequence.request.cache_salt, tuple(sequence.tokens[: position + 1])

    def run_to_the_end(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            assert self.step(), "work is left, but nothing advances"
        pytest.fail("the scheduler never finished")


requests = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=7), st.integers(1, 5), st.sampled_from(["", "", "tenant"])
)


@settings(max_examples=150, deadline=None)
@given(
    arrivals=st.lists(st.one_of(requests, st.just("step"), st.just("abort")), max_size=14),
    blocks=st.integers(6, 9),
    max_num_seqs=st.integers(1, 4),
    spare_tokens=st.integers(0, 5),
)
def test_every_request_finishes_with_what_it_would_have_computed_alone(
    arrivals: list[tuple[list[int], int, str] | str], blocks: int, max_num_seqs: int, spare_tokens: int
) -> None:
    pretend = Pretend(blocks=blocks, max_num_seqs=max_num_seqs, max_batched_tokens=max_num_seqs + spare_tokens)
    added: list[Sequence] = []
    aborted: list[Sequence] = []
    for arrival in arrivals:
        if isinstance(arrival, tuple):
            prompt, outputs, salt = arrival
            added.append(new_sequence(prompt, outputs=outputs, salt=salt))
            pretend.scheduler.add(added[-1])
        elif arrival == "step" and pretend.scheduler.has_work:
            pretend.step()
        elif arrival == "abort" and pretend.scheduler.has_work:
            victim = [*pretend.scheduler.running, *pretend.scheduler.waiting][-1]
            pretend.scheduler.remove(victim)
            aborted.append(victim)
    pretend.run_to_the_end()
    assert {*pretend.finished, *aborted} == {*added}
    assert pretend.pool.free_blocks == blocks
    assert pretend.pool.forget()
    pretend.check_what_was_told()
    for sequence in pretend.finished:
        assert sequence.cached_tokens is not None
        assert sequence.cached_tokens % BLOCK == 0
        assert sequence.cached_tokens <= (sequence.prompt_tokens - 1) // BLOCK * BLOCK
        if sequence.preemptions == 0:
            # The last sampled token is never computed.
            assert pretend.computed_by[sequence] == len(sequence.tokens) - 1 - sequence.cached_tokens
            assert sequence.created_cache_tokens <= sequence.prompt_tokens - sequence.cached_tokens


def test_a_full_hit_still_computes_the_last_block() -> None:
    pretend = Pretend(blocks=8)
    pretend.scheduler.add(new_sequence([1, 0, 1, 0]))
    pretend.run_to_the_end()
    again = new_sequence([1, 0, 1, 0])
    pretend.scheduler.add(again)
    pretend.run_to_the_end()
    assert (again.cached_tokens, pretend.computed_by[again], again.created_cache_tokens) == (2, 2, 0)


def test_blocks_completed_while_decoding_serve_the_next_turn() -> None:
    pretend = Pretend(blocks=8)
    first = new_sequence([1, 0, 1], outputs=5)
    pretend.scheduler.add(first)
    pretend.run_to_the_end()
    next_turn = new_sequence([*first.tokens, 1])
    pretend.scheduler.add(next_turn)
    pretend.run_to_the_end()
    # 8 tokens, the last one never computed: 3 whole blocks.
    assert next_turn.cached_tokens == 6


def test_decodes_go_on_while_a_long_prompt_is_computed() -> None:
    pretend = Pretend(blocks=32, max_batched_tokens=4)
    talker = new_sequence([1, 1], outputs=20)
    pretend.scheduler.add(talker)
    pretend.step()
    reader = new_sequence([0] * 20)
    pretend.scheduler.add(reader)
    while reader not in pretend.finished:
        before = talker.output_tokens
        pretend.step()
        assert talker.output_tokens == before + 1


def test_the_youngest_gives_way_when_blocks_run_out() -> None:
    pretend = Pretend(blocks=4, max_batched_tokens=8)
    old, young = new_sequence([1, 1, 1], outputs=5), new_sequence([0, 0, 0], outputs=5)
    pretend.scheduler.add(old)
    pretend.scheduler.add(young)
    pretend.run_to_the_end()
    assert (old.preemptions, young.preemptions > 0) == (0, True)
    assert pretend.finished == [old, young]
    assert pretend.scheduler.preemptions == young.preemptions


def test_a_preempted_request_waits_first_in_line_and_not_for_nothing() -> None:
    pretend = Pretend(blocks=4, max_batched_tokens=8, max_num_seqs=2)
    old, young, late = new_sequence([1, 1, 1], outputs=5), new_sequence([0, 0, 0], outputs=5), new_sequence([0])
    for sequence in (old, young, late):
        pretend.scheduler.add(sequence)
    while young.preemptions == 0:
        pretend.step()
    # Admitted again in the same step, it would take the blocks it was preempted for.
    assert pretend.scheduler.running == [old]
    assert list(pretend.scheduler.waiting) == [young, late]
    pretend.run_to_the_end()


def test_a_preempted_request_keeps_its_first_receipt() -> None:
    pretend = Pretend(blocks=4, max_batched_tokens=8)
    old, young = new_sequence([1, 1, 1], outputs=5), new_sequence([0, 0, 0], outputs=5)
    pretend.scheduler.add(old)
    pretend.scheduler.add(young)
    pretend.run_to_the_end()
    assert young.preemptions > 0
    assert young.cached_tokens == 0


def test_requests_wait_their_turn_even_when_a_smaller_one_would_fit() -> None:
    pretend = Pretend(blocks=4, max_batched_tokens=8)
    running, big, small = new_sequence([1] * 5, outputs=3), new_sequence([0] * 7), new_sequence([0])
    for sequence in (running, big, small):
        pretend.scheduler.add(sequence)
    pretend.step()
    assert list(pretend.scheduler.waiting) == [big, small]
    pretend.run_to_the_end()
    assert pretend.finished.index(big) < pretend.finished.index(small)
