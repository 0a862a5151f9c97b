"""`prefixgate simulate`, without its arguments' types: what was asked for becomes a study, and that a summary.

Asked ──> load, fleet, price ──> Study ──lines_of──> Summary
             └── of a ledger: as recorded, what was left out, how fast the engines were
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from billing import BillingError, LedgerPeriod, Price, PriceBook, Recorded
from gateway.sim.asked import AskedWrong, FleetAsked, LoadAsked, arriving, load_of, plan_of
from gateway.sim.bill import PriceUnclear, price_of
from gateway.sim.ceiling import Ceiling, ceiling_of
from gateway.sim.fleet import FleetPlan
from gateway.sim.loads import WorkloadError
from gateway.sim.past import LEAST_SAMPLES, NothingToReplay, left_out_text, past_load, period_of, speed_of
from gateway.sim.play import OURS, Replicas
from gateway.sim.policies import by_name as policies_by_name
from gateway.sim.study import Line, Study, Tell, lines_of
from gateway.sim.summary import Summary
from gateway.sim.types import Workload

DEFAULT_POLICIES = (OURS, "rr", "least-req")
CANNOT_BE_ASKED = (AskedWrong, WorkloadError, BillingError, PriceUnclear, OSError)
"""Raised for arguments and files that cannot be used."""
CANNOT_BE_DONE = (NothingToReplay,)
"""Raised where all is well and there is nothing to simulate."""


@dataclass(frozen=True, slots=True)
class Asked:
    """All arguments. `period` is of the ledgers at `ledgers`; `model` is the one to replay, and to price."""

    load: LoadAsked
    fleet: FleetAsked
    policies: Sequence[str] = DEFAULT_POLICIES
    seeds: int = 1
    replicas: int = 1
    skip_s: float = 0.0
    prices: Path | None = None
    model: str | None = None
    period: str | None = None
    ledgers: Sequence[Path | str] = ()


@dataclass(frozen=True, slots=True)
class _Served:
    """What is to be served, by seed; the engines; and what is known of its past."""

    load: Callable[[int], Workload]
    plan: FleetPlan
    recorded: Recorded | None = None
    model: str | None = None
    when: datetime = field(default_factory=lambda: datetime.now(UTC))
    notes: tuple[str, ...] = ()


def simulated(asked: Asked, tell: Tell) -> Summary:
    """Simulate all policies, one after the other. Raises `CANNOT_BE_ASKED`, `CANNOT_BE_DONE`."""
    for policy in asked.policies:
        if policy != OURS and policy not in policies_by_name:
            raise AskedWrong(f"no policy is called {policy!r}; there are {', '.join([OURS, *policies_by_name])}")
    served = _of_ledger(asked) if asked.period is not None else _of_load(asked)
    price = _price(asked, served)
    replicas = Replicas(asked.replicas)
    study = Study(served.load, served.plan, asked.policies, asked.seeds, replicas, asked.skip_s, price)
    ceiling = _ceiling(asked, served)
    runs: dict[str, list[Line]] = {}
    for line in lines_of(study, tell):
        runs.setdefault(line.policy, []).append(line)
    return Summary(_about(asked, served), runs, ceiling, served.recorded, asked.prices is not None, served.notes)


def _ceiling(asked: Asked, served: _Served) -> Ceiling:
    """The mean over the seeds; unknown of a warm-up where a request arrives when another has ended."""
    if asked.skip_s and (asked.load.closed_loop or asked.load.concurrency is not None):
        return Ceiling(None, 0)
    found = [ceiling_of(served.load(seed), skip_s=asked.skip_s) for seed in range(asked.seeds)]
    shares = [ceiling.hit_share for ceiling in found if ceiling.hit_share is not None]
    return Ceiling(sum(shares) / len(shares) if len(shares) == len(found) else None, found[0].prompt_tokens)


def _of_load(asked: Asked) -> _Served:
    first = load_of(asked.load, 0)
    return _Served(lambda seed: load_of(asked.load, seed), plan_of(asked.fleet, first.block_size), model=asked.model)


def _of_ledger(asked: Asked) -> _Served:
    if asked.load.name is not None or asked.load.trace is not None:
        raise AskedWrong("--from-ledger says what is served; leave out --load and --trace")
    period = period_of(asked.ledgers, asked.period or "")
    past = past_load(period, asked.model)
    workload = past.workload
    assert workload is not None
    first = arriving(asked.load, workload, 0)
    plan, how_fast = _as_fast_as_then(asked, period, past.model, plan_of(asked.fleet, first.block_size))
    return _Served(
        load=lambda seed: arriving(asked.load, workload, seed),
        plan=plan,
        recorded=past.recorded,
        model=past.model,
        when=period.start,
        notes=tuple(filter(None, (left_out_text(past), how_fast))),
    )


def _as_fast_as_then(asked: Asked, period: LedgerPeriod, model: str, plan: FleetPlan) -> tuple[FleetPlan, str]:
    """The engines at the speed that the ledger has measured, unless another one is asked for."""
    if asked.fleet.fleet or asked.fleet.prefill_tokens_per_s is not None:
        return plan, "engines are as fast as they were asked to be"
    speed = speed_of(period, model, plan.specs[0].perf)
    plan = replace(plan, specs=[replace(spec, perf=speed.model) for spec in plan.specs])
    rate, itl_s = speed.model.prefill_tokens_per_s, speed.model.itl_s
    prompts = f"as measured over {speed.prompts:,} prompts" if speed.is_measured else f"of {asked.fleet.engine}"
    answers = f"as measured over {speed.answers:,} answers" if speed.answers >= LEAST_SAMPLES else "of the preset"
    prompts = f"{speed.model.base_s * 1e3:.1f} ms for each prompt and {rate:,.0f} tok/s ({prompts})"
    return plan, f"engines take {prompts}, {itl_s * 1e3:.1f} ms between tokens ({answers})"


def _price(asked: Asked, served: _Served) -> Price | None:
    return None if asked.prices is None else price_of(PriceBook.load(asked.prices), served.model, served.when)


def _about(asked: Asked, served: _Served) -> dict[str, Any]:
    specs = served.plan.specs
    engines: dict[str, int] = {}
    for spec in specs:
        tokens = f"{spec.capacity_blocks * spec.block_size:,} tokens of KV cache"
        host = f", {spec.host_blocks * spec.block_size:,} in host memory" if spec.host_blocks else ""
        role = "" if spec.role == "both" else f"{spec.role}, "
        words = f"{role}{tokens}{host}, {spec.perf.prefill_tokens_per_s:,.0f} tok/s"
        engines[words] = engines.get(words, 0) + 1
    return {
        "load": served.load(0).name,
        "arrivals": arrivals_text(asked.load),
        "block_size": specs[0].block_size,
        "endpoints": len(specs),
        "engines": [f"{count} x {words}" for words, count in engines.items()],
        "replicas": asked.replicas,
    }


def arrivals_text(asked: LoadAsked) -> str:
    """How requests arrive, in words."""
    if asked.concurrency is not None:
        return f"closed loop, {asked.concurrency} in flight"
    rate = (
        f" at {asked.rate_per_s:g}/s"
        if asked.rate_per_s is not None
        else f", {asked.speed:g}x as fast" * (asked.speed != 1)
    )
    arrivals = "arrivals as the load has them" if asked.arrivals == "recorded" else f"{asked.arrivals} arrivals"
    return f"{arrivals}{rate}" + ", later turns after the answer before them" * asked.closed_loop


def headline(summary: Summary) -> list[str]:
    """What was simulated, a line each, for people."""
    about = summary.about
    seeds = max(map(len, summary.runs.values()))
    return [
        f"{about['load']}, {about['arrivals']}, blocks of {about['block_size']} tokens"
        + f"; means of {seeds} seeds" * (seeds > 1),
        f"{'; '.join(about['engines'])}" + f"; {about['replicas']} gateways" * (about["replicas"] > 1),
        *summary.notes,
    ]
