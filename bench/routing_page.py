"""docs/routing-measured.md: the tables of a result file, between two marks of the page.

    bench/results/routing.json ──page_part──> text ──written into──> docs/routing-measured.md; people write the rest
                               └────────────> docs/img/*.svg          (routing_plots)

All figures of the page come from the file: a test compares the two, so that they cannot drift apart.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.result import ROOT
from bench.routing_plots import PICTURES, plots
from bench.routing_report import ERROR, Grid, Row, by_scenario, grids, number
from bench.routing_runs import TableMaker
from bench.routing_types import Table
from gateway.sim.play import OURS

PAGE: Final = ROOT / "docs" / "routing-measured.md"
BEGIN: Final = (
    "<!-- made by `make bench-routing` or `make bench-routing-full` from bench/results/routing.json: begin -->"
)
END: Final = "<!-- end -->"
RUN: Final = "run"
"""A row of the result that says what was run, `full` or `short`, and with how many seeds; it belongs to no table."""
UNMEASURED: Final = "Nothing is measured yet.\n"


@dataclass(frozen=True, slots=True)
class Result:
    """A result file, as far as the page needs it."""

    commit: str
    rows: Sequence[Row]
    goals: Sequence[Mapping[str, object]]
    is_full: bool = True
    seeds: int = 5


def read_result(path: Path) -> Result:
    """Raises `FileNotFoundError`, and `KeyError` for a file of another form."""
    found = json.loads(path.read_text(encoding="utf-8"))
    about: Mapping[str, str] = next((row for row in found["rows"] if RUN in row), {RUN: "full", "seeds": "5"})
    rows = [row for row in found["rows"] if RUN not in row]
    return Result(str(found["commit"]), rows, found["goals"], about[RUN] == "full", int(about["seeds"]))


def expected_part(makers: Mapping[str, TableMaker], path: Path) -> str:
    """What should stand between the marks, given where the result would be."""
    return page_part(makers, read_result(path)) if path.exists() else UNMEASURED


def part_of(page: str) -> str:
    """What stands between the marks."""
    return page.partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def page_part(makers: Mapping[str, TableMaker], result: Result) -> str:
    """What stands between the marks: every table that the result has, in the order of their letters."""
    lines = [_origin(result), ""]
    for name in plots(result.rows):
        lines += [f"![{PICTURES[name]}](img/routing-{name})", ""]
    present = {str(row["table"]) for row in result.rows if "table" in row}
    for key, maker in makers.items():
        if key in present:
            lines += _section(maker(result.is_full), result)
    return "\n".join(lines).rstrip() + "\n"


def with_part(page: str, part: str) -> str:
    """The page with what is between its marks replaced. Raises `ValueError` where it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no part between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _origin(result: Result) -> str:
    met = sum(1 for goal in result.goals if goal["met"])
    missed = len(result.goals) - met
    commit = result.commit[:12]
    what = "everything" if result.is_full else "a selection of loads and policies (`make bench-routing`)"
    run = f"Measured at commit `{commit}`: {what}, {result.seeds} seeds"
    return f"{run}. Of {len(result.goals)} goals {met} are met" + (
        f"; the {missed} others are named under their tables." if missed else "."
    )


def _section(table: Table, result: Result) -> Iterator[str]:
    yield f"### {table.key}. {table.title}"
    yield ""
    yield table.text.strip()
    yield ""
    for grid in grids(table, result.rows):
        yield from _markdown(grid)
    yield from _goals(table, result)
    yield from _ahead(table, result.rows)


def _ahead(table: Table, rows: Sequence[Row]) -> Iterator[str]:
    """Who is ahead of ours, by more than two standard errors of both: in hits without time, in TTFT p90 with it."""
    lines = []
    for scenario, found in by_scenario(table, rows):
        policies = {str(row["policy"]): row for row in found}
        if (ours := policies.pop(OURS, None)) is None:
            continue
        figure, sign = ("ttft_p90_s", -1) if "ttft_p90_s" in ours else ("hit_share", 1)
        ahead = {
            policy: by
            for policy, row in policies.items()
            if (by := sign * (number(row, figure) - number(ours, figure))) > 2 * _error(ours, row, figure)
        }
        if ahead:
            unit, factor = ("s of TTFT p90", 1) if sign < 0 else ("points of hits", 100)
            by_how_much = ", ".join(f"{policy} by {factor * by:.2g}" for policy, by in ahead.items())
            lines.append(f"- {scenario}: {by_how_much} {unit}")
    if lines:
        yield from ("Ahead of prefixgate:", "", *lines, "")


def _error(ours: Row, theirs: Row, figure: str) -> float:
    errors = (number(row, figure + ERROR) for row in (ours, theirs))
    return math.hypot(*(0.0 if math.isnan(error) else error for error in errors))


def _markdown(grid: Grid) -> Iterator[str]:
    if grid.title:
        yield f"**{grid.title}**" + (f" ({grid.caption})" if grid.caption else "")
        yield ""
    yield "| " + " | ".join(grid.heads) + " |"
    yield "|" + "|".join("---" if head in ("load", "policy") else "---:" for head in grid.heads) + "|"
    for line in grid.lines:
        bold = any(cell == "prefixgate" for cell in line[:2])
        yield "| " + " | ".join(f"**{cell}**" if bold and cell == "prefixgate" else cell for cell in line) + " |"
    yield ""


def _goals(table: Table, result: Result) -> Iterator[str]:
    """Those that are not met in full; the others are counted, or named where they are few."""
    mine = [goal for goal in result.goals if str(goal["name"]).startswith(f"{table.key}:")]
    mine += [goal for goal in result.goals if str(goal["name"]).startswith(f"{table.key} ")]
    missed = [goal for goal in mine if not goal["met"]]
    met = [goal for goal in mine if goal["met"]]
    if not mine:
        return
    yield f"{len(met)} of {len(mine)} goals met" + (":" if missed or len(met) <= _FEW else ".")
    yield ""
    for goal in [*missed, *(met if len(met) <= _FEW else ())]:
        yield f"- {'met' if goal['met'] else '**not met**'}: {_goal_text(goal)}"
    if missed or len(met) <= _FEW:
        yield ""


_FEW: Final = 12


def _goal_text(goal: Mapping[str, object]) -> str:
    value, bound = float(str(goal["value"])), float(str(goal["bound"]))
    return f"{goal['name']}: {value:.4g} {'≥' if goal['sense'] == '>=' else '≤'} {bound:.4g}"
