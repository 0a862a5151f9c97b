"""One line of a table: a load, a fleet and the name of a policy, played to its end.

    play(workload, plan, "prefixgate", seed=0) -> Played(figures, records, engines)

`prefixgate` is ours with the server's defaults; every other name is another router's rule.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from backends import PerfModel
from backends.simulated import SimulatedEngine
from gateway.config import Config
from gateway.scheduling import chooser_of
from gateway.sim.fleet import FleetPlan
from gateway.sim.ours import OurOptions, OurPolicy
from gateway.sim.policies import PolicyArgs, by_name
from gateway.sim.records import Figures, Records
from gateway.sim.runner import Expects, Run
from gateway.sim.shared_view import ReplicaIndex
from gateway.sim.types import Policy, Workload

OURS = "prefixgate"
_RARELY = 10_000_000
"""Objects made before another look for cycles; Python's own 700 are for programs that make cycles."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """So many gateways. What one writes to the index the others see `delay_s` later: a round trip to Redis; loads are
    published every `load_interval_s`, as in the server."""

    count: int = 1
    delay_s: float = 0.005
    load_interval_s: float = 0.05


@dataclass(frozen=True, slots=True)
class Played:
    """A run that is over. `policies`: one for each replica, with all that they know at the end."""

    figures: Figures
    records: Records = field(repr=False)
    engines: list[SimulatedEngine] = field(repr=False)
    policies: list[Policy] = field(repr=False)


def play(
    workload: Workload,
    plan: FleetPlan,
    policy: str,
    *,
    seed: int = 0,
    replicas: Replicas = Replicas(),
    skip_s: float = 0.0,
) -> Played:
    """Play it. Raises `KeyError` for a policy that there is not. `skip_s`: a warm-up that is
    left out of shares and times.
    """
    with _few_collections():
        policies, expects = policies_of(plan, policy, seed, replicas)
        run = Run(workload, plan, policies, seed, expects)
        records = run.play()
    return Played(records.figures(skip_s), records, run.engines, policies)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look for cycles seldom: a run makes none, and to look through all that a fleet keeps takes a third of it. What is
    frozen already, by whoever knows that it stays, is left so."""
    often, is_frozen = gc.get_threshold(), gc.get_freeze_count() > 0
    if not is_frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(_RARELY, *often[1:])
    try:
        yield
    finally:
        gc.set_threshold(*often)
        if not is_frozen:
            gc.unfreeze()


def policies_of(
    plan: FleetPlan, policy: str, seed: int = 0, replicas: Replicas = Replicas()
) -> tuple[list[Policy], Expects]:
    """A policy for each replica, and what they expect to be cached of a request. Raises `KeyError` as `play` does."""
    if policy == OURS:
        return _ours(plan, seed, replicas)
    return _theirs(policy, plan, seed, replicas), lambda _: None


def _theirs(policy: str, plan: FleetPlan, seed: int, replicas: Replicas) -> list[Policy]:
    spec = plan.specs[0]
    make, capacity = by_name[policy], spec.capacity_blocks * spec.block_size
    return [
        make(PolicyArgs(len(plan.specs), seed + replica, capacity, spec.block_size, spec.perf))
        for replica in range(replicas.count)
    ]


def _ours(plan: FleetPlan, seed: int, replicas: Replicas) -> tuple[list[Policy], Expects]:
    indexes = [ReplicaIndex(replicas.delay_s, replicas.load_interval_s) for _ in range(replicas.count)]
    for index in indexes:
        index.share(indexes)
    settings = Config().scheduling
    prior = PerfModel(settings.base_s, settings.prefill_tokens_per_s, settings.quad_s_per_token2, settings.itl_s)
    ours = [
        OurPolicy(OurOptions(plan.specs, chooser_of("prefix", settings.near_tie_s), [prior]), index, seed + replica)
        for replica, index in enumerate(indexes)
    ]

    def expects(number: int) -> int | None:
        return next((told for one in ours if (told := one.expects(number)) is not None), None)

    return list(ours), expects
