"""So many at a time, a queue in front, so many bytes: who is let in, in which order, and what is left in the end."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.admission import Admission, AdmissionLimits, Shed, Stay
from gateway.errors import Overloaded


def admission(requests: int = 1, queued: int = 2, queue_s: float = 5.0, body_bytes: int = 100) -> Admission:
    return Admission(AdmissionLimits(requests, queued, queue_s, body_bytes), told.append)


told: list[Shed] = []


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


def entered(gate: Admission) -> Stay:
    stay = gate.enter()
    assert stay is not None
    return stay


async def test_who_comes_first_is_served_first_and_nobody_overtakes_the_queue() -> None:
    gate, order = admission(), []

    async def come(name: int) -> None:
        stay = await gate.wait()
        order.append(name)
        stay.leave()

    first = entered(gate)
    async with asyncio.TaskGroup() as group:
        for name in (1, 2):
            group.create_task(come(name))
        await asyncio.sleep(0)
        assert gate.queued == 2
        first.leave()
        assert gate.enter() is None
    assert order == [1, 2]
    assert (gate.running, gate.queued) == (0, 0)


async def test_more_than_may_wait_are_refused_at_once() -> None:
    gate = admission(queued=0)
    entered(gate)
    with pytest.raises(Overloaded):
        await gate.wait()
    assert told == [Shed.QUEUE_FULL]


async def test_who_waits_too_long_is_refused_and_takes_no_place() -> None:
    gate = admission(queue_s=0.02)
    stay = entered(gate)
    with pytest.raises(Overloaded):
        await gate.wait()
    assert (told, gate.queued) == ([Shed.QUEUE_DEADLINE], 0)
    stay.leave()
    entered(gate)


@pytest.mark.parametrize("given", [False, True])
async def test_who_leaves_the_queue_gives_back_the_place_it_may_have_been_given(given: bool) -> None:
    gate = admission()
    stay = entered(gate)
    async with asyncio.TaskGroup() as group:
        leaving = group.create_task(gate.wait())
        staying = group.create_task(gate.wait())
        await asyncio.sleep(0)
        if given:
            stay.leave()
            leaving.cancel()
        else:
            leaving.cancel()
            stay.leave()
    assert gate.running == 1
    staying.result().leave()
    assert (gate.running, gate.queued) == (0, 0)


def test_bodies_hold_their_bytes_until_their_requests_leave() -> None:
    gate = admission(requests=9)
    first, second = entered(gate), entered(gate)
    first.hold(40)
    first.hold(60)
    second.expect(40)
    with pytest.raises(Overloaded):
        second.expect(41)
    second.hold(40)
    with pytest.raises(Overloaded):
        second.hold(41)
    assert (gate.held_bytes, told) == (100, [Shed.BODY_BYTES] * 2)
    first.leave()
    second.hold(100)
    second.leave()
    assert (gate.held_bytes, gate.running) == (0, 0)


class Comings(RuleBasedStateMachine):
    """Requests come, wait, give up and leave in any order: as many run as may while anyone waits."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.gate = admission(requests=3, queued=4)
        self.inside: list[Stay] = []
        self.waiting: list[asyncio.Task[Stay]] = []

    def settle(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0))
        for task in [task for task in self.waiting if task.done()]:
            self.waiting.remove(task)
            if not task.cancelled() and task.exception() is None:
                self.inside.append(task.result())

    @rule()
    def come(self) -> None:
        stay = self.gate.enter()
        if stay is not None:
            self.inside.append(stay)
        else:
            self.waiting.append(self.loop.create_task(self.gate.wait()))
            self.settle()

    @rule(which=st.integers(0, 9), gives_up=st.booleans(), settles=st.booleans())
    def leave(self, which: int, gives_up: bool, settles: bool) -> None:
        if self.inside:
            self.inside.pop(which % len(self.inside)).leave()
        if gives_up and self.waiting:
            self.waiting[which % len(self.waiting)].cancel()
        if settles:
            self.settle()

    @invariant()
    def as_many_run_as_may(self) -> None:
        self.settle()
        assert self.gate.running == len(self.inside) <= 3
        assert self.gate.queued == len(self.waiting) <= 4
        assert not self.waiting or self.gate.running == 3

    def teardown(self) -> None:
        for task in self.waiting:
            task.cancel()
        self.settle()
        self.loop.close()


TestComings = Comings.TestCase
TestComings.settings = settings(deadline=None)
