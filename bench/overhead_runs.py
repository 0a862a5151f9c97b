"""The measurement itself: windows of load in turns, so that what disturbs the machine disturbs all alike.

    pass 1:  2.3 KB, c=1:  direct, nginx, SMG, ..., ours     c=16: ...     c=64: ...     33 KB ...      pass 2: ...

A figure is the median of the passes; differences to `direct` and ratios are taken inside a pass first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.overhead_gateway import LEDGER, ledger_rows, reason_void, state
from bench.overhead_load import NoResult, Window
from bench.overhead_process import used
from bench.overhead_prompts import Ask
from bench.overhead_stage import INDEX, ROUTER, Running, Stage, StageFailed

CONNECTIONS: Final = (1, 16, 64)
_WARM_UP: Final = (16, 1)
"""Connections and seconds before anything is counted."""

Cell = dict[str, list[object]]
"""Figures of one router, size and number of connections, a list over the passes each, and `void`: why not to use it."""
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    seconds: int
    passes: int
    connections: Sequence[int] = CONNECTIONS

    def seconds_with(self, connections: int) -> int:
        """Of a window. One connection alone tells its latency in less."""
        return max(1, 2 * self.seconds // 3) if connections == 1 else self.seconds


@dataclass(slots=True)
class Sheet:
    """What has been measured, by router, size and connections."""

    cells: dict[tuple[str, str, int], Cell] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    """Rows of ledgers."""

    def add(self, one: Running, ask: Ask, connections: int, window: Window, reason: str | None) -> None:
        """One more window."""
        found = window.measured
        figures: Mapping[str, object] = {
            "p50_us": found.p50_us,
            "p99_us": found.p99_us,
            "requests_per_s": round(found.per_s, 1),
            "cpu_us": round(window.cpu_us.get(ROUTER, 0.0), 1),
            "index_cpu_us": round(window.cpu_us.get(INDEX, 0.0), 1),
        }
        cell = self.cells.setdefault((one.title, ask.size, connections), {"void": []})
        for name, figure in figures.items():
            cell.setdefault(name, []).append(figure)
        errors = ", ".join(f"{count} {kind} errors" for kind, count in found.errors.items())
        why = "; ".join(part for part in (errors, reason) if part)
        if why or not found.requests:
            cell["void"].append(why or "no answers")
        self.answered[one.title] = self.answered.get(one.title, 0) + found.requests - found.errors.get("status", 0)

    def hold_against(self, one: Running, written: int) -> None:
        """All of a row is void where its ledger has fewer rows than wrk has got answers."""
        self.written[one.title] = written
        if (lost := self.answered[one.title] - written) > 0:
            for (title, _, _), cell in self.cells.items():
                if title == one.title:
                    cell["void"].append(f"{lost} answers are not in the ledger")


def run(stage: Stage, pace: Pace, tell: Callable[[str], None]) -> list[Row]:
    """Measure all rows of a stage. Raises `StageFailed`."""
    sheet = Sheet()
    for one in stage.running:
        for ask in stage.asks:
            _window(stage, one, ask, *_WARM_UP)
    for turn in range(1, pace.passes + 1):
        for ask in stage.asks:
            for connections in pace.connections:
                tell(f"pass {turn} of {pace.passes}: {ask.size}, c={connections}")
                for one in stage.running:
                    window, reason = _window(stage, one, ask, connections, pace.seconds_with(connections))
                    sheet.add(one, ask, connections, window, reason)
    for one in stage.running:
        if one.is_ours:
            sheet.hold_against(one, ledger_rows(one.home / LEDGER))
    return [_row(sheet, one, ask, pace) for one in stage.running for ask in stage.asks]


def _window(stage: Stage, one: Running, ask: Ask, connections: int, seconds: int) -> tuple[Window, str | None]:
    before = state(one.url) if one.is_ours else None
    try:
        window = stage.load.window(one.url, ask.size, connections, seconds, one.watched)
    except NoResult as failure:
        raise StageFailed(f"{one.title}: {failure}. {one.last_words()}") from None
    if before is None:
        return window, None
    return window, reason_void(before, state(one.url), ask, window.measured.requests)


def _row(sheet: Sheet, one: Running, ask: Ask, pace: Pace) -> Row:
    row: Row = {
        "router": one.router,
        "policy": one.policy,
        "size": ask.size,
        "body_bytes": len(ask.body(0)),
        "prompt_tokens": ask.prompt_tokens,
        "cached_tokens": ask.cached_tokens,
    }
    if one.watched:
        row["peak_mb"] = round(used(one.watched[ROUTER]).peak_mb, 1)
    if one.is_ours:
        row |= {"answered": sheet.answered[one.title], "ledger_rows": sheet.written[one.title]}
        row["stand_in_matches"] = state(one.url).stand_in
    return row | {f"c={connections}": sheet.cells[one.title, ask.size, connections] for connections in pace.connections}
