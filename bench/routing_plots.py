"""Pictures of docs/routing-measured.md, written as SVG: legible on a light page and on a dark one, no library needed.

ladder.svg   TTFT p90 over the requests a second of llm-d's ladder        chat.svg   the same over the speed of chat
hits.svg     hits of ours, of the best other, of dice; and the ceiling    lines end in their name
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.result import ROOT
from bench.routing_published import ANSWERS
from bench.routing_report import AT, Row, number, points
from bench.routing_traces import CHAT_CACHES, CHAT_LARGE, CODING_CACHES, SPEEDS, SYNTHETIC_CACHES, TAU_CACHES, chat_name
from bench.routing_types import CEILING, POOLED, Series
from bench.svg import LIGHT, WIDTH, label, picture
from gateway.sim.play import OURS

IMAGES: Final = ROOT / "docs" / "img"
DRAWN: Final = (OURS, "llmd-precise", "llmd-sticky-precise", "dynamo", "smg", "llmd-classic", "rr", "random")
HEIGHT: Final = 380
LEFT, RIGHT, TOP, BOTTOM = 60, 150, 44, 44
LABEL_GAP: Final = 15

PICTURES: Final[Mapping[str, str]] = {
    "ladder.svg": "TTFT p90 over the requests a second of llm-d's ladder",
    "chat.svg": "TTFT p90 of chat over its speed",
    "hits.svg": "Hits by load, and what one cache of all would reach",
}
"""What is in them, by file name."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over `x`; `y` is logarithmic. `ticks` of x and their labels."""

    title: str
    x: str
    ticks: Mapping[float, str]
    lines: Mapping[str, Sequence[Point]]


def plots(rows: Sequence[Row]) -> dict[str, str]:
    """The pictures by file name, those that the rows have figures for."""
    made = {"ladder.svg": _ladder(rows), "chat.svg": _chat(rows)}
    drawn = {name: drawn_lines(chart) for name, chart in made.items() if chart.lines}
    return drawn | ({"hits.svg": bars} if (bars := drawn_hits(rows)) else {})


def write_plots(rows: Sequence[Row], directory: Path = IMAGES) -> list[Path]:
    """Write them; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in plots(rows).items():
        path = directory / f"routing-{name}"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _ladder(rows: Sequence[Row]) -> Chart:
    found = {str(row["policy"]): row for row in rows if row.get("table") == "B" and row["scenario"] == ANSWERS}
    series = Series("", "ttft_p90_s")
    at = points(series, list(found.values()))
    rates = {point: float(point.partition("/")[0]) for point in at}
    lines = {
        policy: [(rate, number(found[policy], series.figure + AT + point)) for point, rate in rates.items()]
        for policy in DRAWN
        if policy in found
    }
    ticks = {rate: f"{rate:g}" for rate in rates.values() if rate in _LADDER_TICKS}
    return Chart("llm-d's ladder: TTFT p90 in seconds", "requests a second", ticks, lines)


_LADDER_TICKS: Final = (3, 10, 15, 20, 25, 30, 35, 40, 46, 52, 60)


def _chat(rows: Sequence[Row]) -> Chart:
    figures = {
        (str(row["scenario"]), str(row["policy"])): number(row, "ttft_p90_s") for row in rows if row.get("table") == "E"
    }
    lines = {
        policy: line
        for policy in DRAWN
        if (line := [(float(s), figures[key]) for s in SPEEDS if (key := (chat_name(s), policy)) in figures])
    }
    return Chart(
        "Chat: TTFT p90 in seconds", "times the recorded speed", {float(speed): f"{speed} ×" for speed in SPEEDS}, lines
    )


def drawn_lines(chart: Chart) -> str:
    """A chart of lines as SVG."""
    every = [point for line in chart.lines.values() for point in line]
    xs, ys = [x for x, _ in every], [y for _, y in every if y > 0]
    low, high = math.floor(math.log10(min(ys)) * 2) / 2, math.ceil(math.log10(max(ys)) * 2) / 2
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(point: Point) -> Point:
        x = LEFT + (point[0] - min(xs)) / ((max(xs) - min(xs)) or 1) * (right - LEFT)
        share = (math.log10(max(point[1], 10**low)) - low) / ((high - low) or 1)
        return x, bottom - share * (bottom - TOP)

    parts = [label(LEFT - 44, 22, chart.title, "title")]
    for value, tick in _decades(low, high):
        y = place((xs[0], value))[1]
        parts += [f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>', label(LEFT - 8, y + 4, tick, "end")]
    for x, tick in chart.ticks.items():
        parts.append(label(place((x, ys[0]))[0], bottom + 20, tick, "middle"))
    parts.append(label((LEFT + right) / 2, HEIGHT - 6, chart.x, "middle"))
    ends = {}
    for policy, line in reversed(list(chart.lines.items())):
        placed = [place(point) for point in line]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        parts.append(f'<path class="line c{DRAWN.index(policy)}" d="{path}"/>')
        ends[policy] = placed[-1][1]
    for policy, y in _apart(ends).items():
        parts.append(label(right + 8, y + 4, policy, f"name f{DRAWN.index(policy)}"))
    return picture(HEIGHT, parts, chart.title)


def _decades(low: float, high: float) -> Iterator[tuple[float, str]]:
    for exponent in range(math.floor(low), math.ceil(high) + 1):
        for digit in (1, 3):
            value = digit * 10.0**exponent
            if 10**low <= value * 1.01 and value <= 10**high * 1.01:
                yield value, f"{value:g}"


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels: as near their lines as they can be without covering each other, from above."""
    placed: dict[str, float] = {}
    last = -math.inf
    for policy, y in sorted(ends.items(), key=lambda end: end[1]):
        placed[policy] = last = max(y, last + LABEL_GAP)
    over = last - (HEIGHT - BOTTOM + LABEL_GAP)
    return {policy: y - max(over, 0) for policy, y in placed.items()}


