"""A fleet of fast and slow GPUs: what it is worth to know which is which, and from the first request on."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

import msgspec
import pytest

from backends import PerfModel
from backends.hardware import expected_speed
from backends.simulated import EngineSpec
from backends.simulated.presets import PRESETS
from gateway.scheduling import Candidate, Chooser, Decision, Question, chooser_of
from gateway.sim.fleet import FleetPlan
from gateway.sim.ours import OurOptions, OurPolicy
from gateway.sim.records import Records
from gateway.sim.runner import Run
from gateway.sim.shared_view import ReplicaIndex
from tests.gateway.sim.small_loads import conversations

GPUS = ("h100", "h100", "l4", "l4")
CONFIGURED = PerfModel(0.01, 8000.0, 1.2e-9, 0.02)
"""What the configuration believes of all endpoints where it says nothing."""
H100 = PRESETS["llama_8b_h100"]
EARLY_S = 20.0


def engine(gpu: str) -> EngineSpec:
    """Of an L4's 24 GB the model leaves some 3.5 to the cache."""
    blocks = 1700 if gpu == "l4" else H100.capacity_blocks
    return replace(H100, perf=expected_speed(gpu), capacity_blocks=blocks)


def played(chooser: Chooser, speeds: Sequence[PerfModel], seed: int) -> Records:
    plan = FleetPlan([engine(gpu) for gpu in GPUS])
    policy = OurPolicy(OurOptions(plan.specs, chooser, speeds), ReplicaIndex(), seed)
    return Run(conversations(seed, per_s=1.0, until_s=60.0), plan, [policy], seed, policy.expects).play()


def all_alike(chooser: Chooser) -> Chooser:
    """The same policy, to which every endpoint is as fast as any other, whatever is measured."""

    def choose(asked: Question) -> Decision:
        def as_any(candidate: Candidate) -> Candidate:
            return msgspec.structs.replace(candidate, speed=CONFIGURED)

        return chooser(
            msgspec.structs.replace(
                asked,
                candidates=[as_any(candidate) for candidate in asked.candidates],
                refine=lambda candidate: as_any(asked.refine(candidate)),
            )
        )

    return choose


def early(records: Records) -> float:
    return mean(ttft_s for at_s, ttft_s in zip(records.at_s, records.ttft_s, strict=True) if at_s < EARLY_S)


@pytest.mark.parametrize("seed", range(3))
def test_h100_and_l4_together_are_faster_than_where_they_are_taken_for_alike(seed: int) -> None:
    prefix = chooser_of("prefix", 0.002)
    named = played(prefix, [expected_speed(gpu) for gpu in GPUS], seed)
    learned = played(prefix, [CONFIGURED], seed)
    alike = played(all_alike(prefix), [CONFIGURED], seed)
    by_requests = played(chooser_of("least_requests", 0.002), [CONFIGURED], seed)
    times_s = [mean(records.ttft_s) for records in (named, learned, alike, by_requests)]
    assert times_s[0] < 0.85 * times_s[1], "what is measured makes good what nobody said, after a while"
    assert early(named) < 0.4 * early(learned), "until then"
    assert times_s[0] < 0.3 * min(times_s[2:])
    assert times_s[1] < min(times_s[2:])


def test_slow_gpus_still_work_where_the_fast_ones_are_full() -> None:
    records = played(chooser_of("prefix", 0.002), [expected_speed(gpu) for gpu in GPUS], 0)
    of_gpu = [0, 0, 0, 0]
    for endpoint in records.endpoint:
        of_gpu[endpoint] += 1
    assert sum(of_gpu[:2]) > 5 * sum(of_gpu[2:])
