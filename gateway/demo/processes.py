"""A process of the demo: started, waited for, and always ended with the block that started it.

    demo ──pipe──> sh: when the pipe ends, TERM to the process
      ^              └─ exec ─> engine or gateway
      └── one line of JSON: {"url": ...}

The pipe ends when the demo ends, however it ends, so nothing it started outlives it. Ctrl-C of a terminal does not
reach the processes (they have a session of their own): the demo stops them itself, in order.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config import ENV_PREFIX, process_environment
from gateway.demo.types import DemoFailed

STOP_WITHIN_S: Final = 15.0
_LAST_WORDS_BYTES: Final = 2000
_KEPT: Final = ("PREFIXGATE_CACHE_DIR",)

# A line on the pipe means that the process has ended already; the end of the pipe means that it is to end.
_LEASH: Final = 'exec 3<&0; { read -r _ <&3 || kill -TERM $$; } >/dev/null 2>&1 & exec "$@" 3<&- </dev/null'


@dataclass(frozen=True, slots=True)
class Starting:
    """A process that was started and will tell its address."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_within_s: float

    async def url(self) -> str:
        """The address, once it is told; to be awaited once. Raises `DemoFailed` with the end of the log."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(self.ready_within_s):
                # The thread outlives a time-out or a cancellation only until the process is stopped.
                line = await asyncio.to_thread(self.process.stdout.readline)
        except TimeoutError:
            raise DemoFailed(f"{self.name} was not ready in {self.ready_within_s:g} s: {self._last_words()}") from None
        try:
            return str(json.loads(line)["url"])
        except (ValueError, KeyError, TypeError):
            raise DemoFailed(f"{self.name} did not start: {self._last_words()}") from None

    def _last_words(self) -> str:
        return self.log.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip() or "it said nothing"


@asynccontextmanager
async def started_process(
    name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], ready_within_s: float
) -> AsyncIterator[Starting]:
    """Run a command that prints its address as a line of JSON; its errors go to `log`. It ends with the block."""
    process = _spawn(command, log, environment)
    try:
        yield Starting(name, process, log, ready_within_s)
    finally:
        await asyncio.to_thread(_stop, process)


def _spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Plain `subprocess`, a few ms: asyncio's own hangs for ever where it is cancelled while it connects the pipes."""
    with log.open("wb") as log_file:
        return subprocess.Popen(  # noqa: S603 - our own commands
            ("sh", "-c", _LEASH, "sh", *command),  # noqa: S607 - the system's shell
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env=dict(environment),
            start_new_session=True,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        if process.poll() is not None:
            process.stdin.write(b"\n")
        process.stdin.close()
    try:
        process.wait(STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def clean_environment() -> dict[str, str]:
    """This process's environment without configuration of another gateway; one thread for the engines' libraries."""
    kept = {
        name: value for name, value in process_environment().items() if not name.startswith(ENV_PREFIX) or name in _KEPT
    }
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
