"""One contract for every radix index, driven against a naive oracle: per holder, the set of prefixes it has.

A chain here is a string over a tiny alphabet, one letter a block, so that prompts share prefixes all the time.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from prefix_index.radix import RadixIndex
from prefix_index.types import Evidence
from tests.prefix_index.subjects import SERVERS, InRedis, Subject, chain

HOLDERS = ("a", "b", "c")

prompts = st.text("xy", max_size=9) | st.integers(0, 40).map("x".__mul__) | st.text("xyz", max_size=30)
holders = st.sampled_from(HOLDERS)


class Contract(RuleBasedStateMachine):
    """Any order of calls leaves the subject equal to the oracle and all of its invariants whole."""

    subject: Subject

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, set[str]] = {holder: set() for holder in HOLDERS}
        self.capacity = dict.fromkeys(HOLDERS, 10**6)
        self.generation = dict.fromkeys(HOLDERS, 0)
        self.seen: set[str] = set()

    @initialize()
    def start(self) -> None:
        self.subject = self.make()

    def make(self) -> Subject:
        raise NotImplementedError

    def run_of(self, holder: str, prompt: str) -> int:
        """The leading run, the naive way."""
        length = 0
        while length < len(prompt) and prompt[: length + 1] in self.held[holder]:
            length += 1
        return length

    def read_back(self, holder: str) -> set[str]:
        """All prefixes that the subject says a holder has, over every prompt ever used."""
        found = set()
        for prompt in self.seen:
            run = self.subject.match(chain(prompt)).blocks.get(holder, 0)
            found |= {prompt[: end + 1] for end in range(run)}
        return found

    def shrunk(self, holder: str, size: int) -> None:
        """The subject chose what to evict: it must be as much as asked, and leave whole prefixes."""
        left = self.read_back(holder)
        assert left <= self.held[holder]
        assert len(left) == size
        self.held[holder] = left

    @rule(holder=holders, prompt=prompts, evidence=st.sampled_from(Evidence))
    def observe(self, holder: str, prompt: str, evidence: Evidence) -> None:
        self.seen.add(prompt)
        fresh = {prompt[: end + 1] for end in range(len(prompt))} - self.held[holder]
        assert self.subject.observe(holder, chain(prompt), evidence) == len(fresh)
        self.held[holder] |= fresh
        if len(self.held[holder]) > self.capacity[holder] and prompt:
            self.shrunk(holder, self.capacity[holder])
            # Newest last: of the prompt just observed the head stays, as far as the capacity goes.
            assert self.run_of(holder, prompt) == min(len(prompt), self.capacity[holder])

    @rule(holder=holders, prompt=prompts, data=st.data())
    def observe_what_another_prompt_begins_with(self, holder: str, prompt: str, data: st.DataObject) -> None:
        if self.seen:
            known = data.draw(st.sampled_from(sorted(self.seen)))
            cut = data.draw(st.integers(0, len(known)))
            self.observe(holder, known[:cut] + prompt, Evidence.CONFIRMED)

    @rule(holder=holders, data=st.data())
    def forget(self, holder: str, data: st.DataObject) -> None:
        prompt = data.draw(st.sampled_from(sorted(self.seen)) | prompts if self.seen else prompts)
        block = data.draw(st.integers(0, len(prompt)))
        lost = {have for have in self.held[holder] if block < len(prompt) and have.startswith(prompt[: block + 1])}
        assert self.subject.forget(holder, chain(prompt), block) == len(lost)
        self.held[holder] -= lost

    @rule(holder=holders, to_blocks=st.integers(0, 20))
    def evict(self, holder: str, to_blocks: int) -> None:
        size = min(to_blocks, len(self.held[holder]))
        assert self.subject.evict(holder, to_blocks) == size
        self.shrunk(holder, size)

    @rule(holder=holders)
    def clear(self, holder: str) -> None:
        self.subject.clear(holder)
        self.held[holder] = set()

    @rule(holder=holders)
    def restart(self, holder: str) -> None:
        self.generation[holder] += 1
        assert self.subject.raise_generation(holder) == self.generation[holder]
        self.held[holder] = set()

    @rule(holder=holders, blocks=st.integers(1, 30))
    def set_capacity(self, holder: str, blocks: int) -> None:
        self.subject.set_capacity(holder, blocks)
        self.capacity[holder] = blocks

    @rule(prompt=prompts, data=st.data())
    def match(self, prompt: str, data: st.DataObject) -> None:
        known = data.draw(st.sampled_from(sorted(self.seen))) if self.seen else ""
        self.agree(known[: data.draw(st.integers(0, len(known)))] + prompt)

    def agree(self, prompt: str) -> None:
        expected = {holder: run for holder in HOLDERS if (run := self.run_of(holder, prompt))}
        found = self.subject.match(chain(prompt))
        assert found.blocks == expected
        assert found.walked_blocks >= max(expected.values(), default=0)
        assert not found.truncated

    @invariant()
    def sound(self) -> None:
        if not hasattr(self, "subject"):
            return
        assert self.subject.check() == []
        for holder in HOLDERS:
            assert self.subject.blocks_of(holder) == len(self.held[holder])

    def teardown(self) -> None:
        for prompt in self.seen:
            self.agree(prompt)


class TwinContract(Contract):
    def make(self) -> Subject:
        return RadixIndex[str]()


def test_the_index_in_process_keeps_the_contract() -> None:
    run_state_machine_as_test(TwinContract, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))


@pytest.mark.parametrize("kind", SERVERS)
def test_the_index_in_redis_keeps_the_contract(kind: str, server_urls: dict[str, str]) -> None:
    class RedisContract(Contract):
        def make(self) -> Subject:
            self.in_redis = InRedis(server_urls[kind])
            return self.in_redis

        def teardown(self) -> None:
            if hasattr(self, "in_redis"):
                super().teardown()
                self.in_redis.close()

    run_state_machine_as_test(RedisContract, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
