"""An engine that a sweep starts: waited for, watched while it is asked, and always ended with the block.

    tune ──pipe──> sh: when the pipe ends, TERM to the engine
      ^              └─ exec ─> engine ──its own log──> a file
      └── GET /health, or /v1/models where there is none, until 200

The pipe ends when this process does, however it ends. What the engine started is of its session, and ends with it.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import httpx

from gateway.tuning.errors import SettingFailed
from gateway.tuning.memory import Memory, members_of, memory_of
from gateway.tuning.pages import legible
from gateway.tuning.types import MiB

_STOP_WITHIN_S: Final = 30.0
"""After that an engine is killed."""
_LOOK_S: Final = 0.1
_ENDS_WITHIN_S: Final = 2.0
"""From an answer that failed to the end of the engine that it failed with."""
_ASK_S: Final = 5.0
_MOST_LOG_BYTES: Final = 16 * MiB
"""Of a log: an engine that says the same for ever would fill the disk."""
_TAIL_BYTES: Final = 4000
"""Of a log, in which its last words are looked for; of those so many characters are told."""
_SAID_CHARS: Final = 300
_ERROR: Final = re.compile(r"(\S+: )?error\b", re.IGNORECASE)
_OK: Final = 200
_NO_PAGE: Final = 404
# While somebody holds the other end of its standard input, the engine runs; it has none itself. One that heeds no TERM
# is killed with its group, of which the shell that waits is one, so that its number is no other group's by then.
_LEASH: Final = (
    f"exec 3<&0; {{ read -r _ <&3 || {{ kill -TERM $$; sleep {_STOP_WITHIN_S:g}; kill -KILL -$$; }}; }} "
    '>/dev/null 2>&1 & exec "$@" 3<&- </dev/null'
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, where it will listen, and how long it may take until it does."""

    words: Sequence[str]
    environment: Mapping[str, str]
    url: str
    ready_within_s: float


@dataclass(frozen=True, slots=True)
class Engine:
    """One that runs. `ready_s`: so long it took to answer."""

    process: "subprocess.Popen[bytes]"
    log: Path
    ready_s: float

    def memory(self) -> Memory:
        """Of all its processes, so far. Blocks for as long as the driver of GPUs takes to tell."""
        return memory_of(self.process.pid)

    async def while_alive(self, work: Awaitable[T]) -> T:
        """The result of `work`, which is broken off when the engine ends first. Raises `SettingFailed` then."""
        try:
            return await _first(work, self._ended())
        except SettingFailed:
            # What was asked of an engine that ends fails first; that it has ended is known a moment later.
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDS_WITHIN_S):
                    await self._ended()
            raise

    async def _ended(self) -> None:
        while self.process.poll() is None:
            shorten(self.log)
            await asyncio.sleep(_LOOK_S)
        raise SettingFailed(_ending(self.process, self.log))


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(command: Command, log: Path) -> AsyncIterator[Engine]:
    """Start an engine and wait until it answers. Raises `SettingFailed` where it does not, with its last words."""
    begun_s = time.monotonic()
    process = _spawn(command, log)
    try:
        await _ready(command, process, log)
        yield Engine(process, log, time.monotonic() - begun_s)
    finally:
        await asyncio.shield(asyncio.to_thread(_stop, process))


async def _ready(command: Command, process: "subprocess.Popen[bytes]", log: Path) -> None:
    ends_s = time.monotonic() + command.ready_within_s
    async with httpx.AsyncClient(base_url=command.url, timeout=_ASK_S, trust_env=False) as client:
        while process.poll() is None:
            shorten(log)
            if await _answers(client):
                return
            if time.monotonic() > ends_s:
                raise SettingFailed(f"the engine did not answer within {command.ready_within_s:g} s{_last_line(log)}")
            await asyncio.sleep(_LOOK_S)
    raise SettingFailed(_ending(process, log))


async def _answers(client: httpx.AsyncClient) -> bool:
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(_ASK_S):
            status = await _status(client, "/health")
            return (await _status(client, "/v1/models") if status == _NO_PAGE else status) == _OK
    return False


async def _status(client: httpx.AsyncClient, path: str) -> int:
    """Of a page, which is not read: it may have no end."""
    async with client.stream("GET", path) as answer:
        return answer.status_code


async def _first(work: Awaitable[T], watch: Awaitable[None]) -> T:
    """`work`, unless `watch` raises before. What is raised is raised as it is, not in a group."""
    found: list[T] = []

    async def works() -> None:
        found.append(await work)
        watcher.cancel()

    async def watches() -> None:
        await watch

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(works())
            watcher = group.create_task(watches())
    except* SettingFailed as failures:
        raise failures.exceptions[-1] from None
    return found[0]


def _spawn(command: Command, log: Path) -> "subprocess.Popen[bytes]":
    """Plain `subprocess`: asyncio's own hangs for ever where it is cancelled while it connects the pipes."""
    try:
        with log.open("ab") as said:  # so that it can be emptied under the engine
            return subprocess.Popen(  # noqa: S603 - what the sweep file says
                ("sh", "-c", _LEASH, "sh", *command.words),  # noqa: S607 - the system's shell
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=dict(command.environment),
                start_new_session=True,
            )
    except OSError as error:
        raise SettingFailed(f"the engine could not be started: {error.strerror}") from None


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """TERM to the engine, and after a while the end of its session; whoever is left of that ends at once, groups of
    their own too."""
    assert process.stdin is not None
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_WITHIN_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for other in members_of(process.pid):
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    process.wait()
    with suppress(BrokenPipeError):
        process.stdin.close()


def shorten(log: Path) -> None:
    """To its last words, where it is long. The engine appends to it, so that it goes on there."""
    with suppress(FileNotFoundError):  # whoever clears temporary files may take it
        if log.stat().st_size > _MOST_LOG_BYTES:
            tail = _tail(log)
            os.truncate(log, 0)
            with log.open("ab") as file:
                file.write(tail)


def _tail(log: Path) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _TAIL_BYTES, 0))
            return file.read(_TAIL_BYTES)
    except FileNotFoundError:
        return b""


def _ending(process: "subprocess.Popen[bytes]", log: Path) -> str:
    code = process.returncode
    how = f"signal {-code}" if code < 0 else f"status {code}"
    return f"the engine ended with {how}{_last_line(log)}"


def _last_line(log: Path) -> str:
    """The last that begins with an error, since some engines say after it how they are used; else the last of all."""
    said = _tail(log).decode(errors="replace").strip()
    if not said:
        return ", and said nothing"
    lines = [line for one in said.splitlines() if (line := legible(one))] or ["(nothing legible)"]
    line = next((one for one in reversed(lines) if _ERROR.match(one)), lines[-1])
    return f": {line[-_SAID_CHARS:]}"
