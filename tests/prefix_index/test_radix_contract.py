"""One contract for every radix index, driven against a naive oracle: per holder and claim, the set of prefixes it has.

A chain here is a string over a tiny alphabet, one letter a block, so that prompts share prefixes all the time.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from prefix_index.radix import IN_ENGINE_MEMORY, RadixIndex
from prefix_index.types import Claim
from tests.prefix_index.subjects import SERVERS, InRedis, Subject, chain, runs_of

HOLDERS = ("a", "b", "c")
SEATS = [(holder, claim) for holder in HOLDERS for claim in Claim]
AMPLE = 10**6

prompts = st.text("xy", max_size=9) | st.integers(0, 40).map("x".__mul__) | st.text("xyz", max_size=30)
holders = st.sampled_from(HOLDERS)
claims = st.sampled_from([Claim.CONFIRMED, Claim.SPECULATIVE, *Claim])


class Contract(RuleBasedStateMachine):
    """Any order of calls leaves the subject equal to the oracle and all of its invariants whole."""

    subject: Subject

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, Claim], set[str]] = {seat: set() for seat in SEATS}
        self.capacity = dict.fromkeys(HOLDERS, AMPLE)
        self.seen: set[str] = set()
        self.longest = ""

    @initialize()
    def start(self) -> None:
        self.subject = self.make()

    def make(self) -> Subject:
        raise NotImplementedError

    def run_of(self, holder: str, claim: Claim, prompt: str) -> int:
        """The leading run, the naive way."""
        length = 0
        while length < len(prompt) and prompt[: length + 1] in self.held[holder, claim]:
            length += 1
        return length

    def read_back(self, holder: str, claim: Claim) -> set[str]:
        """All prefixes that the subject says a holder has, over every prompt ever used."""
        found = set()
        for prompt in self.seen:
            run = runs_of(self.subject.match(chain(prompt)), claim).get(holder, 0)
            found |= {prompt[: end + 1] for end in range(run)}
        return found

    def shrunk(self, holder: str, claim: Claim, size: int) -> None:
        """The subject chose what to evict: it must be as much as asked, and leave whole prefixes."""
        left = self.read_back(holder, claim)
        assert left <= self.held[holder, claim]
        assert len(left) == size
        self.held[holder, claim] = left

    @rule(holder=holders, prompt=prompts, claim=claims)
    def observe(self, holder: str, prompt: str, claim: Claim) -> None:
        self.seen.add(prompt)
        held = self.held[holder, claim]
        fresh = {prompt[: end + 1] for end in range(len(prompt))} - held
        assert self.subject.observe(holder, chain(prompt), claim) == len(fresh)
        held |= fresh
        capacity = self.capacity[holder] if claim in IN_ENGINE_MEMORY else AMPLE
        if len(held) > capacity and prompt:
            self.shrunk(holder, claim, capacity)
            # Newest last: of the prompt just observed the head stays, as far as the capacity goes.
            assert self.run_of(holder, claim, prompt) == min(len(prompt), capacity)

    @rule(holder=holders, prompt=prompts, claim=claims, data=st.data())
    def observe_what_another_prompt_begins_with(
        self, holder: str, prompt: str, claim: Claim, data: st.DataObject
    ) -> None:
        if self.seen:
            known = data.draw(st.sampled_from(sorted(self.seen)))
            cut = data.draw(st.integers(0, len(known)))
            self.observe(holder, known[:cut] + prompt, claim)

    @rule(holder=holders, turn=st.text("xyz", min_size=1, max_size=3))
    def a_chat_goes_on(self, holder: str, turn: str) -> None:
        """One prompt is extended again and again: sent there, then confirmed."""
        self.longest += turn
        self.observe(holder, self.longest, Claim.SPECULATIVE)
        self.observe(holder, self.longest, Claim.CONFIRMED)

    @rule(holder=holders, claim=st.none() | claims, data=st.data())
    def forget(self, holder: str, claim: Claim | None, data: st.DataObject) -> None:
        prompt = data.draw(st.sampled_from(sorted(self.seen)) | prompts if self.seen else prompts)
        block = data.draw(st.integers(0, len(prompt)))
        total = 0
        for each in Claim if claim is None else [claim]:
            held = self.held[holder, each]
            lost = {have for have in held if block < len(prompt) and have.startswith(prompt[: block + 1])}
            held -= lost
            total += len(lost)
        assert self.subject.forget(holder, chain(prompt), block, claim) == total

    @rule(holder=holders, to_blocks=st.integers(0, 20), claim=claims)
    def evict(self, holder: str, to_blocks: int, claim: Claim) -> None:
        size = min(to_blocks, len(self.held[holder, claim]))
        assert self.subject.evict(holder, to_blocks, claim) == size
        self.shrunk(holder, claim, size)

    @rule(holder=holders, claim=st.none() | claims)
    def clear(self, holder: str, claim: Claim | None) -> None:
        self.subject.clear(holder, claim)
        for each in Claim if claim is None else [claim]:
            self.held[holder, each] = set()

    @rule(holder=holders, blocks=st.integers(1, 30))
    def set_capacity(self, holder: str, blocks: int) -> None:
        self.subject.set_capacity(holder, blocks)
        self.capacity[holder] = blocks

    @rule(prompt=prompts, data=st.data())
    def match(self, prompt: str, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(sorted(self.seen))) if self.seen else ""
        self.agree(known[: data.draw(st.integers(0, len(known)))] + prompt)

    def agree(self, prompt: str) -> None:
        found = self.subject.match(chain(prompt))
        for claim in Claim:
            expected = {holder: run for holder in HOLDERS if (run := self.run_of(holder, claim, prompt))}
            assert runs_of(found, claim) == expected
            assert found.walked_blocks >= max(expected.values(), default=0)
        assert not found.truncated

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "subject"):
            return
        assert self.subject.check() == []
        for holder, claim in SEATS:
            assert self.subject.blocks_of(holder, claim) == len(self.held[holder, claim])

    def teardown(self) -> None:
        for prompt in self.seen:
            self.agree(prompt)


class TwinContract(Contract):
    def make(self) -> Subject:
        return RadixIndex[str]()


class RedisContract(Contract):
    """The same, and a write that carries a generation counts exactly while that is the present one."""

    url = ""

    def make(self) -> Subject:
        self.in_redis = InRedis(self.url)
        self.fences = dict.fromkeys(HOLDERS, 0)
        return self.in_redis

    @rule(holder=holders)
    def take_note_of_the_generation(self, holder: str) -> None:
        self.fences[holder] = self.in_redis.generations().get(holder, 0)

    @rule(holder=holders, prompt=prompts.filter(bool), claim=claims)
    def observe_under_the_generation_noted(self, holder: str, prompt: str, claim: Claim) -> None:
        present = self.in_redis.generations().get(holder) == self.fences[holder]
        with self.in_redis.fenced(self.fences[holder]):
            if present:
                self.observe(holder, prompt, claim)
            else:
                assert self.subject.observe(holder, chain(prompt), claim) == 0

    @rule(holder=holders)
    def clear_the_generation_noted(self, holder: str) -> None:
        present = self.in_redis.generations().get(holder) == self.fences[holder]
        with self.in_redis.fenced(self.fences[holder]):
            self.subject.clear(holder)
        if present:
            assert holder not in self.in_redis.generations()
            for claim in Claim:
                self.held[holder, claim] = set()

    def teardown(self) -> None:
        if hasattr(self, "in_redis"):
            super().teardown()
            self.in_redis.close()


class Lossy(RuleBasedStateMachine):
    """Short of room the index forgets by itself, but never says that a holder has what it was not said to have."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, Claim], set[str]] = {seat: set() for seat in SEATS}
        self.subject: Subject = self.make()

    def make(self) -> Subject:
        raise NotImplementedError

    @rule(holder=holders, prompt=prompts, claim=claims)
    def observe(self, holder: str, prompt: str, claim: Claim) -> None:
        self.subject.observe(holder, chain(prompt), claim)
        self.held[holder, claim] |= {prompt[: end + 1] for end in range(len(prompt))}

    @rule(holder=holders, prompt=prompts, block=st.integers(0, 6))
    def forget(self, holder: str, prompt: str, block: int) -> None:
        self.subject.forget(holder, chain(prompt), block)
        if block < len(prompt):
            for claim in Claim:
                held = self.held[holder, claim]
                held -= {have for have in held if have.startswith(prompt[: block + 1])}

    @rule(holder=holders)
    def clear(self, holder: str) -> None:
        self.subject.clear(holder)
        for claim in Claim:
            self.held[holder, claim] = set()

    @rule(prompt=prompts)
    def match(self, prompt: str) -> None:
        found = self.subject.match(chain(prompt))
        for claim in Claim:
            for holder, run in runs_of(found, claim).items():
                assert prompt[:run] in self.held[holder, claim]

    @invariant()
    def sound(self) -> None:
        assert self.subject.check() == []


class LossyTwin(Lossy):
    def make(self) -> Subject:
        ticks = iter(range(10**9))
        return RadixIndex[str](max_holds=8, clock=lambda: next(ticks), speculative_s=20)


class LossyRedis(Lossy):
    url = ""

    def make(self) -> Subject:
        self.in_redis = InRedis(self.url, max_bytes=2000, speculative_s=0.01)
        return self.in_redis

    def teardown(self) -> None:
        self.in_redis.close()


@pytest.mark.parametrize("machine", [TwinContract, LossyTwin])
def test_the_index_in_process_keeps_the_contract(machine: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))


@pytest.mark.parametrize("machine", [RedisContract, LossyRedis])
@pytest.mark.parametrize("kind", SERVERS)
def test_the_index_in_redis_keeps_the_contract(
    machine: type[RedisContract | LossyRedis], kind: str, server_urls: dict[str, str]
) -> None:
    with_url = type(machine.__name__, (machine,), {"url": server_urls[kind]})
    run_state_machine_as_test(with_url, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
