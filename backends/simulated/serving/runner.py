"""The simulated engine under the real clock: requests go in, each hears of its tokens when they would be out.

    generate ──> Answering: written, finished, lost  <──tells── the pump <──advance── SimulatedEngine (one a rank)

One task, the pump, moves the engines' clocks from the end of one step to that of the next, and tells each answer how
many of its tokens are out. Everything else happens between two of its steps, on the same loop, so nothing is locked.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from backends.simulated.engine import SimulatedEngine
from backends.simulated.requests import LoadSample
from backends.simulated.serving.clock import EngineClock
from backends.simulated.serving.naming import Slots, block_names
from backends.simulated.serving.types import Record, Tally, Totals
from backends.simulated.types import Dropped, EngineSpec, Finished, FirstToken, Job

RECORDS_KEPT = 200_000
"""Of the latest requests: more than hours of a test leave behind."""
LONGEST_NAP_S = 0.5
"""So often chores are done though nothing else happens; in our seconds."""


@dataclass(frozen=True, slots=True)
class Note:
    """What is remembered of a request beside its tokens. `ends`: how it ends if nothing happens."""

    request_id: str
    adapter: str | None
    part: str
    ends: str


class Answering:
    """One answer in the making. `changed` is set whenever one of the others changes."""

    __slots__ = ("changed", "finished", "job", "lost", "parked", "rank", "tally", "written")

    def __init__(self, job: Job, rank: int, asked_s: float) -> None:
        self.job = job
        self.rank = rank
        self.tally = Tally(job.prompt_tokens, asked_s=asked_s)
        self.written = 0
        self.finished = False
        self.lost = False
        self.parked = False
        """Its prompt's blocks stay behind, and somebody sees to it that they are let go."""
        self.changed = asyncio.Event()

    async def more(self, than: int) -> int:
        """Tokens that are out, once they are more than so many, or once it has ended."""
        while self.written <= than and not self.finished and not self.lost:
            self.changed.clear()
            await self.changed.wait()
        return self.written


