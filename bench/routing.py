"""Routing policies over recorded and published loads, in simulation: the tables of docs/routing-measured.md.

make bench-routing           a selection of policies, two seeds, 10 minutes on two idle cores
make bench-routing-full      everything, five seeds, 90 minutes: bench/results/routing.json and the page
.venv/bin/python -m bench.routing --tables E,F --seeds 1 --policies prefixgate,rr      a look at it

Runs are kept in bench/.cache: a command that was interrupted goes on where it was, and what did not change since is not
run again. A whole run of a commit writes its result, the page and its pictures, which say what was run; one of the
selection does not replace one of everything. Other whole runs leave a result in bench/.cache, and a part of one
(--tables, --policies, --seeds) is only printed.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.result import RESULTS, ROOT, Goal, commit, write_result
from bench.routing_page import PAGE, RUN, page_part, read_result, with_part
from bench.routing_plots import write_plots
from bench.routing_report import Row, printed, rows_of
from bench.routing_runs import Job, jobs_of, run_jobs
from bench.routing_tables import TABLES
from bench.routing_types import CEILING, Outcomes, Table

SEEDS: Final = {True: 5, False: 2}
PACKAGES: Final = ("prefixgate",)
UNCOMMITTED: Final = ROOT / "bench" / ".cache" / "results"
LEAST_WIDTH: Final = 150
"""Columns of a terminal: a ladder has many stages."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is run."""

    full: bool
    keys: Sequence[str]
    policies: frozenset[str]
    seeds: int
    processes: int

    @property
    def whole(self) -> bool:
        """Every table, policy and seed of this run."""
        return len(self.keys) == len(TABLES) and not self.policies and self.seeds == SEEDS[self.full]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; the exit status says nothing of the goals."""
    options = _options(arguments)
    console = Console()
    console = Console(width=max(console.width, LEAST_WIDTH))
    tables = {key: TABLES[key](options.full) for key in options.keys}
    results = _run(tables, options, console)
    goals: list[Goal] = []
    for key, table in tables.items():
        console.print(*printed(table, results[key]), sep="\n")
        goals += (goals_of_table := _goals(table, results[key], options))
        for goal in goals_of_table:
            console.print(goal.text(), markup=False)
    if options.whole:
        rows: list[Row] = [{RUN: "full" if options.full else "short", "seeds": options.seeds}]
        rows += [row for key, table in tables.items() for row in rows_of(table, results[key])]
        for path in _written(options.full, rows, goals):
            console.print(f"written: {path.relative_to(ROOT)}", soft_wrap=True)
    return 0


def _written(full: bool, rows: Sequence[Row], goals: Sequence[Goal]) -> Iterator[Path]:
    """The result file, and what is made of it. Of files that no commit has, nothing is written where it would stay."""
    committed = not str(commit()).endswith("+changes")
    kept = committed and (full or _is_replaced_by_a_selection(RESULTS / "routing.json"))
    yield (path := write_result("routing", rows, goals, PACKAGES, RESULTS if kept else UNCOMMITTED))
    if kept:
        result = read_result(path)
        PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), page_part(TABLES, result)), encoding="utf-8")
        yield PAGE
        yield from write_plots(result.rows)


def _is_replaced_by_a_selection(path: Path) -> bool:
    return not path.exists() or not read_result(path).is_full


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every policy and scenario")
    parser.add_argument("--tables", default="", help="letters, with commas: A,E")
    parser.add_argument("--policies", default="", help="names, with commas")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    keys = [key for key in given.tables.split(",") if key] or list(TABLES)
    unknown = [key for key in keys if key not in TABLES]
    if unknown:
        parser.error(f"there is no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    policies = frozenset(name for name in given.policies.split(",") if name)
    return Options(given.full, keys, policies, given.seeds or SEEDS[given.full], given.processes)


def _run(tables: Mapping[str, Table], options: Options, console: Console) -> dict[str, Outcomes]:
    """Every outcome by table."""
    results = {key: Outcomes() for key in tables}
    jobs = list(_jobs(tables, options))
    began_s, computed_s = time.monotonic(), 0.0
    for number, done in enumerate(run_jobs(TABLES, jobs, processes=options.processes), 1):
        results[done.job.table].add(done.outcome)
        computed_s += done.seconds
        if done.seconds:
            job = done.job
            text = f"{number}/{len(jobs)}  {job.table}  {job.scenario}  {job.policy}  seed {job.seed}"
            console.print(f"{text}  {done.seconds:.1f} s", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{time.monotonic() - began_s:.0f} s, {computed_s:.0f} s of processor", highlight=False)
    return results


def _jobs(tables: Mapping[str, Table], options: Options) -> Iterator[Job]:
    for table in tables.values():
        for job in jobs_of(table, options.full, options.seeds):
            if not options.policies or job.policy in options.policies or job.policy == CEILING:
                yield job


def _goals(table: Table, outcomes: Outcomes, options: Options) -> list[Goal]:
    """A part of the policies may lack what a goal is about."""
    goals = list(table.goals(outcomes))
    return [goal for goal in goals if goal.value == goal.value] if options.policies else goals


if __name__ == "__main__":
    sys.exit(main())
