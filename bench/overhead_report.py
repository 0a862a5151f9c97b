"""From the rows of `make bench-overhead` to figures, tables and goals. Pure: the same for a terminal and for the docs.

*added*: latency of the row less that of `direct`, in the same pass, then the median of the passes. A figure in whose
windows anything went wrong is void: it is told why, and takes part in nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from bench.result import Goal

Row = Mapping[str, object]
OURS_NAME: Final = "prefixgate"
OURS, SMG, LITELLM = (OURS_NAME, "1 worker"), ("SMG", "cache_aware"), ("LiteLLM", "simple-shuffle")
DIRECT, NGINX = ("direct", ""), ("nginx", "")
SMALL, MIDDLE = "2.3 KB", "33 KB"
SHOWN: Final = (SMALL, MIDDLE)
"""Sizes of the picture."""
MOST_MB: Final = 150.0
_THROUGHPUT: Final = (16, 64)
NOTHING: Final = "-"
HEADS: Final = (
    "router",
    "policy",
    "added p50 ms",
    "added p99 ms",
    "c=16 req/s",
    "of nginx",
    "c=64 req/s",
    "of nginx",
    "CPU µs",
    "Valkey µs",
    "peak MB",
)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of one size: lines of cells under `HEADS`, and why cells are void."""

    size: str
    caption: str
    lines: Sequence[Sequence[str]]
    voids: Sequence[str]


class Figures:
    """The rows of a result, to be asked. What was not measured, or is void, is NaN."""

    def __init__(self, rows: Sequence[Row], *, with_void: bool = False) -> None:
        """`with_void`: what went wrong counts as if it had not."""
        self._with_void = with_void
        self._rows = {(str(row["router"]), str(row["policy"]), str(row["size"])): row for row in rows if "size" in row}

    @property
    def sizes(self) -> list[str]:
        """In their order."""
        return list(dict.fromkeys(size for _, _, size in self._rows))

    def rows(self, size: str) -> list[Row]:
        """Of one size."""
        return [row for (_, _, of), row in self._rows.items() if of == size]

    def routers(self, size: str) -> list[tuple[str, str]]:
        """Names and policies of the rows of a size, in their order."""
        return [(router, policy) for router, policy, of in self._rows if of == size]

    def passes(self, who: tuple[str, str], size: str, connections: int, name: str) -> list[float]:
        """A figure in each pass; none where it is void or was not measured."""
        cell = self._rows.get((*who, size), {}).get(f"c={connections}")
        if not isinstance(cell, Mapping) or (cell["void"] and not self._with_void):
            return []
        return [float(figure) for figure in cell[name]]

    def of(self, who: tuple[str, str], size: str, connections: int, name: str) -> float:
        """The median of the passes."""
        return _median(self.passes(who, size, connections, name))

    def added_ms(self, who: tuple[str, str], size: str, name: str) -> float:
        """What a latency (`p50_us`, `p99_us`) at one connection is above that without a router."""
        pairs = zip(self.passes(who, size, 1, name), self.passes(DIRECT, size, 1, name), strict=False)
        return _median([(routed - direct) / 1000 for routed, direct in pairs])

    def ratio(self, who: tuple[str, str], to: tuple[str, str], size: str, connections: int) -> float:
        """Requests a second of one over those of another in the same pass."""
        mine, others = (self.passes(one, size, connections, "requests_per_s") for one in (who, to))
        return _median([one / other for one, other in zip(mine, others, strict=False)])

    def peak_mb(self, who: tuple[str, str]) -> float:
        """The most memory over all of the run."""
        found = [float(str(row["peak_mb"])) for key, row in self._rows.items() if key[:2] == who and "peak_mb" in row]
        return max(found, default=math.nan)

    def voids(self, size: str) -> list[str]:
        """Why figures of a size are void."""
        return [
            f"{row['router']} {row['policy']}, {name}: {'; '.join(cell['void'])}"
            for row in self.rows(size)
            for name, cell in row.items()
            if isinstance(cell, Mapping) and cell["void"]
        ]


def grids(rows: Sequence[Row], *, with_void: bool = False) -> list[Grid]:
    """A table for each size."""
    figures = Figures(rows, with_void=with_void)
    return [_grid(figures, size) for size in figures.sizes]


