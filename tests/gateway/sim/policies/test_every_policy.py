"""What holds for every policy, whatever it is told."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sim.policies import PolicyArgs, by_name
from gateway.sim.policies.active_blocks import ActiveBlocks
from gateway.sim.policies.outstanding import Outstanding
from gateway.sim.policies.parts import Composed
from gateway.sim.types import Policy, SimRequest
from tests.gateway.sim.policies.fleet import FakeView, fleet, request

Build = Callable[[PolicyArgs], Policy]

every_policy = pytest.mark.parametrize("build", by_name.values(), ids=by_name.keys())


class Story:
    """A load of few letters over a fleet whose endpoints die, come back empty, and join; driven by one seed."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.policy = policy
        self.rng = random.Random(seed)
        self.view: FakeView = fleet(3)
        self.on: list[tuple[SimRequest, int, bool]] = []
        self.chosen: list[int] = []

    def run(self, steps: int) -> None:
        for number in range(steps):
            self.view.now_s += self.rng.random() * 20
            self._arrive(number)
            if self.rng.random() < 0.4:
                self._proceed()
            if self.rng.random() < 0.1:
                self._disturb()
        while self.on:
            self._end(0)

    def _arrive(self, number: int) -> None:
        names = "".join(self.rng.choice("ab") for _ in range(self.rng.randrange(6)))
        sent = request(number, names, session=self.rng.choice(["", "s", "t"]), tail_tokens=self.rng.randrange(16))
        endpoint = self.policy.choose(sent, self.view)
        assert self.view.endpoints[endpoint].alive
        self.chosen.append(endpoint)
        self.view.endpoints[endpoint].in_flight += 1
        self.view.caches.setdefault(endpoint, []).append(sent.chain)
        self.policy.sent(sent, endpoint, self.view.now_s)
        self.on.append((sent, endpoint, False))

    def _proceed(self) -> None:
        at = self.rng.randrange(len(self.on))
        sent, endpoint, computed = self.on[at]
        if computed or self.rng.random() < 0.2:
            self._end(at)
        else:
            self.policy.first_token(sent, endpoint, self.view.now_s, 0)
            self.on[at] = (sent, endpoint, True)

    def _end(self, at: int) -> None:
        sent, endpoint, _ = self.on.pop(at)
        self.view.endpoints[endpoint].in_flight -= 1
        self.policy.ended(sent, endpoint, self.view.now_s)

    def _disturb(self) -> None:
        if self.rng.random() < 0.3:
            self.policy.restarted(self.view.join(), self.view.now_s)
            return
        endpoint = self.rng.choice(self.view.endpoints)
        if not endpoint.alive:
            endpoint.alive = True
            self.policy.restarted(endpoint.number, self.view.now_s)
        elif sum(each.alive for each in self.view.endpoints) > 1:
            endpoint.alive = False
            self.view.caches.pop(endpoint.number, None)
            for at in reversed(range(len(self.on))):
                if self.on[at][1] == endpoint.number:
                    self._end(at)


@every_policy
@given(seed=st.integers(0, 2**32))
def test_it_chooses_somebody_alive_and_the_same_again_for_a_seed(build: Build, seed: int) -> None:
    stories = [Story(build(PolicyArgs(3, seed=seed, capacity_tokens=160)), seed) for _ in range(2)]
    for story in stories:
        story.run(30)
    assert stories[0].chosen == stories[1].chosen


@every_policy
@given(seed=st.integers(0, 2**32))
def test_when_all_have_ended_nothing_is_outstanding(build: Build, seed: int) -> None:
    policy = build(PolicyArgs(3, seed=seed, capacity_tokens=160))
    story = Story(policy, seed)
    story.run(20)
    assert isinstance(policy, Composed)
    for memory in policy.memories:
        if isinstance(memory, Outstanding):
            assert not any(memory.requests)
            assert not any(memory.uncached_tokens)
        if isinstance(memory, ActiveBlocks):
            assert not any(memory.blocks(number) for number in range(len(story.view.endpoints)))


@every_policy
def test_one_endpoint_alone_takes_everything(build: Build) -> None:
    policy, view = build(PolicyArgs(4)), fleet(4, dead=[0, 1, 3])
    assert {policy.choose(request(number, "abc"), view) for number in range(4)} == {2}


def test_each_is_called_what_tables_call_it() -> None:
    assert {name: build(PolicyArgs(2)).name for name, build in by_name.items()} == {name: name for name in by_name}
