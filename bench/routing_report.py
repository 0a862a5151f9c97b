"""What runs come to: rows for the result file, and tables for people.

row   {"table", "scenario", "policy", "seeds", figure: mean, figure + "_error": standard error}
      {"table", "scenario", "policy": "ceiling", "unlimited", "pooled"}
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table as Printed

from bench.routing_types import CEILING, POOLED, UNLIMITED, Column, Outcomes, Series, Table

ERROR = "_error"
AT = " @ "
"""Between a figure and the point of a series."""
DIGITS = 6
"""Significant ones in the result file."""

Row = Mapping[str, object]


def rows_of(table: Table, outcomes: Outcomes) -> list[Row]:
    """A row for each scenario and policy that was run."""
    return [
        _row(table, outcomes, scenario.name, policy)
        for scenario in table.scenarios
        for policy in (CEILING, *scenario.policies)
        if outcomes.seeds(scenario.name, policy)
    ]


def _row(table: Table, outcomes: Outcomes, scenario: str, policy: str) -> Row:
    row: dict[str, object] = {"table": table.key, "scenario": scenario, "policy": policy}
    row["seeds"] = len(outcomes.seeds(scenario, policy))
    for figure in outcomes.names(scenario, policy):
        sample = outcomes.sample(scenario, policy, figure)
        row[figure] = _rounded(sample.mean)
        if sample.error:
            row[figure + ERROR] = _rounded(sample.error)
    return row


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def cell(row: Row, column: Column) -> str:
    """A figure as text, with its standard error where that shows; "–" where there is none."""
    value = number(row, column.figure) * column.factor
    if math.isnan(value):
        return "–"
    error = number(row, column.figure + ERROR) * column.factor
    text = f"{value:,.{column.digits}f}"
    shows = column.errors and not math.isnan(error) and round(error, column.digits) > 0
    return f"{text} ± {error:,.{column.digits}f}" if shows else text


def number(row: Row, name: str) -> float:
    """A number of a row; NaN where it has none of that name."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def shown(table: Table, rows: Sequence[Row]) -> list[Column]:
    """The columns that any row has something for."""
    return [column for column in table.columns if any(column.figure in row for row in rows)]


def points(series: Series, rows: Sequence[Row]) -> list[str]:
    """The points of a series, in the order in which runs gave them."""
    begin = series.figure + AT
    names = [name[len(begin) :] for row in rows for name in row if name.startswith(begin) and not name.endswith(ERROR)]
    return list(dict.fromkeys(names))


def ceiling_text(rows: Sequence[Row]) -> str:
    """The ceilings among the rows of a scenario, "" where none were asked for."""
    found = next((row for row in rows if row["policy"] == CEILING), None)
    if found is None:
        return ""
    pooled, unlimited = number(found, POOLED), number(found, UNLIMITED)
    return f"one cache of all: {100 * pooled:.1f} %, one without a limit: {100 * unlimited:.1f} %"


def by_scenario(table: Table, rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of a table, scenario by scenario."""
    mine = [row for row in rows if row["table"] == table.key]
    for scenario in dict.fromkeys(str(row["scenario"]) for row in mine):
        yield scenario, [row for row in mine if row["scenario"] == scenario]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as text: `heads` and as many cells in each line; `caption` under its title, "" for none."""

    title: str
    caption: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]


def grids(table: Table, rows: Sequence[Row]) -> Iterator[Grid]:
    """A table of the benchmark as grids: one a scenario and one a series, or one of all where it is flat."""
    if table.flat:
        mine = [row for row in rows if row["table"] == table.key and row["policy"] != CEILING]
        columns = shown(table, mine)
        heads = ["load", "policy", *(column.head for column in columns)]
        lines = [[str(r["scenario"]), str(r["policy"]), *(cell(r, column) for column in columns)] for r in mine]
        yield Grid("", "", heads, lines)
        return
    for scenario, found in by_scenario(table, rows):
        policies = [row for row in found if row["policy"] != CEILING]
        yield _grid(scenario, ceiling_text(found), policies, shown(table, policies))
        for series in table.series:
            at = points(series, policies)
            if at:
                columns = [
                    Column(point, series.figure + AT + point, series.digits, series.factor, False) for point in at
                ]
                yield _grid(series.title, "", policies, columns)


def _grid(title: str, caption: str, rows: Sequence[Row], columns: Sequence[Column]) -> Grid:
    lines = [[str(row["policy"]), *(cell(row, column) for column in columns)] for row in rows]
    return Grid(title, caption, ["policy", *(column.head for column in columns)], lines)


def printed(table: Table, outcomes: Outcomes) -> Iterator[Printed]:
    """For a terminal."""
    for grid in grids(table, rows_of(table, outcomes)):
        title = "\n".join(part for part in (f"{table.key}  {table.title}", grid.title, grid.caption) if part)
        made = Printed(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for number, head in enumerate(grid.heads):
            made.add_column(head, justify="left" if head in ("load", "policy") else "right", no_wrap=not number)
        for line in grid.lines:
            made.add_row(*line)
        yield made
