"""docs/performance.md: the tables of a result file, between two marks of the page, the rest of which people write.

    bench/results/overhead.json ──page_part──> text ──written into──> docs/performance.md
                               └──────plot───> docs/img/overhead.svg

All figures of the page come from the file: a test compares the two.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.overhead_plot import NAME, TITLE, plot
from bench.overhead_report import HEADS, OURS_NAME, Grid, Row, goal_text, grids
from bench.result import ROOT

PAGE: Final = ROOT / "docs" / "performance.md"
IMAGE: Final = ROOT / "docs" / "img" / NAME
BEGIN: Final = "<!-- made by `make bench-overhead` from bench/results/overhead.json: begin -->"
END: Final = "<!-- end -->"
UNMEASURED: Final = "Nothing is measured yet.\n"


@dataclass(frozen=True, slots=True)
class Result:
    """A result file, as far as the page needs it."""

    commit: str
    machine: Mapping[str, object]
    rows: Sequence[Row]
    goals: Sequence[Mapping[str, object]]


def read_result(path: Path) -> Result | None:
    """None where there is none. Raises `KeyError` for a file of another form."""
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return Result(str(found["commit"]), found["machine"], found["rows"], found["goals"])


def write_page(result: Result, page: Path = PAGE, image: Path = IMAGE) -> None:
    """Put a result into the page, and draw its picture. Raises `ValueError` for a page without marks."""
    page.write_text(with_part(page.read_text(encoding="utf-8"), page_part(result)), encoding="utf-8")
    if drawn := plot(result.rows):
        image.write_text(drawn, encoding="utf-8")


def page_part(result: Result | None) -> str:
    """What stands between the marks."""
    if result is None:
        return UNMEASURED
    return "\n".join(_lines(result)).rstrip() + "\n"


def part_of(page: str) -> str:
    """What stands between the marks now."""
    return page.partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def with_part(page: str, part: str) -> str:
    """The page with what is between its marks replaced. Raises `ValueError` where it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no part between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def _lines(result: Result) -> Iterator[str]:
    machine = result.machine
    yield f"Measured at commit `{result.commit[:12]}` on {machine['cores']} cores of an {machine['cpu']}."
    yield ""
    if plot(result.rows):
        yield from (f"![{TITLE}](img/{NAME})", "")
    for grid in grids(result.rows):
        yield from _table(grid)
    if result.goals:
        yield from ("### Goals", "")
        yield from (f"- {goal_text(goal)}" for goal in result.goals)


def _table(grid: Grid) -> Iterator[str]:
    yield from (f"### Bodies of {grid.size}", "", f"{grid.caption}.", "")
    yield f"| {' | '.join(HEADS)} |"
    yield f"|{'|'.join('---' if head in HEADS[:2] else '---:' for head in HEADS)}|"
    for line in grid.lines:
        cells = [f"**{cell}**" if cell and line[0] == OURS_NAME else cell for cell in line]
        yield f"| {' | '.join(cells)} |"
    yield ""
    if grid.voids:
        yield from ("Void, and why:", "", *(f"- {one}" for one in grid.voids), "")
