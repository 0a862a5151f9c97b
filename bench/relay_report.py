"""From the rows of `make bench-relay` to tables, goals, a picture, and their part of docs/performance.md.

    bench/results/relay.json ──page_part──> text ──written into──> docs/performance.md
                            └─────plot────> docs/img/relay.svg

Pure: the same rows give the same text. A row that is void takes part in nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench.relay_runs import ALWAYS, LENGTHS, MOST_ADDED_MS, PACED, UNPACED
from bench.result import Goal
from bench.svg import LIGHT, WIDTH, label, picture

Row = Mapping[str, object]
OURS: Final = "prefixgate"
SMG: Final = ("SMG cache_aware", "SMG round_robin")
CEILINGS: Final = ("direct", "nginx")
GOAL_STREAMS: Final = 500
BUSY: Final = 0.9
"""Share of its core from which engines and clients are the limit, and not the router."""
NAME: Final = "relay.svg"
TITLE: Final = f"One core: processor time a chunk, {GOAL_STREAMS} streams of 20 chunks a second"
BEGIN: Final = "<!-- made by `make bench-relay` from bench/results/relay.json: begin -->"
END: Final = "<!-- end -->"
UNMEASURED: Final = "Nothing is measured yet.\n"
NOTHING: Final = "-"
_BAR, _LEFT, _RIGHT, _TOP = 20, 190, 300, 44
_OURS, _OTHERS, _CEILING = 0, 1, len(LIGHT) - 1


class Figures:
    """The rows, to be asked. What was not measured, or is void, is NaN."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {self._key(row): row for row in rows}
        self.routers = list(dict.fromkeys(str(row["router"]) for row in rows))
        """In their order."""

    @staticmethod
    def _key(row: Row) -> tuple[str, str, int]:
        return str(row["router"]), str(row["mode"]), int(str(row["streams" if row["mode"] == PACED else "chunks_each"]))

    def of(self, router: str, mode: str, size: int, name: str) -> float:
        """A figure; `size` is the number of streams where they are paced, else of chunks."""
        row = self._rows.get((router, mode, size), {})
        return math.nan if row.get("void", True) or row[name] is None else float(str(row[name]))

    def knee(self, router: str) -> int:
        """The most streams up to which a router adds no more than it may, of those measured; 0 where it never does."""
        last = 0
        for level in sorted(size for who, mode, size in self._rows if who == router and mode == PACED):
            added_ms = self.of(router, PACED, level, "added_itl_p99_ms")
            if added_ms > MOST_ADDED_MS:
                break
            last = last if math.isnan(added_ms) else level
        return last

    def load_was_limit(self, router: str, mode: str, size: int) -> bool:
        """Whether engines and clients had no time left."""
        return self.of(router, mode, size, "load_busy") > BUSY

    def voids(self) -> list[str]:
        """Why rows are void."""
        return [
            f"{router}, {size} {'streams' if mode == PACED else 'chunks'} {mode}: {'; '.join(map(str, reasons))}"
            for (router, mode, size), row in self._rows.items()
            if isinstance(reasons := row["void"], Sequence) and reasons
        ]


def goals(rows: Sequence[Row]) -> list[Goal]:
    """What was to be reached; those of which a figure is missing are left out."""
    figures = Figures(rows)
    found = []
    for chunks in LENGTHS:
        ours, *others = (figures.of(who, UNPACED, chunks, "chunks_per_s") for who in (OURS, *SMG))
        best = max((other for other in others if not math.isnan(other)), default=math.nan)
        found.append(Goal(f"answers of {chunks} chunks: chunks a second, times SMG's", ours / best, 1.0, ">="))
    added_ms = figures.of(OURS, PACED, GOAL_STREAMS, "added_itl_p99_ms")
    found.append(
        Goal(f"{GOAL_STREAMS} streams: added to the time between two chunks, p99, ms", added_ms, MOST_ADDED_MS, "<=")
    )
    return [goal for goal in found if not math.isnan(goal.value)]


def page_part(result: Mapping[str, object] | None) -> str:
    """What stands between the marks, from a result file as read."""
    if result is None:
        return UNMEASURED
    return "\n".join(_lines(result)).rstrip() + "\n"


