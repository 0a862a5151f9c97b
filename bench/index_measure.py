"""Measuring one design on one server: memory, then what matches and observations cost, for each size.

match   the queries, of which nobody has the last 32 blocks   through the client: one by one, then 32 in flight;
                                                               its bytes without it, 32 in flight
turn    the queries again, observed by their holder            through the client, one by one
new     chains that share nothing                              its bytes without it, one by one; then again, while a
                                                               neighbour wants an answer

Before anything is timed, the design's answers are held against those of the index in process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle

from bench.index_data import Turn, Workload, stranger
from bench.index_designs import DESIGNS, Design
from bench.index_in_process import spread_us
from bench.index_server import Counters, Server, pinned_server
from bench.index_wire import RawConnection, Tap, answered_in, commands_in, longest_wait_s
from prefix_index import EmbeddedServer

IN_FLIGHT = 32
_FEWEST = 8

Row = dict[str, object]
Answers = Mapping[int, Sequence[Mapping[str, int]]]
"""For each size, the right answer to each query."""


class Disagreement(Exception):
    """A design answered a query otherwise than the index in process did."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to look at a rate, and how many new chains to observe."""

    seconds: float = 0.5
    new_chains: int = 8


async def measure_design(name: str, workload: Workload, answers: Answers, pace: Pace) -> list[Row]:
    """Rows of one design: its memory, then one for each size. Raises Disagreement."""
    about: Row = {"where": "server", "design": name, "holders": workload.shape.holders}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(pinned_server())
        scratch = await stack.enter_async_context(EmbeddedServer())
        tap, other = Tap(server.url), Tap(scratch.url)
        design, recorded, elsewhere = [await _prepared(name, way, stack) for way in (server, tap, other)]
        bench = DesignBench(server, design, pace)
        rows = [{**about, **await bench.load(workload)}]
        for size, queries in workload.queries.items():
            await bench.compare(queries, answers[size])
            await recorded.match(queries[0].chain)  # from here on it knows the holders
            asked = [await tap.record(partial(recorded.match, query.chain)) for query in queries[:IN_FLIGHT]]
            new = [Turn(queries[0].holder, stranger(size, run), 0) for run in range(2 * pace.new_chains)]
            told = [await other.record(partial(elsewhere.observe, turn)) for turn in new]
            row = {"match": await bench.match(queries, asked), "turn": await bench.observe(queries, told)}
            rows.append({**about, "size": size, **row, "new": await bench.observe_new(told)})
    return rows


async def _prepared(name: str, way: Server | Tap, stack: AsyncExitStack) -> Design:
    """A client of its own for a design, closed with the stack."""
    if isinstance(way, Tap):
        await stack.enter_async_context(way)
    design = DESIGNS[name](way.url)
    stack.push_async_callback(design.close)
    await design.prepare()
    return design


class DesignBench:
    """The measurements themselves, each a part of a row."""

    def __init__(self, server: Server, design: Design, pace: Pace) -> None:
        self._server, self._design, self._pace = server, design, pace

    async def load(self, workload: Workload) -> Row:
        """All turns; what a distinct block takes."""
        before, began_s = await self._server.memory(), time.perf_counter()
        await self._design.load(workload.turns())
        took_s, after = time.perf_counter() - began_s, await self._server.memory()
        return {
            "stored_blocks": workload.stored_blocks,
            "held_blocks": workload.held_blocks,
            "load_s": round(took_s, 1),
            "used_bytes_per_block": round((after.used_bytes - before.used_bytes) / workload.stored_blocks, 1),
            "resident_bytes_per_block": round(
                (after.resident_bytes - before.resident_bytes) / workload.stored_blocks, 1
            ),
        }

    async def compare(self, queries: Sequence[Turn], answers: Sequence[Mapping[str, int]]) -> None:
        """Raises Disagreement where an answer is not the right one."""
        for query, right in zip(queries, answers, strict=True):
            found = await self._design.match(query.chain)
            if found != right:
                wrong = {one for one in found.keys() | right.keys() if found.get(one) != right.get(one)}
                raise Disagreement(f"{len(query)} blocks: {len(wrong)} of {len(right)} holders have another run")

    async def match(self, queries: Sequence[Turn], requests: Sequence[bytes]) -> Row:
        """Latency and rate through the client, then the server's share."""
        calls = [partial(self._design.match, query.chain) for query in queries]
        latencies_s = await self._one_by_one(calls)
        per_s = await self._in_flight(calls)
        before = await self._server.counters()
        rate = answered_in(self._server.url, requests, IN_FLIGHT, self._pace.seconds)
        after = await self._server.counters()
        spent = _spent(before, after, requests, rate.answered)
        return {
            **spent,
            "client_us": spread_us(latencies_s),
            "client_per_s": round(per_s, 1),
            "server_per_s": round(rate.per_s, 1),
            "server_busy": round((after.cpu_us - before.cpu_us) / 1e6 / rate.seconds, 2),
            "request_bytes": round(sum(map(len, requests)) / len(requests)),
        }

    async def observe(self, turns: Sequence[Turn], like: Sequence[bytes]) -> Row:
        """The next turn of conversations that are known; `like` are requests of the same commands."""
        before = await self._server.counters()
        latencies_s = [await _timed(partial(self._design.observe, turn)) for turn in turns]
        after = await self._server.counters()
        return {**_spent(before, after, like, len(turns)), "client_us": spread_us(latencies_s)}

    async def observe_new(self, requests: Sequence[bytes]) -> Row:
        """Chains of which nothing is known: the first half timed, the other half with a neighbour."""
        quiet, disturbed = requests[: len(requests) // 2], requests[len(requests) // 2 :]
        url, server = self._server.url, self._server
        with RawConnection(url) as connection:
            before = await server.counters()
            for request in quiet:
                connection.ask(request)
            spent = _spent(before, await server.counters(), quiet, len(quiet))
        await server.watch_calls()
        waits_s = [longest_wait_s(url, request) for request in disturbed]
        return {
            **spent,
            "longest_call_us": await server.longest_call_us(),
            "longest_wait_us": round(1e6 * max(waits_s)),
        }

    async def _one_by_one(self, calls: Sequence[Callable[[], Awaitable[object]]]) -> list[float]:
        """Calls until the time is up, a few at least."""
        until_s, times_s = time.perf_counter() + self._pace.seconds, []
        for at, call in enumerate(cycle(calls)):
            if at >= _FEWEST and time.perf_counter() > until_s:
                break
            times_s.append(await _timed(call))
        return times_s

    async def _in_flight(self, calls: Sequence[Callable[[], Awaitable[object]]]) -> float:
        """Calls a second with `IN_FLIGHT` going."""
        source, began_s, answered = cycle(calls), time.perf_counter(), 0

        async def keep_calling() -> None:
            nonlocal answered
            while time.perf_counter() < began_s + self._pace.seconds:
                await next(source)()
                answered += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(keep_calling())
        return answered / (time.perf_counter() - began_s)


def _spent(before: Counters, after: Counters, requests: Sequence[bytes], operations: int) -> Row:
    """Server time of one operation: that of the commands in `requests`, and that of the process."""
    # A function's time includes that of the commands it calls, which are counted too: only what is sent counts here.
    sent = {name for request in requests for name in commands_in(request)}
    command_us, cpu_us = after.since(before, sent)
    return {"command_us": round(command_us / operations, 1), "cpu_us": round(cpu_us / operations, 1)}


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    began_s = time.perf_counter()
    await call()
    return time.perf_counter() - began_s
