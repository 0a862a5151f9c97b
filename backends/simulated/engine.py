"""One engine under a virtual clock: a queue, a running batch, a KV cache, and steps that take the seconds they would.

    submit ─> waiting ─(room for its blocks)─> prefilling ─(last chunk)─> decoding ─(last token)─> gone
                 ^                                  │                        │
                 └───────── preempted: all its blocks freed, computed again ─┘

What a step is: one token for every answer being written, and chunks of prompts up to `chunk_tokens`, first come first
served. It takes `PerfModel.decode_step_s` of the answers, and for each chunk `tokens / rate + quad * tokens * prompt`:
the chunks of a prompt add up to `PerfModel.prefill_s`, its base being due once, at its start. A request is admitted
when there is room for all its prompt; what of it is cached is reused, save for its last token. If a step finds no block
for an answer, the youngest request is preempted, and nobody is admitted in that step.

What is simplified stands in the package's docstring.

Steps run when the clock is moved past them, and are not looked at one by one: as long as nobody comes, ends or lacks a
block, a `Stride` of them is one step here. A step that has begun goes on: who comes meanwhile waits for its end.
"""

from collections import deque
from math import inf

from backends.disaggregated import Role
from backends.simulated.decoding import Decoding
from backends.simulated.kv_cache import CacheListener, KvCache
from backends.simulated.requests import Active, LoadSample, Work, check_job
from backends.simulated.stride import Chunk, Stride
from backends.simulated.types import Dropped, EngineEvent, EngineSpec, Finished, FirstToken, Job


