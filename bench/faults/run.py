"""One run: a fleet, clients, faults; then everything is held against everything."""

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from bench.faults.audit import Audit, Evidence, Prices, audit
from bench.faults.books import rows_of_file, rows_of_server
from bench.faults.client import Clients
from bench.faults.fleet import PRICE, Fleet, FleetPlan, models_of, running_fleet
from bench.faults.judging import World
from bench.faults.playing import Pace, Played, play
from bench.faults.schedule import pairs, singles
from bench.faults.timeline import Figures, figures_of
from bench.faults.traces import leaked, left_over
from bench.faults.types import Acted, Asked, Fault, Outcome, Row, Step

SETTLED_S: Final = 5.0
"""After a fault, until an endpoint or a gateway should be in use again."""
LEFT_WITHIN_S: Final = 75.0
"""What a gateway that was killed held is held for a minute (`quota.hold_s`)."""
WRITTEN_WITHIN_S: Final = 20.0
"""From the end of the load until no row is open any more."""
_ASK_AGAIN_S: Final = 0.5
_MICRO_UNITS: Final = 10**6
"""A unit a million tokens is so many pico-units a token."""
PRICES: Final = Prices(
    input_pico=int(Decimal(PRICE["input_per_mtok"]) * _MICRO_UNITS),
    cached_input_pico=int(Decimal(PRICE["cached_input_per_mtok"]) * _MICRO_UNITS),
    output_pico=int(Decimal(PRICE["output_per_mtok"]) * _MICRO_UNITS),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. `pair_count` pairs follow the singles; `only` leaves the faults whose names begin with one of it."""

    fleet: FleetPlan
    pace: Pace
    seed: int
    workers: int
    pair_count: int
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it."""

    plan: Plan
    played: Played
    asked: Sequence[Asked]
    figures: Sequence[Figures]
    audit: Audit
    partitions: str
    took_s: float

    def row(self) -> dict[str, object]:
        """For the result file."""
        return {
            "ledger": self.plan.fleet.ledger,
            "seed": self.plan.seed,
            "workers": self.plan.workers,
            "engines": {one.name: f"{one.dialect}, {one.model}" for one in self.plan.fleet.engines},
            "partitions": self.partitions,
            "took_s": round(self.took_s, 1),
            "counts": dict(self.audit.counts),
            "totals": {name: len(found) for name, found in self.audit.totals.items()},
            "found": {name: list(found[:20]) for name, found in self.audit.totals.items() if found},
            "left_out": self.played.left_out,
            "steps": [one.row(self.played.epoch_s) for one in self.figures],
            "seconds": seconds_of(self.asked, self.played.epoch_s),
        }


async def run(plan: Plan, home: Path, say: Callable[[str], None]) -> Ran:
    """All of it, in a new folder. Raises `DemoFailed` where the fleet cannot be started."""
    began_s = time.monotonic()
    canary = f"canary{secrets.token_hex(8)}"
    async with running_fleet(plan.fleet, home) as fleet:
        urls = {name: gateway.url for name, gateway in fleet.gateways.items()}
        rng = random.Random(plan.seed)
        clients = Clients(urls, fleet.keys, sorted(models_of(plan.fleet.engines)), canary, rng)
        await clients.greet()
        async with asyncio.TaskGroup() as group:
            group.create_task(clients.run(plan.workers))
            played = await play(fleet, steps_of(plan), plan.pace, clients.asked, say)
            clients.enough.set()
        await fleet.remember()
        left = await left_over(fleet, LEFT_WITHIN_S)
        rows = await _rows(fleet)
        wall_less_mono_s = time.time() - time.monotonic()
        spaces = any(gateway.namespace is not None for gateway in fleet.gateways.values())
        await fleet.stop_gateways()
        if fleet.address is None:
            rows = await _rows(fleet)
        found = leaked(home, canary, fleet.secrets)
    world = World(models_of(plan.fleet.engines), list(urls), _acted(played.steps), SETTLED_S, played.epoch_s)
    evidence = Evidence(
        asked=clients.asked,
        computed=fleet.computed,
        rows=rows,
        world=world,
        prices=PRICES,
        records=list(fleet.records.values()),
        left_over=left,
        leaked=found,
        continues=plan.fleet.continues,
    )
    names = [engine.name for engine in plan.fleet.engines]
    return Ran(
        plan=plan,
        played=played,
        asked=clients.asked,
        figures=figures_of(played.steps, clients.asked, rows, names, wall_less_mono_s),
        audit=audit(evidence),
        partitions="packets lost between network namespaces" if spaces else "a proxy that passes nothing on",
        took_s=time.monotonic() - began_s,
    )


def steps_of(plan: Plan) -> list[tuple[Fault, ...]]:
    """The schedule: a function of the plan."""
    engines = [engine.name for engine in plan.fleet.engines]
    gateways = [f"gateway-{number}" for number in range(plan.fleet.gateways)]
    rng, has_server = random.Random(plan.seed), plan.fleet.ledger == "postgres"
    deck: list[tuple[Fault, ...]] = [(one,) for one in singles(engines, gateways, rng, has_server=has_server)]
    deck += pairs(engines, gateways, plan.pair_count, rng, has_server=has_server)
    if not plan.only:
        return deck
    return [step for step in deck if all(any(one.name.startswith(name) for name in plan.only) for one in step)]


def seconds_of(asked: Sequence[Asked], epoch_s: float) -> list[dict[str, object]]:
    """The timeline by the second in which requests ended, seconds without any left out."""
    by_second: dict[int, list[Asked]] = {}
    for one in asked:
        by_second.setdefault(int(one.ended_s - epoch_s), []).append(one)
    return [
        {
            "second": second,
            "requests": len(ended),
            "failed": sum(one.outcome is Outcome.FAILED for one in ended),
            "cut": sum(one.outcome is Outcome.CUT for one in ended),
            "tried_again": sum(len(one.tries) > 1 for one in ended),
        }
        for second, ended in sorted(by_second.items())
    ]


async def _rows(fleet: Fleet) -> list[Row]:
    """What the ledgers have, once nothing is open any more, or it has had its time."""
    until_s = time.monotonic() + WRITTEN_WITHIN_S
    while True:
        rows = await asyncio.to_thread(_read, fleet)
        if all(row.state is not None for row in rows) or time.monotonic() > until_s:
            return rows
        await asyncio.sleep(_ASK_AGAIN_S)


def _read(fleet: Fleet) -> list[Row]:
    if fleet.address is not None:
        return rows_of_server(fleet.address)
    return [row for name, one in fleet.gateways.items() if one.ledger for row in rows_of_file(one.ledger, name)]


def _acted(steps: Sequence[Step]) -> list[Acted]:
    return [one for step in steps for one in step.acted]
