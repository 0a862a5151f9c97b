"""Processes that can be killed, frozen and started again at their address: engines, gateways, Valkey, PostgreSQL.

kill -9 takes a process and all it has started with it, as the death of its machine would: PostgreSQL's children outlive
their parent for a while, and keep its memory.
"""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import psycopg

from gateway.demo.processes import started_process
from gateway.demo.types import DemoFailed
from tests.postgres import installed_programs

READY_WITHIN_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.05

Ready = Callable[[], bool]


class Part:
    """A command that is run again and again; each run has a log of its own, `NAME.N.log`."""

    def __init__(self, name: str, command: Sequence[str], home: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.pid: int | None = None
        self._command = list(command)
        self._home = home
        self._environment = dict(environment)
        self._stack = AsyncExitStack()
        self._starts = 0

    async def start(self, answers: Ready) -> None:
        """Run it, and wait until it answers. Raises `DemoFailed`."""
        self._starts += 1
        starting = await self._stack.enter_async_context(
            started_process(
                self.name,
                self._command,
                log=self._home / f"{self.name}.{self._starts}.log",
                environment=self._environment,
                ready_within_s=READY_WITHIN_S,
            )
        )
        self.pid = starting.process.pid
        until_s = time.monotonic() + READY_WITHIN_S
        while not await asyncio.to_thread(answers):
            if starting.process.poll() is not None or time.monotonic() > until_s:
                raise DemoFailed(f"{self.name} did not start: see {self._home / f'{self.name}.{self._starts}.log'}")
            await asyncio.sleep(_ASK_AGAIN_S)

    async def kill(self) -> None:
        """kill -9 of it and its children; returns once it is gone."""
        for pid in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        """TERM (a frozen one goes on for that), and wait until it has ended. Nothing where it does not run."""
        self.thaw()
        await self._gone()

    def freeze(self) -> None:
        """SIGSTOP to it and its children."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def _gone(self) -> None:
        await self._stack.aclose()
        self.pid = None

    def _family(self) -> list[int]:
        return [] if self.pid is None else [self.pid, *descendants(self.pid)]


def descendants(pid: int) -> list[int]:
    """All processes that a process has started, and they in turn. Where there is no /proc: none."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def postgres_part(home: Path, port: int, environment: Mapping[str, str], data: Path) -> tuple[Part, str, Ready]:
    """A server on TCP with its data in `data`, made here; the part, its URL, and how to ask whether it answers.

    What it has acknowledged survives its death, though not that of the machine: nothing is flushed to the disk.
    """
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    folder = home / "postgres"
    folder.mkdir()
    programs = installed_programs(folder, user)
    data.mkdir(exist_ok=True)
    prefix: list[str] = []
    if user is not None:
        for path in (folder, data):
            os.chown(path, user.pw_uid, user.pw_gid)
        prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
    files = data / "files"
    initialise = [*prefix, str(programs / "initdb"), "-D", str(files), "-U", "prefixgate", "-A", "trust"]
    _run([*initialise, "-E", "UTF8", "--locale", "C", "--no-sync"], folder)
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "fsync": "off",
        "max_connections": "60",
        "shared_buffers": "32MB",
        "min_wal_size": "32MB",
        "max_wal_size": "64MB",
        "wal_recycle": "off",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    command = [*prefix, str(programs / "postgres"), "-D", str(files), "-k", str(folder), *options]
    url = f"postgresql://prefixgate@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    return Part("ledger", command, home, environment), url, answers


def _run(command: list[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DemoFailed(f"{command[0]} is missing")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"{command[0]} failed: {done.stderr[-500:]}")