LOADS: Final = (
    ("E", CHAT_CACHES, "chat, 8 × 1 M"),
    ("E", CHAT_LARGE, "chat, 10 × 3 M"),
    ("F", CODING_CACHES, "coding agents, 8 × 1 M"),
    ("G", TAU_CACHES, "tools, 4 × 0.2 M"),
    ("H", SYNTHETIC_CACHES, "many prefixes, 10 × 3 M"),
)
BAR, GAP, NAMES = 16, 22, 170


def drawn_hits(rows: Sequence[Row]) -> str:
    """Bars of hits by load: ours, the best other, dice; a stroke where one cache of all would be. "" of no rows."""
    parts, y = [label(16, 22, "Hits in % of prompt tokens, caches only", "title")], 44.0
    width = WIDTH - NAMES - 130
    for table, scenario, name in LOADS:
        found = {str(r["policy"]): r for r in rows if r.get("table") == table and r["scenario"] == scenario}
        others = [policy for policy in found if policy not in (OURS, CEILING)]
        if OURS not in found or not others:
            continue
        best = max(others, key=lambda policy: number(found[policy], "hit_share"))
        parts.append(label(16, y + BAR, name, "name"))
        top = y
        for policy, colour in _bars_of(found, best):
            share = number(found[policy], "hit_share")
            parts.append(
                f'<rect class="f{colour}" x="{NAMES}" y="{y}" width="{share * width:.1f}" height="{BAR - 2}"/>'
            )
            parts.append(label(NAMES + share * width + 8, y + BAR - 4, f"{100 * share:.1f}  {policy}", ""))
            y += BAR
        if CEILING in found:
            x = NAMES + number(found[CEILING], POOLED) * width
            parts.append(f'<path class="mark" d="M{x:.1f} {top - 4}V{y + 2}"/>')
        y += GAP
    if len(parts) == 1:
        return ""
    parts.append(label(NAMES, y, "stroke: one cache as large as all of them together", ""))
    return picture(int(y + 16), parts, "Hits by load")


def _bars_of(found: Mapping[str, Row], best: str) -> Iterator[tuple[str, int]]:
    for colour, policy in enumerate((OURS, best, "random")):
        if policy in found and not (policy == "random" and best == "random"):
            yield policy, colour if colour < 2 else len(LIGHT) - 1
