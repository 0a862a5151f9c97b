"""A slot keeps a worker: here workers are no processes, and do as they are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from gateway.workers import slot as slot_module
from gateway.workers.child import Child
from gateway.workers.slot import Slot
from tests.until import until


class ScriptedChild:
    """Becomes ready, or dies, when the test says so."""

    def __init__(self) -> None:
        self.is_ready, self.gone = asyncio.Event(), asyncio.Event()
        self.told: list[str] = []
        self.pid, self.status = 1, None

    def stop(self) -> None:
        self.told.append("stop")
        self.gone.set()

    def replaced(self) -> None:
        self.told.append("replaced")

    def kill(self) -> None:
        self.told.append("kill")
        self.gone.set()


class Workshop:
    """Makes the workers of one slot."""

    def __init__(self) -> None:
        self.made: list[ScriptedChild] = []
        self.let_go = 0
        self.broken = False
        self.slot = Slot(0, self._start, self._let_go)
        self._more = asyncio.Event()

    def _start(self) -> Child:
        if self.broken:
            raise OSError(11, "no process")
        self.made.append(ScriptedChild())
        self._more.set()
        return cast("Child", self.made[-1])

    def _let_go(self) -> None:
        self.let_go += 1

    async def nth(self, number: int) -> ScriptedChild:
        """The worker of that number, once it is there."""
        async with asyncio.timeout(10):
            while len(self.made) < number:
                self._more.clear()
                await self._more.wait()
        return self.made[number - 1]


@asynccontextmanager
async def kept(delay_s: float = 0.001) -> AsyncIterator[Workshop]:
    """With its first worker ready, and kept while inside."""
    workshop = Workshop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_module, "LEAST_DELAY_S", delay_s)
        async with asyncio.TaskGroup() as group:
            beginning = group.create_task(workshop.slot.begin())
            (await workshop.nth(1)).is_ready.set()
            assert await beginning
            keeping = group.create_task(workshop.slot.keep())
            yield workshop
            workshop.slot.stop()
            await asyncio.wait_for(keeping, 10)


async def test_a_worker_that_dies_is_replaced_and_a_slot_whose_workers_die_again_lets_go() -> None:
    async with kept() as workshop:
        assert alive(workshop.slot)
        workshop.made[0].gone.set()
        (await workshop.nth(2)).gone.set()
        assert not alive(workshop.slot)
        assert workshop.let_go == 0  # the first time at once
        (await workshop.nth(3)).gone.set()
        (await workshop.nth(4)).is_ready.set()
        assert workshop.let_go == 2
        assert alive(workshop.slot)


def alive(slot: Slot) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return slot.is_alive


async def test_a_first_worker_that_dies_before_it_is_ready_is_no_beginning() -> None:
    workshop = Workshop()
    async with asyncio.TaskGroup() as group:
        beginning = group.create_task(workshop.slot.begin())
        (await workshop.nth(1)).gone.set()
        assert not await beginning


async def test_a_slot_that_is_stopped_while_it_waits_starts_no_more() -> None:
    async with kept(delay_s=1000) as workshop:
        workshop.made[0].gone.set()
        (await workshop.nth(2)).gone.set()
        await until(lambda: workshop.let_go == 1)
    assert len(workshop.made) == 2


async def test_a_successor_has_the_slot_once_it_is_ready_and_the_old_one_may_finish() -> None:
    async with kept() as workshop, asyncio.TaskGroup() as group:
        replacing = group.create_task(workshop.slot.replace())
        successor = await workshop.nth(2)
        assert workshop.made[0].told == []
        successor.is_ready.set()
        assert await replacing
        assert workshop.made[0].told == ["replaced"]
        assert workshop.slot.child is cast("Child", successor)
        workshop.made[0].gone.set()
        successor.gone.set()  # from now on it is the one that is kept
        await workshop.nth(3)


async def test_a_successor_that_dies_changes_nothing() -> None:
    async with kept() as workshop, asyncio.TaskGroup() as group:
        replacing = group.create_task(workshop.slot.replace())
        (await workshop.nth(2)).gone.set()
        assert not await replacing
        assert workshop.made[0].told == []
        assert alive(workshop.slot)


async def test_a_successor_that_is_not_ready_in_time_is_killed() -> None:
    async with kept() as workshop, asyncio.TaskGroup() as group:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slot_module, "READY_S", 0.01)
            replacing = group.create_task(workshop.slot.replace())
            successor = await workshop.nth(2)
            assert not await replacing
        assert successor.told == ["kill"]
        assert alive(workshop.slot)


async def test_where_no_process_can_be_had_the_old_worker_stays_and_a_dead_one_is_replaced_later() -> None:
    async with kept() as workshop:
        workshop.broken = True
        assert not await workshop.slot.replace()
        assert alive(workshop.slot)
        workshop.made[0].gone.set()
        await until(lambda: workshop.let_go > 0)
        workshop.broken = False
        await workshop.nth(2)