def with_part(page: str, part: str) -> str:
    """The page with what is between its marks replaced. Raises `ValueError` where it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no part between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def part_of(page: str) -> str:
    """What stands between the marks now."""
    return page.partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def _lines(result: Mapping[str, object]) -> Iterator[str]:
    rows, machine, met = result["rows"], result["machine"], result["goals"]
    assert isinstance(rows, list)
    assert isinstance(machine, Mapping)
    assert isinstance(met, list)
    figures = Figures(rows)
    commit = str(result["commit"])[:12]
    yield f"Measured at commit `{commit}` on {machine['cores']} cores of an {machine['cpu']}."
    yield from ("", f"![{TITLE}](img/{NAME})", "")
    yield from ("### As fast as they go", "", *_unpaced(figures), "")
    yield from ("### A chunk each 50 ms", "", *_paced(figures), "")
    if voids := figures.voids():
        yield from ("Void, and why:", "", *(f"- {one}" for one in voids), "")
    yield from ("### Goals of streams", "")
    for goal in met:
        sense, said = goal["sense"], "met" if goal["met"] else "**not met**"
        yield f"- {goal['name']}: {goal['value']:.3g}, to be {sense} {goal['bound']:g}: {said}"


def _unpaced(figures: Figures) -> Iterator[str]:
    heads = [f"{chunks} chunks: {what}" for chunks in LENGTHS for what in ("chunks/s", "CPU µs a chunk")]
    yield from _head(["router", *heads])
    for router in figures.routers:
        cells = []
        for chunks in LENGTHS:
            limit = " \\*" if figures.load_was_limit(router, UNPACED, chunks) else ""
            cells.append(_number(figures.of(router, UNPACED, chunks, "chunks_per_s"), ",.0f") + limit)
            cells.append(_number(figures.of(router, UNPACED, chunks, "cpu_us_per_chunk"), ".1f"))
        yield _line(router, cells)
    yield from ("", f"\\* engines and clients used more than {BUSY:.0%} of their core: they were the limit.")


def _paced(figures: Figures) -> Iterator[str]:
    heads = [f"{level:,} streams: {what}" for level in ALWAYS for what in ("added p99 ms", "CPU µs a chunk")]
    yield from _head(["router", *heads, "knee", f"MB at {ALWAYS[-1]:,}"])
    for router in figures.routers:
        cells = []
        for level in ALWAYS:
            cells.append(_number(figures.of(router, PACED, level, "added_itl_p99_ms"), ".1f"))
            cells.append(_number(figures.of(router, PACED, level, "cpu_us_per_chunk"), ".1f"))
        cells += [f"{figures.knee(router):,}", _number(figures.of(router, PACED, ALWAYS[-1], "memory_mb"), ".0f")]
        yield _line(router, cells)


def _head(heads: Sequence[str]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'|'.join('---:' for _ in heads[1:])}|"


def _line(router: str, cells: Sequence[str]) -> str:
    mark = "**" if router == OURS else ""
    return f"| {' | '.join(f'{mark}{cell}{mark}' for cell in (router, *cells))} |"


def _number(value: float, form: str) -> str:
    return NOTHING if math.isnan(value) else format(value, form)


def plot(rows: Sequence[Row]) -> str:
    """The picture as SVG: a bar a router; "" where nothing of it was measured."""
    figures = Figures(rows)
    costs = {
        router: cost
        for router in figures.routers
        if router != "direct" and not math.isnan(cost := figures.of(router, PACED, GOAL_STREAMS, "cpu_us_per_chunk"))
    }
    if not costs:
        return ""
    parts, scale = [label(16, 24, TITLE, "title")], (WIDTH - _LEFT - _RIGHT) / max(costs.values())
    for at, (router, cost) in enumerate(costs.items()):
        y = _TOP + at * _BAR
        colour = _OURS if router == OURS else _CEILING if router in CEILINGS else _OTHERS
        added = _number(figures.of(router, PACED, GOAL_STREAMS, "added_itl_p99_ms"), ".1f")
        said = f"{cost:.1f} µs   + {added} ms p99   up to {figures.knee(router):,} streams"
        parts += [
            label(_LEFT - 8, y + _BAR - 6, router, "end"),
            f'<rect class="f{colour}" x="{_LEFT}" y="{y}" width="{cost * scale:.1f}" height="{_BAR - 4}"/>',
            label(_LEFT + cost * scale + 8, y + _BAR - 6, said, ""),
        ]
    return picture(_TOP + len(costs) * _BAR + 14, parts, TITLE)


def line(row: Row) -> str:
    """A row for people."""
    said = f"{row['router']:24} {row['mode']:8} {row['streams']:5} x {row['chunks_each']:3}  {row['chunks_per_s']:9,}/s"
    said += f"  {row['cpu_us_per_chunk']:7} us  router {row['router_busy']:4.0%} load {row['load_busy']:4.0%}"
    said += f"  {row['chunks_per_read']:6}/read  transit {row['transit_p50_ms']} / {row['transit_p99_ms']} ms"
    if row["mode"] == PACED:
        said += f"  itl p99 {row['itl_p99_ms']} - {row['control_itl_p99_ms']} = {row['added_itl_p99_ms']} ms"
    reasons = row["void"]
    assert isinstance(reasons, Sequence)
    return said + (f"  VOID: {'; '.join(map(str, reasons))}" if reasons else "")
