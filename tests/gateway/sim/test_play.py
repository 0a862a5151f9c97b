"""A load under a policy by its name: the gateway itself, or another router's rule."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from backends import PerfModel
from backends.simulated import EngineSpec
from gateway.sim import Workload
from gateway.sim.fleet import FleetPlan, Happening, What
from gateway.sim.loads import arrivals, by_name
from gateway.sim.ours import OurPolicy
from gateway.sim.play import OURS, Played, Replicas, play
from gateway.sim.policies import by_name as policies_by_name
from tests.gateway.sim.scripted import ask

SPEC = EngineSpec(capacity_blocks=20_000, perf=PerfModel(prefill_tokens_per_s=30_000.0, itl_s=0.01))
FLEET = FleetPlan.of(4, SPEC)


def shared(requests: int = 400, rate_per_s: float = 8.0) -> Workload:
    """Questions about a few long texts."""
    return arrivals.poisson(arrivals.take(by_name["llm-d-73"](0), requests), rate_per_s, 0)


def ours(played: Played) -> Iterator[OurPolicy]:
    for policy in played.policies:
        assert isinstance(policy, OurPolicy)
        yield policy


@pytest.mark.parametrize("policy", [OURS, *policies_by_name])
def test_every_policy_serves_everything_and_the_same_again(policy: str) -> None:
    first, second = (play(shared(150), FLEET, policy, seed=3).figures for _ in range(2))
    assert (first.requests, first.answered, first.failed) == (150, 150, 0)
    assert [repr(first)] == [repr(second)]


def test_the_gateway_finds_prefixes_where_turns_do_not() -> None:
    mine, turns = (play(shared(), FLEET, policy).figures for policy in (OURS, "rr"))
    assert mine.hit_share > 2 * turns.hit_share
    assert mine.ttft_mean_s < turns.ttft_mean_s
    assert abs(mine.expected_minus_reported) < 0.02


def test_nothing_is_outstanding_at_the_end_whatever_restarted() -> None:
    restarts = [Happening(3.0 + 4 * number, number % 4, What.RESTART) for number in range(8)]
    played = play(shared(), replace(FLEET, happenings=restarts), OURS, replicas=Replicas(3))
    assert [one.outstanding for one in ours(played)] == [0, 0, 0]
    figures = played.figures
    assert figures.answered + figures.failed == figures.requests == 400
    assert figures.failed > 0


def test_an_engine_that_restarts_is_expected_to_have_nothing() -> None:
    requests = [ask(number, 10.0 * number, "a", tokens=3200) for number in range(4)]
    load = Workload("again", 4, requests)
    plan = FleetPlan.of(1, replace(SPEC, block_size=4))
    records = play(load, replace(plan, happenings=[Happening(15.0, 0, What.RESTART)]), OURS).records
    assert list(records.cached_tokens) == [0, 3196, 0, 3196]
    assert records.figures().expected_off == pytest.approx(0.0, abs=0.01)


def test_the_gateway_learns_how_fast_each_engine_is() -> None:
    fast, slow = SPEC, replace(SPEC, perf=PerfModel(prefill_tokens_per_s=3_000.0, itl_s=0.04))
    plan = FleetPlan([fast, slow])
    load = arrivals.poisson(arrivals.take(by_name["no-sharing"](0), 600), 8.0, 0)
    played = play(load, plan, OURS)
    (one,) = ours(played)
    first, second = one.speed_of(0), one.speed_of(1)
    assert first.prefill_s(1000, 1000) == pytest.approx(fast.perf.prefill_s(1000, 1000), rel=0.4)
    assert second.prefill_s(1000, 1000) == pytest.approx(slow.perf.prefill_s(1000, 1000), rel=0.4)
    assert played.records.uncached_of[0] > 3 * played.records.uncached_of[1]
    assert played.figures.ttft_mean_s < play(load, plan, "least-req").figures.ttft_mean_s


def test_what_one_replica_learns_of_prefixes_the_others_use() -> None:
    together = play(shared(), FLEET, OURS, replicas=Replicas(3)).figures
    apart = play(shared(), FLEET, OURS, replicas=Replicas(3, delay_s=1e9)).figures
    assert together.hit_share > apart.hit_share


def test_there_is_no_policy_of_another_name() -> None:
    with pytest.raises(KeyError):
        play(shared(1), FLEET, "no such policy")