def _grid(figures: Figures, size: str) -> Grid:
    rows = figures.rows(size)
    caption = (
        f"{rows[0]['body_bytes']:,} bytes, {rows[0]['prompt_tokens']:,} tokens, {rows[0]['cached_tokens']:,} shared"
    )
    return Grid(size, caption, [_line(figures, row, size) for row in rows], figures.voids(size))


def _line(figures: Figures, row: Row, size: str) -> list[str]:
    who = (str(row["router"]), str(row["policy"]))
    busiest = max(_THROUGHPUT, key=lambda count: f"c={count}" in row and count)
    added = [_number(figures.added_ms(who, size, name), 2) for name in ("p50_us", "p99_us")]
    if who == DIRECT:
        added = [f"({_number(figures.of(who, size, 1, name) / 1000, 2)})" for name in ("p50_us", "p99_us")]
    rates: list[str] = []
    for connections in _THROUGHPUT:
        rates.append(_number(figures.of(who, size, connections, "requests_per_s"), 0))
        rates.append(_number(figures.ratio(who, NGINX, size, connections), 2))
    cpu = [figures.of(who, size, busiest, name) or math.nan for name in ("cpu_us", "index_cpu_us")]
    return [*who, *added, *rates, *(_number(one, 0) for one in cpu), _number(figures.peak_mb(who), 0)]


def table(rows: Sequence[Row], *, with_void: bool = False) -> Group:
    """For people at a terminal."""
    tables = []
    for grid in grids(rows, with_void=with_void):
        made = Table(title=f"{grid.size}: {grid.caption}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for head in HEADS:
            made.add_column(head, justify="left" if head in ("router", "policy") else "right", no_wrap=True)
        for line in grid.lines:
            made.add_row(*line)
        tables.append(made)
        made.caption = "\n".join(f"void: {one}" for one in grid.voids) or None
    return Group(*tables)


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """What is promised, as far as it was measured; a void figure meets no goal."""
    figures = Figures(rows)
    who = {(str(row["router"]), str(row["policy"])) for row in rows if "router" in row}
    if OURS not in who:
        return []
    return [
        *(_against_smg(figures) if SMG in who else ()),
        *(_against_litellm(figures) if LITELLM in who else ()),
        Goal("peak memory, MB", figures.peak_mb(OURS), MOST_MB, "<="),
    ]


def goal_text(goal: Mapping[str, object]) -> str:
    """A line for the docs, from a result file."""
    value, bound = float(str(goal["value"])), float(str(goal["bound"]))
    found = "void" if math.isnan(value) else f"{value:.3g} {'≥' if goal['sense'] == '>=' else '≤'} {bound:.3g}"
    return f"{'met' if goal['met'] else '**not met**'}: {goal['name']}: {found}"


def _against_smg(figures: Figures) -> list[Goal]:
    goals = []
    if MIDDLE in figures.sizes:
        others = [figures.added_ms(("SMG", policy), MIDDLE, "p50_us") for policy in ("cache_aware", "round_robin")]
        fastest = min(one for one in others if not math.isnan(one)) if not all(map(math.isnan, others)) else math.nan
        ours = figures.added_ms(OURS, MIDDLE, "p50_us")
        goals.append(Goal(f"{MIDDLE}: added p50 at c=1, ms, against the faster SMG", ours, fastest, "<="))
        goals.append(_times(figures, SMG, MIDDLE, 1.0))
    if SMALL in figures.sizes:
        goals += [_times(figures, SMG, SMALL, bound) for bound in (0.8, 1.0)]
    return goals


def _against_litellm(figures: Figures) -> list[Goal]:
    return [_times(figures, LITELLM, size, 20.0) for size in (SMALL, MIDDLE) if size in figures.sizes]


def _times(figures: Figures, other: tuple[str, str], size: str, bound: float) -> Goal:
    """Requests a second over another's, the worse of both numbers of connections."""
    ratios = [figures.ratio(OURS, other, size, connections) for connections in _THROUGHPUT]
    worst = math.nan if any(map(math.isnan, ratios)) else round(min(ratios), 3)
    return Goal(f"{size}: requests a second / {' '.join(other)}, the worse of c=16 and c=64", worst, bound, ">=")


def _median(figures: Sequence[float]) -> float:
    return median(figures) if figures else math.nan


def _number(figure: float, digits: int) -> str:
    return NOTHING if math.isnan(figure) else f"{figure:,.{digits}f}"
