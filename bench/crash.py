"""kill -9 of a gateway under load, again and again: what its clients saw the end of must be in the ledger, once.

    clients ──> gateway (killed at a random moment, started again on the same ledger) ──> an engine that knows the truth

    python -m bench.crash --kills 200

Ends with 1 where a row is missing, twice there, wrong or left open.
"""

import argparse
import asyncio
import itertools
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from bench.crash_engine import MODEL, Known, KnownEngine, known_by_prompt, running_known_engine
from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.member import Member
from bench.result import Goal, write_result
from gateway.demo.processes import clean_environment

CLIENTS: Final = 12
MOST_SERVED_PER_LIFE: Final = 60
"""A life of the gateway ends at a random answer among so many."""
_NEVER_FROM_A_GATEWAY: Final = (aiohttp.ClientError, ConnectionError, TimeoutError)
_PRICES: Final = {
    "currency": "USD",
    "prices": [
        {"model": MODEL, "input_per_mtok": 3, "cached_input_ratio": "0.1", "output_per_mtok": 4, "from": "2020-01-01"}
    ],
}
_INPUT, _CACHED, _OUTPUT = 3_000_000, 300_000, 4_000_000
"""Pico-dollars a token."""


class End(StrEnum):
    """What a client saw of a call."""

    SERVED = "served"
    """The end of the answer."""
    LEFT = "left"
    """It hung up itself in the middle."""
    CUT = "cut"
    """A part of an answer, then nothing more."""
    LOST = "lost"
    """Nothing, or a refusal."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, sent once. `request_id` is known where the head of an answer came."""

    number: int
    end: End
    request_id: str | None = None


@dataclass(slots=True)
class Findings:
    """What was found; each list of faults should be empty."""

    kills: int
    calls: Counter[End] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    missing: list[int] = field(default_factory=list)
    """Calls whose end a client saw, without a complete row."""
    twice: list[int] = field(default_factory=list)
    """Calls that are billed more than once."""
    wrong: list[str] = field(default_factory=list)
    """Requests whose tokens or amount are not the engine's."""
    left_open: int = 0
    restart_s: float = 0.0
    """The longest time from the kill to the next start."""

    @property
    def faults(self) -> int:
        """All that should not be."""
        return len(self.missing) + len(self.twice) + len(self.wrong) + self.left_open


