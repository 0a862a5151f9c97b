"""What the ledger costs: settled rows a second, what a stream waits for at its end, and a report over millions of rows.

make bench-ledger                           about five minutes, most of it making ten million rows
.venv/bin/python -m bench.ledger --quick    a tenth of it: numbers to look at, not to quote

A row is a request opened, one attempt, and its settlement, through the gateway's own ledger: futures on the event loop,
the writer's thread, SQL. Loop and writer are on one core; PostgreSQL, where it is the database, has another. 64 clients
open, settle and begin again: once as fast as they can, and once at 5,000 rows a second together. *End* is the time from
handing in a settlement to its being durable, which is what is added at the end of a stream.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from bench.ledger_report import ReportTime, report_times
from bench.result import RESULTS, Goal, write_result
from billing import Attempt, Ledger, OpenedRequest, PriceBook, Settlement, SettlementState, Usage, open_ledger
from billing.prices.pricing import Price
from gateway.ids import new_request_id
from tests.postgres import postgres_server

CLIENTS = 64
ROWS = 100_000
PACED_PER_S = 5_000
REPORT_ROWS = 10_000_000
LEAST_PER_S = 5_000
MOST_END_MS = 10.0
MOST_REPORT_S = 5.0
TENANTS = 40
PACKAGES = ("sqlalchemy", "psycopg")
MODEL = "llama-3.3-70b"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
BOOK = PriceBook("USD", (Price("p1", MODEL, "USD", 600_000, 2_400_000, LONG_AGO, cached_input_pico=60_000),))


@dataclass(frozen=True, slots=True)
class Written:
    """One run. `cpu_us` is the processor's time of a row, loop and writer together; `writer_us` the writer's alone."""

    database: str
    load: str
    rows: int
    rows_per_s: float
    end_p50_ms: float
    end_p99_ms: float
    cpu_us: float
    writer_us: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report-rows", type=int, default=None, help="requests under the report; 0 leaves it out")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the directory of the result")
    options = parser.parse_args(arguments)
    share = 0.1 if options.quick else 1.0
    report_rows = round(REPORT_ROWS * share) if options.report_rows is None else options.report_rows
    console = Console(stderr=True)
    with databases() as places:
        runs = [
            measured(name, place, load, round(ROWS * share)) for name, place in places for load in (None, PACED_PER_S)
        ]
        console.print(table_of(runs))
    with databases() as places:
        filled = places if report_rows else []
        reports = [one for name, place in filled for one in report_times(name, place, report_rows)]
    for one in reports:
        console.print(f"{one.database}: {one.what} over {one.rows:,} requests in {one.took_s:.2f} s")
    goals = goals_of(runs, reports)
    rows = [*map(asdict, runs), *map(asdict, reports)]
    path = write_result("ledger", rows, goals, PACKAGES, options.to)
    for goal in goals:
        console.print(goal.text())
    print(path.read_text("utf-8"), end="")
    return 0


@contextmanager
def databases() -> Iterator[list[tuple[str, Path | str]]]:
    """A file and a server, both empty, on the disk of the machine. The server stays off our first core."""
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[1:] or cores)
        try:
            with postgres_server(Path(folder), durable=True) as url:
                yield [("SQLite", Path(folder) / "ledger.db"), ("PostgreSQL", url)]
        finally:
            os.sched_setaffinity(0, cores)


def measured(name: str, place: Path | str, per_s: int | None, rows: int) -> Written:
    """One run on an empty ledger, on one core."""
    cores = os.sched_getaffinity(0)
    everything = set(range(os.cpu_count() or 1))
    os.sched_setaffinity(0, {0} if 0 in everything else cores)
    emptied(place)
    try:
        cpu_s = time.process_time()
        began_s = time.perf_counter()
        ends_s, writer_s = asyncio.run(_drive(place, per_s, rows))
        ends_s.sort()
        took_s = time.perf_counter() - began_s
        cpu_s = time.process_time() - cpu_s
    finally:
        os.sched_setaffinity(0, cores)
    return Written(
        database=name,
        load="as fast as it goes" if per_s is None else f"{per_s} rows/s",
        rows=len(ends_s),
        rows_per_s=round(len(ends_s) / took_s),
        end_p50_ms=round(ends_s[len(ends_s) // 2] * 1e3, 2),
        end_p99_ms=round(ends_s[len(ends_s) * 99 // 100] * 1e3, 2),
        cpu_us=round(cpu_s / len(ends_s) * 1e6, 1),
        writer_us=round(writer_s / len(ends_s) * 1e6, 1),
    )


def emptied(place: Path | str) -> None:
    """Nothing of an earlier run is there."""
    if isinstance(place, Path):
        for file in place.parent.glob(f"{place.name}*"):
            file.unlink()
        return
    with psycopg.connect(place, autocommit=True) as server:
        server.execute("DROP SCHEMA public CASCADE")
        server.execute("CREATE SCHEMA public")


async def _drive(place: Path | str, per_s: int | None, rows: int) -> tuple[list[float], float]:
    """How long each end took, and the processor's time of the writer without its start."""
    ends_s: list[float] = []
    of_others = _writers()
    async with open_ledger(place, BOOK) as ledger:
        (writer,) = _writers() - of_others
        began_s = _cpu_s(writer)
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(_client(ledger, number, rows // CLIENTS, per_s, ends_s))
        return ends_s, _cpu_s(writer) - began_s


def _writers() -> set[int]:
    """The threads of this process that write a ledger, by their idents."""
    return {thread.ident for thread in threading.enumerate() if thread.name == "ledger-writer" and thread.ident}


def _cpu_s(thread: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


async def _client(ledger: Ledger, number: int, rows: int, per_s: int | None, ends_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    gap_s = 0.0 if per_s is None else CLIENTS / per_s
    for row in range(rows):
        due_s = began_s + (row + number / CLIENTS) * gap_s
        if per_s is not None and due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        request_id = new_request_id(time.time_ns() // 1_000_000)
        await ledger.open(_opened(request_id, number))
        settlement = _settled(request_id)
        handed_in_s = time.perf_counter()
        await ledger.settle(settlement)
        ends_s.append(time.perf_counter() - handed_in_s)


def _opened(request_id: str, number: int) -> OpenedRequest:
    tenant = f"tenant-{number % TENANTS}"
    route = "/v1/chat/completions"
    return OpenedRequest(request_id, datetime.now(UTC), tenant, f"{tenant}-1", tenant, MODEL, route, True, 8000)


def _settled(request_id: str) -> Settlement:
    now = datetime.now(UTC)
    return Settlement(
        request_id=request_id,
        settled_at=now,
        state=SettlementState.COMPLETE,
        http_status=200,
        endpoint_id="gpu-a",
        usage=Usage(8000, 7424, 300),
        usage_json=b'{"prompt_tokens":8000,"completion_tokens":300,"prompt_tokens_details":{"cached_tokens":7424}}',
        convention="openai",
        flags=frozenset(),
        expected_cached_tokens=7424,
        ttft_s=0.1,
        duration_s=3.0,
        attempts=(Attempt(request_id, 0, "gpu-a", now - timedelta(seconds=3), now, "answered", 200),),
        prefill_s=0.05,
        decode_s=2.9,
    )


def goals_of(runs: Sequence[Written], reports: Sequence[ReportTime]) -> list[Goal]:
    """Rows a second as fast as it goes; the wait at the end with that load, and at 5,000 a second; reports of sums."""
    found = []
    for run in runs:
        if run.load == "as fast as it goes":
            found.append(Goal(f"{run.database}, rows/s", run.rows_per_s, LEAST_PER_S, ">="))
        found.append(Goal(f"{run.database}, p99 at the end, ms, {run.load}", run.end_p99_ms, MOST_END_MS, "<="))
    found += [
        Goal(f"{one.database}, {one.what}, s, {one.rows} requests", one.took_s, MOST_REPORT_S, "<=")
        for one in reports
        if one.has_goal
    ]
    return found


def table_of(runs: Sequence[Written]) -> Table:
    """For people."""
    table = Table("database", "load", "rows/s", "end p50, ms", "end p99, ms", "processor, µs a row", "writer, µs")
    for run in runs:
        figures = (f"{run.rows_per_s:,.0f}", f"{run.end_p50_ms:.2f}", f"{run.end_p99_ms:.2f}")
        table.add_row(run.database, run.load, *figures, f"{run.cpu_us:.0f}", f"{run.writer_us:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())
