"""What relaying a stream costs: chunks a second of one core, and how late chunks come while many streams are open.

    core 0   the router alone, with all that belongs to it (ours: Valkey, ledger, tokenizer)
    core 1   engines that write each chunk by itself (stream_backend.py), clients that count (relay_load.py)

    python -m bench.relay [--only NAME,NAME] [--quick] [--levels 100,500]

unpaced   16 streams of 20 and of 500 chunks, as fast as they go. Where core 1 is busier than 90 % it is the limit, and
          the row says so; processor time of the router a chunk is comparable even then.
paced     a chunk each 50 ms in 100, 500, 1,000, ... streams at once, while 20 streams go past the router: the time
          between two chunks, p99, less what it is for those 20 in the same seconds. A row where those 20 are later than
          5 ms says nothing (`void`). The knee is the last level at which a router adds at most 10 ms.
"""

import argparse
import asyncio
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final

from bench.relay_load import Request, Streams
from bench.relay_routers import MODEL, Plan, Router, plans, running_router
from bench.result import Goal, write_result
from bench.stream_backend import PACE_S, StreamBackend

ROUTER_CORE, LOAD_CORE = 0, 1
AT_ONCE: Final = 16
LENGTHS: Final = (20, 500)
LEVELS: Final = (100, 250, 500, 750, 1000, 1500, 2000)
ALWAYS: Final = (100, 500, 1000)
"""Levels that are measured whatever came before."""
CONTROLS: Final = 20
MOST_ADDED_MS: Final = 10.0
MOST_LATE_MS: Final = 5.0
LIMIT_SHARE: Final = 0.9
OPENED_PER_S: Final = 250.0
_MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Spans:
    """How long things are measured, seconds."""

    warm_s: float = 1.0
    unpaced_s: float = 4.0
    paced_s: float = 6.0


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. Times between chunks and their transits in ms, of all chunks of all streams."""

    router: str
    mode: str
    streams: int
    chunks_each: int
    chunks_per_s: float
    cpu_us_per_chunk: float
    """Of the router's process tree, what new requests cost included."""
    router_busy: float
    """Of its core, as are `load_busy` of the other."""
    load_busy: float
    chunks_per_read: float
    """How many came together, at the client."""
    itl_p50_ms: float
    itl_p99_ms: float
    transit_p50_ms: float
    transit_p99_ms: float
    first_chunk_p50_ms: float
    answers: int
    failures: int
    memory_mb: float
    control_itl_p99_ms: float | None = None
    control_transit_p99_ms: float | None = None
    added_itl_p99_ms: float | None = None
    void: bool = False

    @property
    def load_was_the_limit(self) -> bool:
        """Whether engines and clients had no time left."""
        return self.load_busy > LIMIT_SHARE


