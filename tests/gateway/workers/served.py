"""A gateway of several workers as a command runs it, before an engine that knows the truth."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.crash import Clients, Findings, audit, configure
from bench.crash_engine import KnownEngine, running_known_engine
from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.member import Member
from gateway.demo.processes import clean_environment
from tests.until import until

CLIENTS = 4
"""They leave the processors to the workers that are to start."""
PATIENCE_S = 120.0
"""For what takes a second on an idle machine."""


@dataclass
class Served:
    """A gateway that serves, and clients who call it without pause once `clients.up` is set."""

    url: str
    config: Path
    ledger: Path
    member: Member
    clients: Clients
    engine: KnownEngine
    starts: int = 0

    async def start(self) -> None:
        """Start it, for the first time or again; returns once it serves."""
        await self.member.start()
        self.starts += 1
        self.clients.up.set()

    def change(self, **settings: object) -> None:
        """Write other settings into the file of the configuration; dots in keys are written as double underscores."""
        tree = yaml.safe_load(self.config.read_text())
        for name, value in settings.items():
            *sections, key = name.split("__")
            at = tree
            for section in sections:
                at = at.setdefault(section, {})
            at[key] = value
        self.config.write_text(yaml.safe_dump(tree))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        assert self.member.pid is not None
        os.kill(self.member.pid, number)

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The log lines with this message, since the last start."""
        text = (self.config.parent / f"gateway.{self.starts}.log").read_text()
        lines = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("message") == message]

    async def until_logged(self, message: str, times: int = 1) -> list[dict[str, Any]]:
        """The same, once there are so many."""
        return await until(lambda: self.logged(message), lambda found: len(found) >= times, within_s=PATIENCE_S)

    async def answers(self, count: int) -> None:
        """Wait until clients have got so many more."""
        async with asyncio.timeout(PATIENCE_S):
            self.clients.expect(count)
            await self.clients.enough.wait()

    def audit(self) -> Findings:
        """The ledger held against what the clients saw and the engine knows."""
        findings = Findings(kills=0)
        audit(self.ledger, self.clients.seen, self.engine, findings)
        return findings


@asynccontextmanager
async def served(home: Path, **settings: object) -> AsyncIterator[Served]:
    """Started and serving while inside, and clients calling; stopped at the end unless it has ended before."""
    async with running_known_engine(1) as engine:
        config, ledger = configure(home, engine.url, free_port())
        port = yaml.safe_load(config.read_text())["listen"]["port"]
        url = f"http://127.0.0.1:{port}"
        command = (sys.executable, "-m", "gateway", "serve", "-c", str(config))
        member = Member("gateway", command, home, clean_environment())
        clients = Clients(url, random.Random(1))
        gateway = Served(url, config, ledger, member, clients, engine)
        (home / "token").write_text("letmein")
        gateway.change(workers=2, index__embedded=True, log_level="info", **settings)
        gateway.change(admin_token_file=str(home / "token"))
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(clients.run(CLIENTS))
            try:
                await gateway.start()
                yield gateway
            finally:
                clients.up.clear()
                calling.cancel()
                await member.stop()
