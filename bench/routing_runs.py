"""Runs of the routing benchmark: each in a process of its own, each kept, so that what was interrupted goes on.

    jobs of all tables ──kept?──> bench/.cache/routing/<digest>.json        digest of the sources that a run depends on
                        └─else──> N processes ──> kept

A run depends on the simulator, and ours on the scheduling too, and on the module that says what its load and fleet are:
a change there makes its results unknown again, and no others.
"""

import gc
import hashlib
import json
import logging
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from bench.result import ROOT
from bench.routing_types import CEILING, POOLED, UNLIMITED, Figure, Outcome, Scenario, Table
from gateway.sim.cache_only import play_caches, pooled_hit_share
from gateway.sim.play import OURS, play

KEPT: Final = ROOT / "bench" / ".cache" / "routing"
SIMULATOR: Final = (
    "gateway/sim",
    "backends/simulated",
    "backends/perf.py",
    "bench/routing_runs.py",
    "bench/data/traces",
)
OUR_SOURCES: Final = ("gateway", "backends", "prefix_index")

TableMaker = Callable[[bool], Table]
"""`full` gives every policy and scenario, else the short selection."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a scenario of a table under a policy, with a seed."""

    table: str
    full: bool
    scenario: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Done:
    """A job, its outcome, and the seconds of processor that it took (0: it was kept)."""

    job: Job
    outcome: Outcome
    seconds: float


def jobs_of(table: Table, full: bool, seeds: int) -> Iterator[Job]:
    """Every run of a table; ceilings once, as they hardly depend on the seed."""
    for scenario in table.scenarios:
        if scenario.ceilings:
            yield Job(table.key, full, scenario.name, CEILING, 0)
        for policy in scenario.policies:
            for seed in range(min(seeds, scenario.most_seeds or seeds)):
                yield Job(table.key, full, scenario.name, policy, seed)


def run_jobs(
    makers: Mapping[str, TableMaker], jobs: Sequence[Job], *, processes: int, kept: Path | None = None
) -> Iterator[Done]:
    """All jobs, those that are kept (in `KEPT`) first, then the others as they end."""
    missing, home = [], kept or KEPT
    for job in jobs:
        path = home / f"{key_of(makers, job)}.json"
        if path.exists():
            yield Done(job, _outcome(job, json.loads(path.read_text())), 0.0)
        else:
            missing.append((job, path))
    for job, path, figures, seconds in _computed(makers, missing, processes):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(figures))
        fresh.replace(path)
        yield Done(job, _outcome(job, figures), seconds)


def run(scenario: Scenario, policy: str, seed: int) -> dict[Figure, float]:
    """One run in numbers, those without a meaning left out. Raises `KeyError` for a policy that there is not."""
    if scenario.player is not None:
        return dict(scenario.player(scenario, policy, seed))
    load = scenario.load(seed)
    if policy == CEILING:
        blocks = sum(spec.capacity_blocks for spec in scenario.plan.specs)
        return {UNLIMITED: pooled_hit_share(load), POOLED: pooled_hit_share(load, blocks)}
    if not scenario.timed:
        figures = asdict(play_caches(load, scenario.plan, policy, seed=seed))
        figures = {name: value for name, value in figures.items() if not name.endswith(("_s", "_per_s"))}
        return {name: value for name, value in figures.items() if math.isfinite(value)}
    played = play(load, scenario.plan, policy, seed=seed, replicas=scenario.replicas, skip_s=scenario.skip_s)
    figures = asdict(played.figures)
    figures |= scenario.extra(played) if scenario.extra else {}
    return {name: value for name, value in figures.items() if math.isfinite(value)}


def key_of(makers: Mapping[str, TableMaker], job: Job) -> str:
    """What the result of a job is kept under: it changes with whatever may change the result."""
    scenario = _table(makers[job.table], job.full).scenario(job.scenario)
    sources = OUR_SOURCES if job.policy == OURS else ()
    parts = [
        digest_of(
            sorted(
                {*SIMULATOR, *sources, *_modules_of(makers[job.table], scenario.load, scenario.extra, scenario.player)}
            )
        ),
        *(job.table, job.scenario, job.policy, str(job.seed), str(scenario.timed), str(scenario.skip_s)),
        *(repr(scenario.plan), repr(scenario.replicas)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of(names: Iterable[str]) -> str:
    """Of all files under these paths of the repository, by their content."""
    text = []
    for name in names:
        path = ROOT / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        text += [f"{one.relative_to(ROOT)} {_digest(one)}" for one in files if one.is_file() and _counts(one)]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def _counts(path: Path) -> bool:
    return path.suffix in (".py", ".gz", ".lua")


def _modules_of(*functions: object) -> set[str]:
    """The modules of the benchmark that say what the load, the fleet and the further figures are."""
    found = {"bench/routing_fleets.py"}
    for function in functions:
        plain = function.func if isinstance(function, partial) else function
        module = sys.modules.get(getattr(plain, "__module__", ""))
        path = Path(module.__file__).resolve() if module and module.__file__ else ROOT.parent
        if path.is_relative_to(ROOT):
            found.add(str(path.relative_to(ROOT)))
    return found


@cache
def _table(maker: TableMaker, full: bool) -> Table:
    return maker(full)


def _outcome(job: Job, figures: Mapping[Figure, float]) -> Outcome:
    return Outcome(job.scenario, job.policy, job.seed, figures)


def _computed(
    makers: Mapping[str, TableMaker], missing: Sequence[tuple[Job, Path]], processes: int
) -> Iterator[tuple[Job, Path, dict[Figure, float], float]]:
    """Each in a process that may take the next one; a job names what it runs, as functions do not travel."""
    tasks = [(makers[job.table], job, path) for job, path in missing]
    if processes < 2 or len(tasks) < 2:
        yield from map(_compute, tasks)
        return
    # No bound on the tasks of a child: in Python 3.11 the pool waits for ever once its children have reached it.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    try:
        for done in as_completed([pool.submit(_compute, task) for task in tasks]):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)  # what was not begun when a job failed, or the command was stopped


def _compute(task: tuple[TableMaker, Job, Path]) -> tuple[Job, Path, dict[Figure, float], float]:
    maker, job, path = task
    gc.collect()  # a run leaves rings behind
    logging.disable(logging.WARNING)  # what a gateway would tell its operator
    began_s, figures = time.process_time(), None
    try:
        figures = run(_table(maker, job.full).scenario(job.scenario), job.policy, job.seed)
    finally:
        logging.disable(logging.NOTSET)
        if figures is None:
            print(f"in table {job.table}, {job.scenario}, {job.policy}, seed {job.seed}:", file=sys.stderr)
    return job, path, figures, time.process_time() - began_s
