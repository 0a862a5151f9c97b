"""Endpoints compared with their peers, under a clock of their own: who is left out for being slow or failing, how it
comes back, and who is never judged."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from backends import (
    DialFailed,
    DialReason,
    EndpointConfig,
    EndpointFacts,
    EndpointId,
    EndpointState,
    PerfModel,
    Registry,
    ServedModel,
)
from backends.perf_fit import PrefillSample
from gateway.attempts import Attempts
from gateway.health_config import Health, Outliers
from gateway.health_watch import HealthWatch, WatchParts
from gateway.perf_book import PerfBook
from gateway.scheduling import Candidate, Filtered
from gateway.slow_start import SlowStart
from gateway.telemetry import Telemetry

PRIOR = PerfModel(base_s=0.0, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0)
NAMES = [EndpointId(name) for name in "abcd"]
JUDGED = Outliers(slow=True, min_samples=5, return_s=40.0)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Fleet:
    """Four endpoints whose polls are answered, and their watch."""

    def __init__(self, outliers: Outliers = JUDGED) -> None:
        self.clock = clock = Clock()
        telemetry = Telemetry()
        configs = [EndpointConfig(name, f"http://127.0.0.1:{9 + n}") for n, name in enumerate(NAMES)]
        self.registry = registry = Registry(configs, clock)
        self.perf = PerfBook(dict.fromkeys(NAMES, PRIOR), telemetry.speed, clock, lambda *_: None)
        self.start = SlowStart(0.0, clock)
        attempts = Attempts(registry, self.perf.known_speed, Health(), 600.0, telemetry.health, clock)
        parts = WatchParts(registry, attempts, self.perf, self.start, telemetry.health, clock)
        self.watch = HealthWatch(parts, outliers)
        for name in NAMES:
            self.serve(name, "m")
        self.watch.look()

    def serve(self, name: EndpointId, *models: str) -> None:
        """The endpoint is up, with these models."""
        member = self.registry.member(name)
        assert member is not None
        member.facts, member.reason = EndpointFacts("vllm", tuple(map(ServedModel, models))), None
        member.touch()

    def measure(self, name: EndpointId, seconds: float, times: int = 30) -> None:
        """It computes prompts of 1,000 tokens in so long."""
        line = self.perf._lines[name]
        for _ in range(times):
            line.learn(PrefillSample(seconds, 1000, 1e6), self.clock.now_s, "alone")

    def answer(self, name: EndpointId, answered: int, failed: int = 0) -> None:
        """It answers so many and fails so many, in turn."""
        for number in range(max(answered, failed)):
            if number < failed:
                self.registry.report_failure(name, DialFailed(name, DialReason.RESET))
            if number < answered:
                self.registry.report_success(name)

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.watch.look()

    def states(self) -> list[EndpointState]:
        return [endpoint.condition.state for endpoint in self.registry.snapshot()]


UP, EJECTED = EndpointState.UP, EndpointState.EJECTED


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet()
    async with asyncio.timeout(20), made.registry:
        yield made


async def test_a_slow_endpoint_is_left_out_and_comes_back_little_by_little(fleet: Fleet) -> None:
    for name, seconds in zip(NAMES, (1.0, 1.1, 0.9, 8.0), strict=True):
        fleet.measure(name, seconds)
    fleet.pass_time(10)
    assert fleet.states() == [UP, UP, UP, EJECTED]
    assert "its peers" in (fleet.registry.snapshot()[3].condition.why or "")
    fleet.pass_time(29)
    assert fleet.states()[3] is EJECTED
    fleet.pass_time(10)
    assert fleet.states()[3] is UP
    able = [Candidate(name, 0, 0, 0, PRIOR) for name in NAMES]
    filtered: dict[str, Filtered] = {}
    assert [one.endpoint_id for one in fleet.start.thinned(able, filtered)] == ["a", "b", "c"]
    assert filtered == {"d": Filtered.STARTING}
    fleet.pass_time(10)
    assert fleet.states()[3] is UP, "what it did before is not held against it again"
    fleet.measure(NAMES[3], 8.0)
    fleet.pass_time(10)
    assert fleet.states()[3] is EJECTED, "what it does now is"


async def test_speeds_are_held_against_what_each_is_configured_with() -> None:
    fleet = Fleet()
    async with fleet.registry:
        fleet.perf.join("d", PerfModel(base_s=0.0, prefill_tokens_per_s=125.0, quad_s_per_token2=0.0))
        for name, seconds in zip(NAMES, (1.0, 1.1, 0.9, 8.0), strict=True):
            fleet.measure(name, seconds)
        fleet.pass_time(10)
        assert fleet.states() == [UP] * 4


async def test_one_that_fails_is_left_out_by_its_own_faults_alone(fleet: Fleet) -> None:
    for name in NAMES[:3]:
        fleet.answer(name, 40)
    fleet.answer(NAMES[3], 20, 20)
    fleet.pass_time(10)
    assert fleet.states() == [UP, UP, UP, EJECTED]
    assert fleet.registry.snapshot()[3].condition.why == "it fails 50% of its requests, its peers 0.0%"


async def test_who_serves_another_model_is_no_peer(fleet: Fleet) -> None:
    fleet.serve(NAMES[2], "other")
    fleet.serve(NAMES[3], "other")
    for name in NAMES[:3]:
        fleet.answer(name, 40)
    fleet.answer(NAMES[3], 20, 20)
    fleet.pass_time(10)
    assert fleet.states() == [UP] * 4


async def test_another_engine_begins_anew(fleet: Fleet) -> None:
    for name in NAMES[:3]:
        fleet.answer(name, 40)
    fleet.answer(NAMES[3], 20, 20)
    fleet.pass_time(10)
    member = fleet.registry.member(NAMES[3])
    assert member is not None
    member.is_another()
    member.touch()
    fleet.watch.new_generation(NAMES[3], 2)
    fleet.pass_time(10)
    assert fleet.states() == [UP] * 4
    fleet.watch.removed(NAMES[3])
    await fleet.registry.purge(NAMES[3])
    fleet.pass_time(10)
    assert fleet.states() == [UP] * 3


async def test_with_nothing_to_judge_nobody_is_compared() -> None:
    fleet = Fleet(Outliers(errors=False))
    async with fleet.registry:
        for name in NAMES[:3]:
            fleet.answer(name, 40)
        fleet.answer(NAMES[3], 20, 20)
        fleet.pass_time(10)
        assert fleet.states() == [UP] * 4
