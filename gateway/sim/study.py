"""Several policies on the same load, the same engines and the same seeds: what a table is made of.

for each policy, each seed:  load(seed) ──play──> Figures, Bill ──> Line           one run in memory at a time
                                                                     of a policy: means over its seeds
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace

from billing import Price
from gateway.sim.bill import Bill, bill_of
from gateway.sim.fleet import FleetPlan
from gateway.sim.loads.again import Again
from gateway.sim.play import Replicas, play
from gateway.sim.records import Figures
from gateway.sim.types import SimRequest, Workload

_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Study:
    """`load` makes the load of a seed. `skip_s`: a warm-up that is left out of shares and times."""

    load: Callable[[int], Workload]
    plan: FleetPlan
    policies: Sequence[str]
    seeds: int = 1
    replicas: Replicas = field(default_factory=Replicas)
    skip_s: float = 0.0
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One run. `took_s` is by the clock on the wall."""

    policy: str
    seed: int
    figures: Figures
    bill: Bill
    took_s: float


Tell = Callable[[str, int, int], None]
"""Told of a policy, a seed and how many requests of that run have arrived, each thousandth."""


def lines_of(study: Study, tell: Tell) -> Iterator[Line]:
    """Run after run, as they end. Raises `KeyError` for a policy that there is not, and what reading the load may."""
    for policy in study.policies:
        for seed in range(study.seeds):
            began_s = time.monotonic()
            load = _counted(study.load(seed), lambda done, p=policy, s=seed: tell(p, s, done))  # type: ignore[misc]
            played = play(load, study.plan, policy, seed=seed, replicas=study.replicas, skip_s=study.skip_s)
            bill = bill_of(played.records, study.price)
            yield Line(policy, seed, played.figures, bill, time.monotonic() - began_s)


def mean_of(lines: Sequence[Line]) -> Line:
    """One line for several seeds of a policy: means of all figures, of those that are known; at least one line."""
    first = lines[0]
    if len(lines) == 1:
        return first
    columns = zip(*(astuple(line.figures) for line in lines), strict=True)
    figures = Figures(*map(_mean, columns))  # type: ignore[arg-type]  # counts are means too
    full, charged = (_mean_pico([getattr(line.bill, name) for line in lines]) for name in ("full_pico", "charged_pico"))
    return replace(first, figures=figures, bill=replace(first.bill, full_pico=full, charged_pico=charged))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _mean_pico(amounts: Sequence[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) // len(known) if len(known) == len(amounts) else None


def _counted(load: Workload, tell: Callable[[int], None]) -> Workload:
    def counted() -> Iterator[SimRequest]:
        for done, request in enumerate(load.requests, 1):
            if done % _EVERY == 0:
                tell(done)
            yield request

    return replace(load, requests=Again(counted))
