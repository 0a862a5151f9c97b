"""One router of `make bench-relay` after the other: streams as fast as they go, then more and more of them, paced."""

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from bench.overhead_gateway import State
from bench.overhead_prompts import DIGITS, Ask
from bench.overhead_routers import HOST
from bench.relay_load import Request, Streams
from bench.relay_routers import Running, running_router
from bench.stream_backend import PACE_S

UNPACED, PACED = "unpaced", "paced"
AT_ONCE: Final = 16
LENGTHS: Final = (20, 500)
LEVELS: Final = (100, 250, 500, 750, 1000, 1500, 2000)
ALWAYS: Final = (100, 500, 1000)
"""Levels that are measured whatever came before."""
CONTROLS: Final = 20
MOST_ADDED_MS: Final = 10.0
MOST_LATE_MS: Final = 5.0
TRIES: Final = 3
"""How often a level is measured, where the machine was disturbed."""
OPENED_PER_S: Final = 100.0
READY_WITHIN_S: Final = 60.0
LEAST_SHARE_EXPECTED: Final = 0.9
"""Of the tokens that engines report as cached: what our index must have expected."""
_MS: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Spans:
    """How long things take, seconds: until they have settled, and while they are measured."""

    settle_s: float = 1.5
    unpaced_s: float = 3.0
    paced_s: float = 4.0


SHORT: Final = Spans(1.0, 2.0, 3.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. Times in ms: between two chunks of an answer (`itl`), from the engine's write to the client's
    read (`transit`), from a request to its first chunk. `void` says why it means nothing."""

    router: str
    mode: str
    streams: int
    chunks_each: int
    chunks_per_s: float
    cpu_us_per_chunk: float
    """Of the router's processes, with what new requests cost."""
    router_busy: float
    """Of its core; `load_busy` of the other one."""
    load_busy: float
    chunks_per_read: float
    """How many came to the client together."""
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    transit_p50_ms: float | None
    transit_p99_ms: float | None
    first_chunk_p50_ms: float | None
    answers: int
    memory_mb: float
    control_itl_p99_ms: float | None = None
    added_itl_p99_ms: float | None = None
    void: Sequence[str] = ()


def request_maker(ask: Ask, running: Running, *, paced: bool) -> Request:
    """Requests as bytes on the wire: the prompts of `ask`, as streams of so many chunks that tell their usage."""
    limit = '"max_tokens":64,'
    before, found, after = ask.tail.partition(limit)
    assert found, "the body sets no limit"
    more = f'"stream":true,"stream_options":{{"include_usage":true}},"seed":{int(paced)},'
    where = running.url.removeprefix("http://")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {where}\r\nauthorization: Bearer {running.key}\r\n"
        "content-type: application/json\r\ncontent-length: "
    )

    def request(number: int, chunks: int) -> bytes:
        body = f'{ask.head}{number:0{DIGITS}d}{before}"max_tokens":{chunks},{more}{after}'.encode()
        return f"{head}{len(body)}\r\n\r\n".encode() + body

    return request


