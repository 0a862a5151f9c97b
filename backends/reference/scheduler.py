"""Which tokens run in the next step: continuous batching with chunked prefill and preemption.

    waiting  [ d e ]   --admit: match prefix, hold blocks-->   running [ a b c ]   --finish/abort-->  gone
                 ^------------- preempt: let go of all blocks, start over ----------'

A step has a budget of tokens, given out in the order of admission: a decoding request takes one, a prefilling one a
chunk of what is left; then waiting requests are admitted, first come first served, when the blocks for all their tokens
are free. Whoever leaves a part of its prompt for later has used up the budget, so nobody is admitted behind it: only
the youngest is ever inside its prefill, and a long prompt never stops the decoding of those before it.

When a running request needs a block and none is free, the youngest running request is preempted: it lets go of its
blocks (they stay findable until reused) and goes back to the head of the queue. The oldest one can preempt all others,
and the engine refuses requests that exceed the whole pool, so the oldest always advances: no deadlock.

Invariants: a request is in exactly one of `waiting` and `running`; waiting ones hold no block; what a request found in
the cache is noted once, at its first admission. No torch, no clock: a pure state machine over the block pool.

Costs: a plan is O(running + blocks touched); removing a request is O(running + waiting).
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from backends.reference.block_pool import BlockPool
from backends.reference.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Slice:
    """`count` tokens of `sequence` from position `start`, to run through the model in this step."""

    sequence: Sequence
    start: int
    count: int

    @property
    def end(self) -> int:
        """Position after the last token of the slice."""
        return self.start + self.count

    @property
    def is_complete(self) -> bool:
        """Whether the slice ends with the last known token, so that the next one can be sampled."""
        return self.end == len(self.sequence.tokens)


class Scheduler:
    """Owns the waiting and running requests of one engine; used from one thread."""

    def __init__(self, pool: BlockPool, *, block_size: int, max_num_seqs: int, max_batched_tokens: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._max_num_seqs = max_num_seqs
        self._max_batched_tokens = max_batched_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a request. The caller has checked that prompt and output fit the whole pool."""
        self.waiting.append(sequence)

    def plan(self) -> list[Slice]:
        """The slices of the next step, with blocks for all of them; empty only when there is no work."""
        slices: list[Slice] = []
        budget = self._max_batched_tokens
        # Preempting shortens the list from its end while this loop runs, so it reaches only those who stay.
        for sequence in self.running:
            count = min(sequence.pending_tokens, budget)
            assert count > 0, "each running request needs a token of the budget"
            if self._make_room(sequence, count):
                slices.append(self._take(sequence, count))
                budget -= count
        # After a preemption this admits nobody: what is left of the freed blocks is less than the victim let go of.
        self._admit(slices, budget)
        return slices

    def commit(self, slices: Iterable[Slice]) -> None:
        """The slices ran: their keys and values are in the cache, and completed blocks become findable."""
        for one in slices:
            one.sequence.computed_tokens = one.end
            self._publish(one.sequence)

    def lend(self, one: Slice, count: int) -> int:
        """Blocks for up to `count` tokens behind a slice of the plan, for tokens that may turn out to be none; returns
        for how many there are. Nobody is preempted for them, and they stay in the table."""
        sequence = one.sequence
        while len(sequence.blocks) < self._blocks_for(one.end + count) and self._pool.free_blocks:
            sequence.blocks.append(self._pool.allocate())
        return min(count, len(sequence.blocks) * self._block_size - one.end)

    def advance(self, sequence: Sequence) -> None:
        """All tokens of a running request are computed: it goes on behind them."""
        sequence.computed_tokens = len(sequence.tokens)
        self._publish(sequence)

    def remove(self, sequence: Sequence) -> None:
        """The request is finished or aborted: forget it and let go of its blocks."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._let_go(sequence)

    def _admit(self, slices: list[Slice], budget: int) -> None:
        while self.waiting and len(self.running) < self._max_num_seqs and budget > 0:
            sequence = self.waiting[0]
            found = self._pool.match(sequence.reusable_chain())
            blocks = self._blocks_for(len(sequence.tokens))
            if blocks - len(found) > self._pool.free_blocks - self._pool.free_among(found):
                return
            self.running.append(self.waiting.popleft())
            self._pool.hold(found)
            sequence.blocks = found
            sequence.published_blocks = len(found)
            sequence.computed_tokens = len(found) * self._block_size
            if sequence.cached_tokens is None:
                sequence.cached_tokens = sequence.computed_tokens
            count = min(sequence.pending_tokens, budget)
            slices.append(self._take(sequence, count))
            budget -= count

    def _take(self, sequence: Sequence, count: int) -> Slice:
        end = sequence.computed_tokens + count
        while len(sequence.blocks) < self._blocks_for(end):
            sequence.blocks.append(self._pool.allocate())
        return Slice(sequence, sequence.computed_tokens, count)

    def _make_room(self, sequence: Sequence, count: int) -> bool:
        """Preempt the youngest until `sequence` can take `count` tokens; False when it had to go itself."""
        needed = self._blocks_for(sequence.computed_tokens + count) - len(sequence.blocks)
        while self._pool.free_blocks < needed:
            victim = self.running.pop()
            self._let_go(victim)
            victim.preemptions += 1
            self.preemptions += 1
            self.waiting.appendleft(victim)
            if victim is sequence:
                return False
        return True

    def _let_go(self, sequence: Sequence) -> None:
        self._pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.published_blocks = 0
        sequence.computed_tokens = 0

    def _publish(self, sequence: Sequence) -> None:
        start, end = sequence.published_blocks, sequence.computed_tokens // self._block_size
        for index in range(start, end):
            block = sequence.blocks[index]
            sequence.blocks[index] = self._pool.publish(block, sequence.hash_of(index))
            if sequence.blocks[index] != block:
                self._tell(sequence, start, index)
                start = index + 1
            elif (index + 1) * self._block_size <= sequence.prompt_tokens and sequence.preemptions == 0:
                sequence.created_cache_tokens += self._block_size
        self._tell(sequence, start, end)
        sequence.published_blocks = end

    def _tell(self, sequence: Sequence, start: int, end: int) -> None:
        """The blocks `start` to `end` are new in the cache."""
        if start < end:
            names = [sequence.hash_of(index) for index in range(start, end)]
            parent = sequence.hash_of(start - 1) if start else None
            tokens = sequence.tokens[start * self._block_size : end * self._block_size]
            self._pool.listener.stored(names, parent, tokens, sequence.request.cache_salt)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_size)