class Runner:
    """The ranks of one server, their counters, and what they remember of requests."""

    def __init__(self, spec: EngineSpec, ranks: int, clock: EngineClock, slots: int | None) -> None:
        self.spec = spec
        self.clock = clock
        self.engines = [SimulatedEngine(spec, f"rank {rank}") for rank in range(ranks)]
        self.totals = [Totals() for _ in range(ranks)]
        self.records: deque[Record] = deque(maxlen=RECORDS_KEPT)
        self._slots = None if slots is None else Slots(slots)
        self._slot_free = asyncio.Condition()
        self.deferred = 0
        self.chores: list[Callable[[float], None]] = []
        """Done in each round, with the engine's time."""
        self._answering: dict[int, Answering] = {}
        self._numbers = 0
        self._wake = asyncio.Event()

    def waiting(self) -> int:
        """Requests that wait, on all ranks."""
        return self.deferred + sum(self.sample(rank).waiting for rank in range(len(self.engines)))

    def sample(self, rank: int) -> LoadSample:
        """What a rank's gauges say now."""
        return self.engines[rank].sample(self.clock.now_s())

    def lightest(self) -> int:
        """The rank with the fewest requests."""
        loads = [self.sample(rank) for rank in range(len(self.engines))]
        return min(range(len(loads)), key=lambda rank: loads[rank].running + loads[rank].waiting)

    @contextmanager
    def generating(self, job: Job, rank: int, note: Note) -> Iterator[Answering]:
        """Run a job until the block is left; it is aborted where it has not ended by then, and recorded either way."""
        now_s = self.clock.now_s()
        one = Answering(job, rank, now_s)
        self._answering[job.number] = one
        self.engines[rank].submit(job, now_s)
        self._wake.set()
        try:
            yield one
        finally:
            del self._answering[job.number]
            if not one.finished and not one.lost:
                self._look(rank, one)
                self.engines[rank].abort(job.number, self.clock.now_s())
                self._wake.set()
            if job.hold and not one.parked:
                self.let_go(rank, job.number)
            self._record(one, note)

    async def named(
        self, ids: tuple[int, ...], answer: tuple[int, ...], namespace: str, wanted_slot: int | None = None
    ) -> tuple[int | None, bytes]:
        """The slot taken, if the engine has slots, and the names of the blocks of a prompt and of what is stored of its
        answer. Waits for an idle slot."""
        if self._slots is None:
            return None, block_names(ids + answer, self.spec.block_size, namespace)
        async with self._slot_free:
            self.deferred += 1
            try:
                while (taken := self._slots.take(ids, len(answer), wanted_slot)) is None:
                    await self._slot_free.wait()
            finally:
                self.deferred -= 1
        return taken

    async def slot_done(self, slot: int | None, answer: tuple[int, ...]) -> None:
        """The slot is idle again, and remembers what was stored of the answer."""
        if slot is not None and self._slots is not None:
            self._slots.give_back(slot, answer)
            async with self._slot_free:
                self._slot_free.notify_all()

    def let_go(self, rank: int, number: int) -> None:
        """The blocks that an ended job still holds are free."""
        self.engines[rank].let_go(number, self.clock.now_s())
        self._wake.set()

    def new_number(self) -> int:
        """A number that no other job has."""
        self._numbers += 1
        return self._numbers

    def rate_changed(self) -> None:
        """The clock runs at another rate from now on."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled: let the engines do what they would have done by now, then sleep to the next step's end."""
        while True:
            self._wake.clear()
            now_s = self.clock.now_s()
            next_s = inf
            for rank, engine in enumerate(self.engines):
                for event in engine.advance(now_s):
                    self._hear(rank, event)
                next_s = min(next_s, engine.step_end_s(now_s))
            for one in self._answering.values():
                self._look(one.rank, one)
            for chore in self.chores:
                chore(now_s)
            nap_s = min(self.clock.wait_s(next_s), LONGEST_NAP_S)
            try:
                async with asyncio.timeout(nap_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _look(self, rank: int, one: Answering) -> None:
        """Tell an answer how far it is."""
        if one.finished or one.lost:
            return
        try:
            written = self.engines[rank].written_tokens(one.job.number, self.clock.now_s())
        except KeyError:
            return  # it has just ended: the next round hears of it
        self._write(one, written)

    def _write(self, one: Answering, written: int) -> None:
        if written > one.written and one.tally.first_s:
            self.totals[one.rank].output_tokens += written - one.written
            one.written = one.tally.output_tokens = written
            one.tally.last_s = self.clock.now_s()
            one.changed.set()

    def _hear(self, rank: int, event: FirstToken | Finished | Dropped) -> None:
        one = self._answering.get(event.number)
        if one is None:
            return
        totals = self.totals[rank]
        if isinstance(event, FirstToken):
            one.tally.first_s = event.at_s
            one.tally.cached_tokens = event.cached_tokens
            one.tally.created_tokens = self._created(one)
            totals.prompt_tokens += one.job.prompt_tokens
            totals.cached_tokens += event.cached_tokens
            totals.first_token_s += event.at_s - one.tally.asked_s
            totals.first_tokens += 1
            self._write(one, 1)
        elif isinstance(event, Finished):
            self._write(one, one.job.output_tokens)
            totals.decode_s += event.at_s - one.tally.first_s
            one.finished = True
        else:
            one.lost = True
        one.changed.set()

    def _created(self, one: Answering) -> int:
        size = self.spec.block_size
        return max(0, one.job.prompt_tokens // size * size - one.tally.cached_tokens)

    def _record(self, one: Answering, note: Note) -> None:
        outcome = note.ends if one.finished else "lost" if one.lost else "abort"
        totals = self.totals[one.rank]
        totals.requests += 1
        totals.outcomes[outcome] += 1
        tally = one.tally
        tokens = (tally.prompt_tokens, tally.cached_tokens, tally.output_tokens)
        self.records.append(Record(note.request_id, one.rank, note.adapter, note.part, *tokens, outcome))