class SimulatedEngine:
    """An engine of a spec. Every call with a time first lets happen what happens until then; time never goes back.

    Events are kept until `advance` hands them over. Cost: a constant number of dictionary and heap operations for each
    chunk and each stride, whatever the number of steps and of answers.
    """

    __slots__ = (
        "_actives",
        "_admissions",
        "_cache",
        "_decoding",
        "_doomed",
        "_events",
        "_firsts",
        "_held",
        "_listener",
        "_max_running",
        "_prefilling",
        "_prefix_hits",
        "_prefix_queries",
        "_running",
        "_stride",
        "_transfers",
        "_up_at_s",
        "_waiting",
        "name",
        "spec",
        "work",
    )

    def __init__(self, spec: EngineSpec, name: str, listener: CacheListener | None = None) -> None:
        self.spec = spec
        self.name = name
        self.work = Work()
        self._listener = listener
        self._max_running = spec.batch()
        self._up_at_s = 0.0
        self._events: list[EngineEvent] = []
        self._admissions = 0
        self._empty()

    def _empty(self) -> None:
        """As just started: nothing cached, nobody there."""
        self._cache = KvCache(self.spec.capacity_blocks, self.spec.host_blocks, self._listener)
        self._decoding = Decoding(self.spec.block_size)
        self._actives: dict[int, Active] = {}
        self._held: dict[int, Active] = {}
        self._waiting: deque[Active] = deque()
        self._running: list[Active] = []
        self._prefilling: Active | None = None
        self._transfers: list[Active] = []
        self._firsts: list[Active] = []
        self._doomed: list[Active] = []
        self._stride: Stride | None = None
        self._prefix_hits = 0
        self._prefix_queries = 0

    def available(self, now_s: float) -> bool:
        """Whether it takes requests: False while it starts."""
        return now_s >= self._up_at_s

    def submit(self, job: Job, now_s: float) -> None:
        """Queue a job. Dropped at once if the engine is starting, or could never hold it.

        Raises `ValueError` for a job without a token, with more blocks than whole ones, or whose number is in use.
        """
        check_job(job, self.spec.block_size, job.number in self._actives or job.number in self._held)
        self._catch_up(now_s)
        output_tokens = 1 if self.spec.role is Role.PREFILL else job.output_tokens
        too_long = self.spec.blocks_for(job.prompt_tokens + output_tokens - 1) > self.spec.capacity_blocks
        if too_long or not self.available(now_s):
            self._events.append(Dropped(job.number, now_s, too_long))
            return
        one = Active(job, output_tokens, job.transferred or self.spec.role is Role.DECODE)
        self._actives[job.number] = one
        self._waiting.append(one)
        if len(self._waiting) == 1:
            self._interrupt(now_s)

    def abort(self, number: int, now_s: float) -> None:
        """The client has left: no further event of this job. Its blocks are freed at the end of the step. Nothing
        happens if it has ended or was never there."""
        self._catch_up(now_s)
        one = self._actives.pop(number, None)
        if one is None:
            return
        one.gone = True
        if one.order == 0 or one not in self._running:
            self._waiting.remove(one)
        else:
            self._doomed.append(one)
        self._interrupt(now_s)

    def let_go(self, number: int, now_s: float) -> bool:
        """Free the prompt's blocks that a job with `hold` still has after its end. False: it holds none."""
        self._catch_up(now_s)
        one = self._held.pop(number, None)
        if one is not None:
            self._cache.release(one.job.blocks, one.names, one.published, 0)
            self._interrupt(now_s)
        return one is not None

    def written_tokens(self, number: int, now_s: float) -> int:
        """Tokens of a job's answer that are out now, 0 before its first. Raises `KeyError` if it is not here."""
        self._catch_up(now_s)
        one, stride = self._actives[number], self._stride
        written = one.written
        if one.joined_step is not None:
            written += self._decoding.step - one.joined_step
            if stride is not None and stride.steps > 1:
                written += stride.steps_after(now_s) - 1
        return written

    def step_end_s(self, now_s: float) -> float:
        """When the step in progress ends, `inf` if none runs."""
        self._catch_up(now_s)
        stride = self._stride
        return inf if stride is None else stride.end_of(stride.steps_after(now_s) if stride.steps else 0)

    def next_s(self) -> float:
        """When `advance` may have something to say, `inf` if never without a further job. It may turn out to be nothing
        (a chunk of a long prompt is done); then ask again."""
        if self._events:
            return self._events[0].at_s
        return inf if self._stride is None else self._stride.end_s

    def advance(self, now_s: float) -> list[EngineEvent]:
        """Everything that has become visible up to and including now, in order of time, each once."""
        self._catch_up(now_s)
        events = self._events
        if events:
            self._events = []
        return events

    def restart(self, now_s: float) -> None:
        """The process dies and comes back after `spec.start_s`: all jobs are dropped, nothing is cached."""
        self._catch_up(now_s)
        if self._stride is not None and self._stride.steps:
            self.work.busy_s += now_s - self._stride.start_s
        self._events.extend(Dropped(number, now_s) for number in self._actives)
        self._up_at_s = now_s + self.spec.start_s
        self._empty()

    def sample(self, now_s: float) -> LoadSample:
        """What its metrics say now, blocks taken in the middle of a stride included. O(block size)."""
        self._catch_up(now_s)
        held = self._cache.held_blocks
        stride = self._stride
        if stride is not None and stride.steps > 1:
            held += self._decoding.new_blocks(stride.steps_after(now_s)) - self._decoding.new_blocks(1)
        return LoadSample(
            running=len(self._running) - len(self._doomed),
            waiting=len(self._waiting),
            kv_use=held / self.spec.capacity_blocks,
            prefix_hits=self._prefix_hits,
            prefix_queries=self._prefix_queries,
        )

    def cached_blocks(self, blocks: bytes) -> int:
        """The leading run of a chain that a prompt would find, as of the last stride's end. O(log blocks)."""
        return self._cache.cached_blocks(blocks)

    def _catch_up(self, now_s: float) -> None:
        """Let all strides happen that end by now."""
        while (stride := self._stride) is not None and stride.end_s <= now_s:
            end_s = stride.end_s
            if stride.steps:
                self._commit(stride, end_s)
            self._plan(end_s)

    def _interrupt(self, now_s: float) -> None:
        """Something changed: look at it when the step in progress ends, at once if there is none."""
        if self._stride is None or not self._stride.steps:
            self._plan(now_s)
        elif self._stride.steps > 1:
            self._stride.steps = self._stride.steps_after(now_s)

    def _commit(self, stride: Stride, end_s: float) -> None:
        """The steps of a stride are done."""
        self.work.busy_s += end_s - stride.start_s
        decoding = self._decoding
        answers = decoding.answers
        if answers:
            if stride.steps > 1:  # the blocks of its first step were taken when it was planned
                self._cache.grow(decoding.new_blocks(stride.steps) - decoding.new_blocks(1))
            decoding.step += stride.steps
            self.work.output_tokens += answers * stride.steps
            for one in self._firsts:
                if not one.gone:
                    self._say_first(one, end_s)
            self._firsts.clear()
            while (complete := decoding.pop_complete()) is not None:
                self._end(complete, end_s)
        for chunk in stride.chunks:
            self._computed(chunk.one, chunk.tokens, end_s)

    def _plan(self, now_s: float) -> None:
        """Decide on the next stride, which starts now."""
        for one in self._doomed:
            self._leave(one)
        self._doomed.clear()
        if self._transfers:
            self._join_transferred(now_s)
        preempted = self._make_room()
        chunks: list[Chunk] = []
        budget = self.spec.chunk_tokens - self._decoding.answers
        if self._prefilling is not None:
            budget -= self._add_chunk(chunks, self._prefilling, budget)
        if self._waiting and not preempted:
            self._admit(chunks, budget, now_s)
        self._stride = self._stride_of(chunks, now_s)
        if preempted and self._stride is not None and self._stride.steps:
            self._stride.steps = 1  # who waits gets another chance

    def _stride_of(self, chunks: list[Chunk], now_s: float) -> Stride | None:
        perf, decoding = self.spec.perf, self._decoding
        answers = decoding.answers
        step_s = perf.decode_step_s(answers, decoding.context_tokens) if answers else 0.0
        if chunks:
            return Stride(now_s, step_s + sum(chunk.seconds(perf) for chunk in chunks), chunks=chunks)
        if answers:
            stride = Stride(now_s, step_s, perf.itl_s_per_context_token * answers)
            stride.steps = self._steps_ahead(stride)
            return stride
        if self._transfers:
            ready_s = min(one.ready_s for one in self._transfers)
            return Stride(ready_s, 0.0, steps=0)
        return None

    def _steps_ahead(self, stride: Stride) -> int:
        """Steps until somebody ends, lacks a block, or arrives from a prefill engine."""
        decoding = self._decoding
        if self._firsts:
            return 1
        most = decoding.steps_to_end()
        if most > 1:
            most = decoding.steps_within(self._cache.free_blocks + decoding.new_blocks(1), most)
        if self._transfers and most > 1:
            stride.steps = most
            ready_s = min(one.ready_s for one in self._transfers)
            most = stride.steps_until(ready_s)
        return most

    def _admit(self, chunks: list[Chunk], budget: int, now_s: float) -> None:
        """First come, first served, while there is room. Who needs further chunks has used up the budget."""
        cache = self._cache
        while self._waiting and budget > 0 and len(self._running) < self._max_running:
            one = self._waiting[0]
            tokens = one.job.prompt_tokens + one.written
            known = tokens - one.transferred
            held = cache.find(one.names, min(len(one.names), (tokens - 1) // self.spec.block_size))
            free = cache.free_blocks - cache.free_among(one.names, held.device)
            if self.spec.blocks_for(tokens) - held.device > free:
                return
            self._waiting.popleft()
            cache.take(one.names, held, self.spec.blocks_for(known))
            self._admissions += 1
            one.order = self._admissions
            one.known = known
            one.published = held.device + held.host
            one.computed = one.published * self.spec.block_size
            self._running.append(one)
            self._note_found(one, held.host * self.spec.block_size)
            if one.transferred:
                self.work.transferred_tokens += known - one.computed
                one.ready_s = now_s + one.delay_s + (known - one.computed) / self.spec.transfer_tokens_per_s
                self._transfers.append(one)
            else:
                self._prefilling = one
                budget -= self._add_chunk(chunks, one, budget)

    def _note_found(self, one: Active, host_tokens: int) -> None:
        one.delay_s = host_tokens / self.spec.host_tokens_per_s
        self.work.fetched_tokens += host_tokens
        if one.cached_tokens is None:
            one.cached_tokens, one.host_tokens = one.computed, host_tokens
            self._prefix_queries += one.job.prompt_tokens
            self._prefix_hits += one.computed
            if not one.transferred:
                one.delay_s += self.spec.perf.base_s

    def _add_chunk(self, chunks: list[Chunk], one: Active, budget: int) -> int:
        tokens = min(one.known - one.computed, budget)
        chunks.append(Chunk(one, tokens))
        if one.computed + tokens == one.known:
            self._prefilling = None
        return tokens

    def _computed(self, one: Active, tokens: int, end_s: float) -> None:
        """A chunk of a prompt is done: its blocks can be found; the last chunk gives a token."""
        self.work.uncached_tokens += tokens
        one.computed += tokens
        self._publish(one)
        if one.computed < one.known or one.gone:
            return
        self.work.output_tokens += 1
        if one.written == 0:
            self._say_first(one, end_s)
        one.written += 1
        if one.written == one.output_tokens:
            self._end(one, end_s)
        else:
            self._decoding.join(one)

    def _publish(self, one: Active) -> None:
        end = min(len(one.names), one.computed // self.spec.block_size)
        self._cache.publish(one.job.blocks, one.names, one.published, end)
        one.published = max(one.published, end)

    def _join_transferred(self, now_s: float) -> None:
        due = [one for one in self._transfers if one.ready_s <= now_s]
        self._transfers = [one for one in self._transfers if one.ready_s > now_s]
        for one in due:
            one.computed = one.known
            self._publish(one)
            self._decoding.join(one)
            if one.written == 0:
                self._firsts.append(one)

    def _say_first(self, one: Active, end_s: float) -> None:
        self._events.append(FirstToken(one.job.number, end_s, one.cached_tokens or 0, one.host_tokens))

    def _end(self, one: Active, end_s: float) -> None:
        if one.gone:
            return  # it leaves before the next step is planned
        one.computed = self._decoding.stored_tokens(one)
        self._publish(one)
        self._leave(one, keep=one.job.hold)
        del self._actives[one.job.number]
        self._events.append(Finished(one.job.number, end_s))

    def _make_room(self) -> bool:
        """Take the blocks of one step of all answers; preempt the youngest while there are too few."""
        decoding, cache = self._decoding, self._cache
        preempted = False
        while decoding.answers and (needed := decoding.new_blocks(1)) > cache.free_blocks:
            youngest = self._running[-1]
            self._leave(youngest)
            self._waiting.appendleft(youngest)
            self.work.preemptions += 1
            preempted = True
        if decoding.answers:
            cache.grow(needed)
        return preempted

    def _leave(self, one: Active, keep: bool = False) -> None:
        """It is no longer among the running ones, and its blocks are free; `keep`: all but those of its prompt."""
        self._running.remove(one)
        blocks = self.spec.blocks_for(self._decoding.stored_tokens(one))
        if one.joined_step is not None:
            self._decoding.leave(one)
        elif one is self._prefilling:
            self._prefilling = None
        elif one in self._transfers:
            self._transfers.remove(one)
        if one in self._firsts:
            self._firsts.remove(one)
        self._cache.release(one.job.blocks, one.names, 0 if keep else one.published, blocks - one.published)
        if keep:
            self._held[one.job.number] = one
        else:
            one.published = 0
        one.delay_s = 0.0
