"""What a gateway sees of its engines is as old as its last look."""

from dataclasses import replace

from backends.simulated import EngineSpec, Job, Role, SimulatedEngine
from gateway.sim.fleet import FleetPlan, Happening, What, view_of
from tests.gateway.sim.scripted import ENGINE, chain


def two() -> tuple[list[SimulatedEngine], FleetPlan]:
    plan = FleetPlan.of(2, ENGINE, poll_s=1.0)
    return [SimulatedEngine(spec, "e") for spec in plan.specs], plan


def submit(engine: SimulatedEngine, number: int, now_s: float) -> None:
    prompt = chain("a", 32)
    engine.submit(Job(number, prompt.hashes, prompt.prompt_tokens, 4), now_s)


def test_metrics_are_read_when_they_are_asked_for_and_old_enough() -> None:
    engines, plan = two()
    view = view_of(engines, plan)
    assert [endpoint.running for endpoint in view.endpoints] == [0, 0]
    submit(engines[1], 0, 0.2)
    submit(engines[1], 1, 0.2)
    view.now_s = 0.9
    assert [endpoint.running + endpoint.waiting for endpoint in view.endpoints] == [0, 0]
    view.now_s = 1.0
    assert [endpoint.running + endpoint.waiting for endpoint in view.endpoints] == [0, 2]
    assert view.polled_s == 1.0
    assert view.endpoints[1].kv_use > 0 == view.endpoints[0].kv_use


def test_what_was_sent_and_who_lives_is_known_at_once() -> None:
    engines, plan = two()
    view = view_of(engines, plan)
    view.counts(1, 1)
    view.live(0, False)
    assert [(endpoint.alive, endpoint.in_flight) for endpoint in view.endpoints] == [(False, 0), (True, 1)]


def test_who_follows_events_knows_what_an_engine_has() -> None:
    engines, plan = two()
    submit(engines[0], 0, 0.0)
    engines[0].advance(10.0)
    view = view_of(engines, plan)
    assert (view.cached_blocks(0, chain("a", 32)), view.cached_blocks(1, chain("a", 32))) == (8, 0)


def test_endpoints_that_join_later_and_decode_engines_are_not_there() -> None:
    specs: list[EngineSpec] = [ENGINE, replace(ENGINE, role=Role.DECODE), ENGINE]
    plan = FleetPlan(specs, [Happening(5.0, 2, What.JOIN)])
    view = view_of([SimulatedEngine(spec, "e") for spec in specs], plan)
    assert [endpoint.alive for endpoint in view.endpoints] == [True, False, False]
    assert view.endpoints[0].capacity_tokens == 4000
