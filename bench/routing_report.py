"""What runs come to: rows for the result file, and tables for people.

row   {"table", "scenario", "policy", "seeds", figure: mean, figure + "_error": standard error}
      {"table", "scenario", "policy": "ceiling", "unlimited", "pooled"}
"""

import math
from collections.abc import Iterator, Mapping, Sequence

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


def cell(row: Row, column: Column | Series, figure: str | None = None) -> str:
    """A figure as text, with its standard error where that shows; "–" where there is none."""
    figure = figure or column.figure
    value = number(row, figure) * column.factor
    if math.isnan(value):
        return "–"
    error = number(row, figure + ERROR) * column.factor
    text = f"{value:,.{column.digits}f}"
    return text if math.isnan(error) or round(error, column.digits) == 0 else f"{text} ± {error:,.{column.digits}f}"


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


def rich_tables(table: Table, outcomes: Outcomes) -> Iterator[Printed]:
    """For a terminal: one table a scenario, and one a series."""
    for scenario, rows in by_scenario(table, rows_of(table, outcomes)):
        title = f"{table.key}  {table.title}: {scenario}\n{ceiling_text(rows)}"
        policies = [row for row in rows if row["policy"] != CEILING]
        columns = shown(table, policies)
        yield _printed(title, [column.head for column in columns], [(row, columns) for row in policies])
        for series in table.series:
            at = points(series, policies)
            heads = [Column(point, series.figure + AT + point, series.digits, series.factor) for point in at]
            if heads:
                yield _printed(series.title, at, [(row, heads) for row in policies])


def _printed(title: str, heads: Sequence[str], lines: Sequence[tuple[Row, Sequence[Column]]]) -> Printed:
    printed = Printed(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    printed.add_column("policy", no_wrap=True)
    for head in heads:
        printed.add_column(head, justify="right")
    for row, columns in lines:
        printed.add_row(str(row["policy"]), *(cell(row, column) for column in columns))
    return printed
