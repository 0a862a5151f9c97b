"""A successor takes no connections before it sees what the others see."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.team import catching_up
from gateway.team.catching_up import caught_up, healthy_here
from gateway.team.messages import Healthy, Reply


class Endpoints:
    """A registry of endpoints, of which some are healthy."""

    def __init__(self, **healthy: bool) -> None:
        self.healthy = healthy

    def snapshot(self) -> tuple[Any, ...]:
        return tuple(SimpleNamespace(id=id_, healthy=healthy) for id_, healthy in self.healthy.items())


def others(*registries: Endpoints) -> Any:
    async def ask(question: object) -> list[Reply]:
        assert question == Healthy()
        return [healthy_here(registry) for registry in registries]  # type: ignore[arg-type]

    return SimpleNamespace(ask=ask)


async def test_it_waits_for_what_any_other_finds_healthy_and_for_nothing_else() -> None:
    ours: Any = Endpoints(a=False, b=False, c=False)
    team = others(Endpoints(a=True, b=False, gone=True), Endpoints(a=False, c=True))
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(caught_up(team, ours))
        ours.healthy["a"] = True
        await asyncio.sleep(3 * catching_up._LOOK_S)
        assert not waiting.done()
        ours.healthy["c"] = True


async def test_where_there_are_no_others_it_does_not_wait() -> None:
    nobody: Any = Endpoints(a=False)
    await asyncio.wait_for(caught_up(others(), nobody), catching_up.CATCH_UP_S / 2)


async def test_an_endpoint_that_has_gone_down_keeps_nobody_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "CATCH_UP_S", 0.01)
    down: Any = Endpoints(a=False)
    await caught_up(others(Endpoints(a=True)), down)


async def test_where_endpoints_are_found_it_waits_for_those_that_only_others_know_yet() -> None:
    ours: Any = Endpoints()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(caught_up(others(Endpoints(pod=True)), ours, others_may_come=True))
        await asyncio.sleep(3 * catching_up._LOOK_S)
        assert not waiting.done()
        ours.healthy["pod"] = True