@dataclass(frozen=True, slots=True)
class Bench:
    """What all routers are measured with."""

    ask: Ask
    engine_ports: Sequence[int]
    router_core: int
    spans: Spans
    levels: Sequence[int]
    tell: Callable[[Row], None]
    """Called with each row."""
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    async def measure(self, name: str) -> list[Row]:
        """All rows of a router. Raises what `running_router` raises, and `TimeoutError` where it serves no stream."""
        async with running_router(name, self.router_core, self.engine_ports) as running:
            await self._ready(running)
            rows = [await self._unpaced(running, chunks) for chunks in LENGTHS]
            return rows + [row async for row in self._levels(running)]

    async def _ready(self, running: Running) -> None:
        """Once it has served a stream."""
        async with asyncio.timeout(READY_WITHIN_S):
            while True:
                streams = self._streams(running, LENGTHS[0], paced=False)
                with closing(streams):
                    await streams.open(1, OPENED_PER_S, staggered=False)
                    await streams.settled.wait()
                if streams.answers:
                    return
                await asyncio.sleep(0.2)

    def _streams(self, running: Running, chunks: int, *, paced: bool) -> Streams:
        return Streams(running.url, request_maker(self.ask, running, paced=paced), chunks, self.rng)

    async def _unpaced(self, running: Running, chunks: int) -> Row:
        streams = self._streams(running, chunks, paced=False)
        with closing(streams):
            await streams.open(AT_ONCE, OPENED_PER_S, staggered=False)
            await asyncio.sleep(self.spans.settle_s)
            row = await self._row(running, UNPACED, streams, self.spans.unpaced_s)
        self.tell(row)
        return row

    async def _levels(self, running: Running) -> AsyncIterator[Row]:
        itself = replace(running, url=f"http://{HOST}:{self.engine_ports[0]}")
        streams = self._streams(running, LENGTHS[-1], paced=True)
        controls = self._streams(itself, LENGTHS[-1], paced=True)
        held = True
        with closing(streams), closing(controls):
            await controls.open(CONTROLS, OPENED_PER_S, staggered=True)
            for level in self.levels:
                if held or level in ALWAYS:
                    await streams.open(level, OPENED_PER_S, staggered=True)
                    row = await self._level(running, streams, controls)
                    held = holds(row)
                    self.tell(row)
                    yield row

    async def _level(self, running: Running, streams: Streams, controls: Streams) -> Row:
        """Measured until the machine was quiet for once, as the streams past the router tell."""
        for _ in range(TRIES):
            await asyncio.sleep(self.spans.settle_s)
            controls.record()
            row = await self._row(running, PACED, streams, self.spans.paced_s)
            controls.recording = False
            row = beside(row, _ms(controls.gaps, 0.99))
            if not row.void:
                break
        return row

    async def _row(self, running: Running, mode: str, streams: Streams, span_s: float) -> Row:
        state = await running.state()
        streams.record()
        router_us, load_s, began_s = running.cpu_us(), time.process_time(), time.perf_counter()
        await asyncio.sleep(span_s)
        took_s = time.perf_counter() - began_s
        router_us, load_s = running.cpu_us() - router_us, time.process_time() - load_s
        streams.recording = False
        return Row(
            router=running.name,
            mode=mode,
            streams=streams.open_streams,
            chunks_each=streams.chunks_each,
            chunks_per_s=round(streams.chunks / took_s),
            cpu_us_per_chunk=round(router_us / max(streams.chunks, 1), 2),
            router_busy=round(router_us / 1e6 / took_s, 3),
            load_busy=round(load_s / took_s, 3),
            chunks_per_read=round(streams.chunks / max(streams.reads, 1), 2),
            itl_p50_ms=_ms(streams.gaps, 0.5),
            itl_p99_ms=_ms(streams.gaps, 0.99),
            transit_p50_ms=_ms(streams.transits, 0.5),
            transit_p99_ms=_ms(streams.transits, 0.99),
            first_chunk_p50_ms=_ms(streams.first_chunks, 0.5),
            answers=streams.answers,
            memory_mb=round(running.resident_mb(), 1),
            void=[*_failures(streams), *_not_well(state, await running.state())],
        )


def beside(row: Row, control_ms: float | None) -> Row:
    """A row with what it is above the streams past the router. Where those are late too the machine was disturbed; then
    it only tells of a router that adds far more than they are late."""
    if control_ms is None or row.itl_p99_ms is None:
        return replace(row, control_itl_p99_ms=control_ms, void=[*row.void, "no chunks came"])
    added_ms, late_ms = row.itl_p99_ms - control_ms, control_ms - PACE_S * _MS
    void = list(row.void)
    if late_ms > MOST_LATE_MS and added_ms <= MOST_ADDED_MS + late_ms:
        void.append(f"streams past the router were {late_ms:.1f} ms late")
    return replace(row, control_itl_p99_ms=control_ms, added_itl_p99_ms=round(added_ms, 3), void=void)


def holds(row: Row) -> bool:
    """Whether a router adds no more than it may, as far as the row can tell."""
    return bool(row.void) or (row.added_itl_p99_ms is not None and row.added_itl_p99_ms <= MOST_ADDED_MS)


def _failures(streams: Streams) -> list[str]:
    return [f"{streams.failures} answers failed, the last with {streams.failed_with!r}"] if streams.failures else []


def _not_well(before: State | None, after: State | None) -> list[str]:
    """What of ours did not work meanwhile as it should."""
    if before is None or after is None:
        return []
    found = [f"degraded: {', '.join(after.degraded)}"] if after.degraded else []
    reported = after.reported_tokens - before.reported_tokens
    expected = after.expected_tokens - before.expected_tokens
    if expected < LEAST_SHARE_EXPECTED * reported:
        found.append(f"{expected:.0f} cached tokens expected, {reported:.0f} reported")
    return found


def _ms(values: Sequence[float], share: float) -> float | None:
    """A quantile, nearest rank; None where there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return round(_MS * ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)], 3)


@contextmanager
def closing(streams: Streams) -> Iterator[None]:
    """Close the streams with the block."""
    try:
        yield
    finally:
        streams.close()
