"""docs/routing.md: the tables of a result file, between two marks of the page.

    bench/results/routing.json ──page_part──> text ──written into──> docs/routing.md, the rest of which people write
                               └────────────> docs/img/*.svg          (routing_plots)

All figures of the page come from the file: a test compares the two, so that they cannot drift apart.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.result import ROOT
from bench.routing_report import Grid, Row, grids
from bench.routing_runs import TableMaker
from bench.routing_types import Table

PAGE: Final = ROOT / "docs" / "routing.md"
BEGIN: Final = "<!-- made by `make bench-routing-full` from bench/results/routing.json: begin -->"
END: Final = "<!-- end -->"


@dataclass(frozen=True, slots=True)
class Result:
    """A result file, as far as the page needs it."""

    commit: str
    rows: Sequence[Row]
    goals: Sequence[Mapping[str, object]]


def read_result(path: Path) -> Result:
    """Raises `FileNotFoundError`, and `KeyError` for a file of another form."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Result(str(found["commit"]), found["rows"], found["goals"])


def page_part(makers: Mapping[str, TableMaker], result: Result) -> str:
    """What stands between the marks: every table that the result has, in the order of their letters."""
    lines = [_origin(result), ""]
    present = {str(row["table"]) for row in result.rows if "table" in row}
    for key, maker in makers.items():
        if key in present:
            lines += _section(maker(True), result)
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
    return f"Measured at commit `{commit}`. Of {len(result.goals)} goals {met} are met" + (
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
