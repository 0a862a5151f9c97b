"""What a million requests leave in memory: a gateway with everything on, 64 connections, each prompt asked once.

Every answer is a row of the ledger, new blocks in the index and a line of the log; none of it may stay in the process.
"""

from collections.abc import Callable, Sequence
from typing import Final

from bench.overhead_gateway import LEDGER, ledger_rows
from bench.overhead_process import used
from bench.overhead_runs import Row
from bench.overhead_stage import INDEX, ROUTER, Running, Stage, StageFailed
from bench.result import Goal

SIZE: Final = "2.3 KB"
REQUESTS: Final = 1_000_000
MOST_MB: Final = 150.0
_CONNECTIONS: Final = 64
_SECONDS: Final = 5
_TOLD_EACH: Final = 100_000


def fill(stage: Stage, requests: int, tell: Callable[[str], None]) -> list[Row]:
    """Load the one gateway of a stage for so many requests; a row each 100,000. Raises `StageFailed`, `NoResult`."""
    (one,) = (running for running in stage.running if running.is_ours)
    rows, done = [_row(one, 0)], 0
    while done < requests:
        measured = stage.load.window(one.url, SIZE, _CONNECTIONS, _SECONDS).measured
        if measured.errors or not measured.requests:
            raise StageFailed(f"{one.title}: {dict(measured.errors) or 'no answers'} after {done:,} requests")
        before, done = done, done + measured.requests
        if before // _TOLD_EACH < done // _TOLD_EACH or done >= requests:
            rows.append(_row(one, done))
            tell(", ".join(f"{name} {figure}" for name, figure in rows[-1].items()))
    written = ledger_rows(one.home / LEDGER)
    if written < done:
        raise StageFailed(f"{one.title}: {done:,} answers, {written:,} rows in the ledger")
    rows.append({"ledger_rows": written})
    return rows


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """The most memory ever."""
    peak = max(float(str(row["peak_mb"])) for row in rows if "peak_mb" in row)
    return [Goal(f"peak memory over {_done(rows):,} requests, MB", peak, MOST_MB, "<=")]


def _done(rows: Sequence[Row]) -> int:
    return max(int(str(row.get("requests", 0))) for row in rows)


def _row(one: Running, requests: int) -> Row:
    router, index = used(one.watched[ROUTER]), used(one.watched[INDEX])
    return {
        "requests": requests,
        "resident_mb": round(router.resident_mb, 1),
        "peak_mb": round(router.peak_mb, 1),
        "index_resident_mb": round(index.resident_mb, 1),
    }