def quantile(values: Sequence[float], share: float) -> float:
    """Nearest rank; not a number where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def request_for(router: Router, *, paced: bool) -> Request:
    """Requests as chats are: a system prompt of 2 KB that all share, and a question of its own."""
    rules = " ".join(f"Rule {at}: a book on shelf {7 * at} is lent for {at} days." for at in range(1, 46))
    messages = [{"role": "system", "content": rules}, {"role": "user", "content": "Question NNNNNNNN: where is it?"}]
    body = {
        "model": MODEL,
        "messages": messages,
        "max_tokens": 1111,
        "seed": int(paced),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    text = json.dumps(body).encode()
    before, _, rest = text.partition(b"NNNNNNNN")
    between, _, after = rest.partition(b"1111")
    where = router.url.removeprefix("http://")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {where}\r\nauthorization: Bearer {router.key}\r\n"
        "content-type: application/json\r\ncontent-length: "
    ).encode()

    def request(number: int, chunks: int) -> bytes:
        length = b"%d" % chunks
        size = len(text) - 4 + len(length)
        return b"%s%d\r\n\r\n%s%08d%s%s%s" % (head, size, before, number, between, length, after)

    return request


@dataclass(slots=True)
class Bench:
    """The engines, and how long to measure."""

    backend: StreamBackend
    engines: list[str]
    spans: Spans
    levels: Sequence[int]
    rng: random.Random

    async def measure(self, plan: Plan) -> list[Row]:
        """All rows of a router."""
        async with running_router(plan, ROUTER_CORE, self.engines) as router:
            await self._ready(router)
            rows = [await self._unpaced(router, chunks) for chunks in LENGTHS]
            return rows + await self._all_levels(router)

    async def _ready(self, router: Router) -> None:
        """Once it has served a stream."""
        async with asyncio.timeout(60):
            while True:
                streams = Streams(router.url, request_for(router, paced=False), 20, self.rng)
                await streams.open(1, 100, staggered=False)
                await streams.settled.wait()
                streams.close()
                if not streams.failures:
                    return
                await asyncio.sleep(0.2)

    async def _unpaced(self, router: Router, chunks: int) -> Row:
        streams = Streams(router.url, request_for(router, paced=False), chunks, self.rng)
        with closing(streams):
            await streams.open(AT_ONCE, OPENED_PER_S, staggered=False)
            await asyncio.sleep(self.spans.warm_s)
            return await self._row(router, "unpaced", streams, self.spans.unpaced_s)

    async def _all_levels(self, router: Router) -> list[Row]:
        direct = Router("direct", self.engines[0], None)
        chunks = LENGTHS[-1]
        streams = Streams(router.url, request_for(router, paced=True), chunks, self.rng)
        controls = Streams(direct.url, request_for(direct, paced=True), chunks, self.rng)
        rows: list[Row] = []
        with closing(streams), closing(controls):
            await controls.open(CONTROLS, OPENED_PER_S, staggered=True)
            for level in self.levels:
                if level not in ALWAYS and rows and not holds(rows[-1]):
                    continue
                await streams.open(level, OPENED_PER_S, staggered=True)
                await asyncio.sleep(self.spans.warm_s)
                controls.record()
                row = await self._row(router, "paced", streams, self.spans.paced_s)
                rows.append(_beside(row, controls))
                report(rows[-1])
        return rows

    async def _row(self, router: Router, mode: str, streams: Streams, span_s: float) -> Row:
        streams.record()
        router_s, load_s, began_s = router.cpu_s(), time.process_time(), time.perf_counter()
        await asyncio.sleep(span_s)
        took_s = time.perf_counter() - began_s
        router_s, load_s = router.cpu_s() - router_s, time.process_time() - load_s
        streams.recording = False
        row = Row(
            router=router.name,
            mode=mode,
            streams=streams.open_streams,
            chunks_each=streams.chunks_each,
            chunks_per_s=round(streams.chunks / took_s),
            cpu_us_per_chunk=round(1e6 * router_s / max(streams.chunks, 1), 2),
            router_busy=round(router_s / took_s, 3),
            load_busy=round(load_s / took_s, 3),
            chunks_per_read=round(streams.chunks / max(streams.reads, 1), 2),
            itl_p50_ms=_ms(streams.gaps, 0.5),
            itl_p99_ms=_ms(streams.gaps, 0.99),
            transit_p50_ms=_ms(streams.transits, 0.5),
            transit_p99_ms=_ms(streams.transits, 0.99),
            first_chunk_p50_ms=_ms(streams.first_chunks, 0.5),
            answers=streams.answers,
            failures=streams.failures,
            memory_mb=round(router.resident_bytes() / 1e6, 1),
        )
        if streams.failures:
            print(f"{router.name}: {streams.failures} failed, the last with {streams.failed_with!r}", file=sys.stderr)
        if mode == "unpaced":
            report(row)
        return row


def _ms(values: Sequence[float], share: float) -> float:
    return round(_MS * quantile(values, share), 3)


def _beside(row: Row, controls: Streams) -> Row:
    """A row held against the streams that went past the router in the same seconds."""
    controls.recording = False
    control_p99_ms = _ms(controls.gaps, 0.99)
    return replace(
        row,
        control_itl_p99_ms=control_p99_ms,
        control_transit_p99_ms=_ms(controls.transits, 0.99),
        added_itl_p99_ms=round(row.itl_p99_ms - control_p99_ms, 3),
        void=control_p99_ms - PACE_S * _MS > MOST_LATE_MS,
    )


def holds(row: Row) -> bool:
    """Whether a paced row is within what may be added; one that is void may be."""
    added_ms = row.added_itl_p99_ms
    return not row.failures and (row.void or (added_ms is not None and added_ms <= MOST_ADDED_MS))


def knee(rows: Sequence[Row], router: str) -> int:
    """The most streams up to which a router stays within what may be added; 0 where it never does."""
    last = 0
    for row in sorted((row for row in rows if row.router == router and row.mode == "paced"), key=lambda r: r.streams):
        if not holds(row):
            break
        last = last if row.void else row.streams
    return last


@contextmanager
def closing(streams: Streams) -> Iterator[None]:
    """Close the streams with the block."""
    try:
        yield
    finally:
        streams.close()


def report(row: Row) -> None:
    """One line for people."""
    paced = row.mode == "paced"
    said = f"{row.router:16} {row.mode:8} {row.streams:5} x {row.chunks_each:3}  {row.chunks_per_s:9,.0f}/s"
    said += f"  {row.cpu_us_per_chunk:7.1f} us  router {row.router_busy:4.0%} load {row.load_busy:4.0%}"
    said += f"  {row.chunks_per_read:5.2f}/read  transit {row.transit_p50_ms:.2f} / {row.transit_p99_ms:.2f} ms"
    if paced:
        said += f"  itl p99 {row.itl_p99_ms:.1f} - {row.control_itl_p99_ms:.1f} = {row.added_itl_p99_ms:.1f} ms"
        said += "  VOID" if row.void else ""
    print(said, flush=True)


async def _main(options: argparse.Namespace) -> int:
    wanted = options.only.split(",") if options.only else None
    levels = [int(level) for level in options.levels.split(",")] if options.levels else LEVELS
    spans = Spans(0.5, 2.0, 2.0) if options.quick else Spans()
    backend = StreamBackend(MODEL)
    rows: list[Row] = []
    async with asyncio.TaskGroup() as group:
        wheel = group.create_task(backend.turn_the_wheel())
        engines = [await backend.listen() for _ in range(2)]
        bench = Bench(backend, engines, spans, levels, random.Random(1))
        for plan in plans():
            if wanted is None or plan.name in wanted:
                rows += await bench.measure(plan)
        wheel.cancel()
    if wanted is None and not options.quick:
        write_result("relay", [asdict(row) for row in rows], _goals(rows), ("uvloop", "uvicorn", "httptools"))
    return 0


def _goals(rows: Sequence[Row]) -> list[Goal]:
    return []


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="routers, joined by commas")
    parser.add_argument("--levels", help="open streams, joined by commas")
    parser.add_argument("--quick", action="store_true", help="shorter, writes nothing")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("the router needs a core of its own, and so do engines and clients: two at least")
    os.sched_setaffinity(0, {LOAD_CORE})
    import uvloop  # noqa: PLC0415

    return uvloop.run(_main(options))


if __name__ == "__main__":
    sys.exit(main())