class Clients:
    """Clients who call without pause, each call once; `seen` is what became of their calls."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self.seen: list[Call] = []
        self.up = asyncio.Event()
        self.served = 0
        self.enough = asyncio.Event()
        self._url = url
        self._rng = rng
        self._numbers = itertools.count()
        self._wanted = 0

    def expect(self, served: int) -> None:
        """Set `enough` after so many further answers."""
        self.enough.clear()
        self._wanted = self.served + served

    async def run(self, clients: int = CLIENTS) -> None:
        """Call until cancelled, so many at a time."""
        patience = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=patience) as http, asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._calls(http))

    async def _calls(self, http: aiohttp.ClientSession) -> None:
        while True:
            await self.up.wait()
            call = await self._call(http, next(self._numbers))
            self.seen.append(call)
            if call.end is End.SERVED:
                self.served += 1
                if self.served >= self._wanted:
                    self.enough.set()

    async def _call(self, http: aiohttp.ClientSession, number: int) -> Call:
        streams, leaves = self._rng.random() < 0.7, self._rng.random() < 0.1
        body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": f"call {number}"}]}
        if streams:
            body |= {"stream": True, "stream_options": {"include_usage": self._rng.random() < 0.5}}
        request_id: str | None = None
        got = b""
        try:
            async with http.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                request_id = answer.headers.get("x-request-id")
                if answer.status != 200:
                    return Call(number, End.LOST, request_id)
                async for piece in answer.content.iter_any():
                    got += piece
                    if leaves:
                        return Call(number, End.LEFT, request_id)
        except _NEVER_FROM_A_GATEWAY:
            pass
        whole = got.endswith(b"data: [DONE]\n\n") and b'"error"' not in got if streams else _is_json(got)
        return Call(number, End.SERVED if whole else End.CUT if got else End.LOST, request_id)


async def crash(kills: int, seed: int, home: Path) -> Findings:
    """Kill so many gateways over one ledger in the folder `home`, and look at what is left."""
    rng = random.Random(seed)
    async with running_known_engine(seed) as engine:
        port = free_port()
        config, ledger = configure(home, engine.url, port)
        command = (sys.executable, "-m", "gateway", "serve", "-c", str(config))
        gateway = Member("gateway", command, home, clean_environment())
        clients, findings = Clients(f"http://127.0.0.1:{port}", rng), Findings(kills)
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(clients.run())
            for _ in range(kills):
                await gateway.start()
                clients.expect(rng.randint(1, MOST_SERVED_PER_LIFE))
                clients.up.set()
                await clients.enough.wait()
                await asyncio.sleep(rng.uniform(0, 0.01))  # the moment of the kill is what this is about
                clients.up.clear()
                killed_s = time.monotonic()
                await gateway.kill()
                findings.restart_s = max(findings.restart_s, time.monotonic() - killed_s)
            calling.cancel()
        await gateway.start()
        await gateway.stop()
        audit(ledger, clients.seen, engine, findings)
    return findings


def audit(ledger: Path, seen: Sequence[Call], engine: KnownEngine, findings: Findings) -> None:
    """Hold the ledger against what clients saw and the engine knows."""
    rows = _rows(ledger)
    findings.calls.update(call.end for call in seen)
    findings.rows.update(row.state or "open" for row in rows.values())
    findings.left_open = sum(row.state is None for row in rows.values())
    for call in seen:
        if call.end is End.SERVED and (call.request_id is None or not _is_of(rows.get(call.request_id), call.number)):
            findings.missing.append(call.number)
    billed = [row for row in rows.values() if row.state in ("complete", "partial") and row.prompt is not None]
    times = Counter(known_by_prompt(row.prompt or 0).number for row in billed)
    findings.twice += [number for number, count in times.items() if count > engine.asked.get(number, 0) or count > 1]
    findings.wrong += [row.request_id for row in billed if row.state == "complete" and not _is_true(row)]


@dataclass(frozen=True, slots=True)
class _Row:
    request_id: str
    state: str | None
    prompt: int | None
    cached: int | None
    output: int | None
    charged_pico: int | None


def _rows(ledger: Path) -> dict[str, _Row]:
    query = """
        SELECT r.request_id, s.state, s.prompt_tokens, s.cached_tokens, s.output_tokens,
               s.charged_units * 1000000000000 + s.charged_pico
        FROM requests r LEFT JOIN settlements s USING (request_id)"""
    with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as file:
        return {row[0]: _Row(*row) for row in file.execute(query)}


def settled_prompts(ledger: Path) -> list[tuple[str, int]]:
    """The state of each request, `open` where it has none, and its prompt tokens, 0 where they are not known."""
    return [(row.state or "open", row.prompt or 0) for row in _rows(ledger).values()]


def _is_of(row: _Row | None, number: int) -> bool:
    return row is not None and row.state == "complete" and row.prompt == Known(number).prompt_tokens


def _is_true(row: _Row) -> bool:
    known = known_by_prompt(row.prompt or 0)
    fresh = known.prompt_tokens - known.cached_tokens
    charged = fresh * _INPUT + known.cached_tokens * _CACHED + known.output_tokens * _OUTPUT
    truth = (known.cached_tokens, known.output_tokens, charged)
    return (row.cached, row.output, row.charged_pico) == truth


def configure(home: Path, engine_url: str, port: int) -> tuple[Path, Path]:
    """Write what a gateway needs into `home`; gives its configuration and where its ledger will be."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "prices.yaml").write_text(yaml.safe_dump(_PRICES))
    ledger, config = home / "ledger.db", home / "gateway.yaml"
    settings = {
        "listen": {"host": "127.0.0.1", "port": port},
        "backends": [{"id": "known", "url": engine_url}],
        "prices_file": str(home / "prices.yaml"),
        "ledger": {"path": str(ledger)},
        "index": {"embedded": False},
        "poll_interval_s": 0.5,
        "log_level": "error",
    }
    config.write_text(yaml.safe_dump(settings))
    return config, ledger


def _is_json(got: bytes) -> bool:
    try:
        json.loads(got)
    except ValueError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Exit status 1 where a row is missing, twice there, wrong or left open."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, help="keep ledger and logs in this new folder")
    options = parser.parse_args(arguments)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(crash(options.kills, options.seed, options.home or Path(folder)))
    lasted_s = time.monotonic() - began_s
    print(f"{found.kills} kills in {lasted_s:.0f} s; clients: {_counted(found.calls)}; rows: {_counted(found.rows)}")
    for name, faults in (("missing", found.missing), ("twice", found.twice), ("wrong", found.wrong)):
        print(f"{name}: {len(faults)} {faults[:10] or ''}")
    print(f"left open: {found.left_open}")
    goals = [
        Goal("calls whose end was seen and that are not in the ledger", len(found.missing), 0, "<="),
        Goal("calls that are billed twice", len(found.twice), 0, "<="),
        Goal("rows that are not what the engine knows", len(found.wrong), 0, "<="),
        Goal("requests left open", found.left_open, 0, "<="),
    ]
    row = {"kills": found.kills, "seed": options.seed, "lasted_s": round(lasted_s, 1)}
    row |= {f"calls_{end}": count for end, count in sorted(found.calls.items())}
    row |= {f"rows_{state}": count for state, count in sorted(found.rows.items())}
    print(f"written to {write_result('crash', [row], goals, ['aiohttp', 'sqlalchemy', 'uvicorn'])}")
    return 1 if found.faults else 0


def _counted(counter: Counter[End] | Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
