"""The mirror against a model of an engine: whatever it says in whatever order, the index has what the engine has."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from prefix_index.kv_events import Change, Clear, Cleared, Event, Forget, Mirror, Observe
from prefix_index.radix import RadixIndex
from prefix_index.types import Chain, Claim
from tests.prefix_index.kv_events.letters import CLAIMS, ROOT, Letters, name_of

BLOCK_SIZES = [(16, 16), (48, 16), (4, 16), (24, 16), (1, 3)]

paths = st.text("xXy", min_size=1, max_size=7) | st.text("xym", min_size=1, max_size=7)
levels = st.sampled_from([0, 0, 0, 1, 2])
groups = st.sampled_from([0, 0, 0, 1])


def apply(index: RadixIndex[str], changes: list[Change]) -> None:
    for change in changes:
        match change:
            case Observe(chain, claim):
                index.observe("a", chain, claim)
            case Forget(chain, from_block, claim):
                assert index.forget("a", chain, from_block, claim) > 0, "a forget that nobody needed"
            case Clear():
                index.clear("a")


def run_in(index: RadixIndex[str], chain: Chain, farthest: int) -> int:
    found = index.match(chain)
    runs = [found.blocks, found.host, found.disk][: farthest + 1]
    return max(run.get("a", 0) for run in runs)


def is_prefix(one: Chain, other: Chain) -> bool:
    return other.hashes.startswith(one.hashes)


class Conversation(RuleBasedStateMachine):
    """Batches of events, and after each one the same question asked of the engine and of the index."""

    block_size, ours, counted = 16, 16, True

    @initialize()
    def start(self) -> None:
        self.engine = Letters(self.block_size, self.ours, self.counted)
        self.mirror = Mirror(lambda adapter, salt: ROOT, self.ours, 10**6, counted=self.counted)
        self.index = RadixIndex[str]()
        self.seen: set[str] = set()
        self.events: list[Event] = []

    @rule(path=paths, data=st.data(), level=levels, group=groups)
    def store(self, path: str, data: st.DataObject, level: int, group: int) -> None:
        """Now and then without what is before: somebody else's store, or a message that was lost."""
        self.seen.add(path)
        first = data.draw(st.sampled_from([0, 0, *range(len(path))]))
        self.events.append(self.engine.store(path, first, level, group))

    @rule(data=st.data(), level=levels, group=groups)
    def store_more_of_what_is_held(self, data: st.DataObject, level: int, group: int) -> None:
        if not self.engine.held:
            return
        known = data.draw(st.sampled_from(sorted(self.engine.held)))
        path = known + data.draw(st.text("xy", min_size=1, max_size=2))
        self.seen.add(path)
        self.events.append(self.engine.store(path, len(known), level, group))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.engine.copies:
            level, group, path = data.draw(st.sampled_from(sorted(self.engine.copies)))
            self.events.append(self.engine.remove(path, level, group))

    @rule(path=paths, level=levels)
    def remove_what_may_not_be_there(self, path: str, level: int) -> None:
        self.events.append(self.engine.remove(path, level))

    @rule(data=st.data())
    def remove_everywhere(self, data: st.DataObject) -> None:
        if self.engine.held:
            self.events.append(self.engine.remove_everywhere(data.draw(st.sampled_from(sorted(self.engine.held)))))

    @rule(data=st.data(), after=levels)
    def move(self, data: st.DataObject, after: int) -> None:
        if self.engine.copies:
            level, _, path = data.draw(st.sampled_from(sorted(self.engine.copies)))
            self.events.append(self.engine.move(path, level, after))

    @rule()
    def clear(self) -> None:
        self.engine.clear()
        self.events.append(Cleared())

    @rule()
    def end_the_batch(self) -> None:
        changes = self.mirror.apply(self.events)
        self.events = []
        apply(self.index, changes)
        self.few_changes(changes)
        self.same_answers()

    @rule()
    def tell_a_new_index(self) -> None:
        self.end_the_batch()
        self.index = RadixIndex[str]()
        apply(self.index, list(self.mirror.everything()))
        self.same_answers()

    @invariant()
    def sound(self) -> None:
        assert self.index.check() == []

    def same_answers(self) -> None:
        for prompt in self.seen:
            for farthest, claim in enumerate(CLAIMS):
                expected = self.engine.run_of(prompt, farthest)
                assert run_in(self.index, self.engine.chain(prompt), farthest) == expected, (prompt, claim)
        assert self.mirror.blocks == len(self.engine.held)

    def few_changes(self, changes: list[Change]) -> None:
        if any(path != path.lower() for path in self.seen):
            return
        for claim in Claim:
            told = [change.chain for change in changes if isinstance(change, Observe) and change.claim is claim]
            assert not any(is_prefix(one, other) for one in told for other in told if one is not other)
            lost = [change.chain for change in changes if isinstance(change, Forget) and change.claim is claim]
            assert not any(is_prefix(one, other) for one in lost for other in lost if one is not other)

    def teardown(self) -> None:
        if not hasattr(self, "mirror"):
            return
        self.end_the_batch()
        for level, group, path in sorted(self.engine.copies.elements()):
            self.events.append(self.engine.remove(path, level, group))
        self.end_the_batch()
        assert (self.mirror.blocks, self.mirror.orphans, self.mirror.untranslated) == (0, 0, 0)
        assert [self.index.blocks_of("a", claim) for claim in CLAIMS] == [0, 0, 0]
        assert len(self.mirror._forest) == 0
        assert self.mirror._orphan_bytes == 0


@pytest.mark.parametrize(("block_size", "ours"), BLOCK_SIZES)
@pytest.mark.parametrize("counted", [True, False])
def test_the_index_has_what_the_engine_has(block_size: int, ours: int, counted: bool) -> None:
    sizes = {"block_size": block_size, "ours": ours, "counted": counted}
    machine = type("Sized", (Conversation,), sizes)
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=40, deadline=None))


def test_names_of_the_model_are_distinct() -> None:
    assert len({name_of(path) for path in ("x", "X", "xx", "xX", "y", "")}) == 6
