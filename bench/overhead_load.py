"""One window of load: wrk for some seconds against an address, and what the processes behind it used meanwhile."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.overhead_backend import program
from bench.overhead_process import used
from bench.overhead_prompts import Ask

SCRIPT: Final = Path(__file__).resolve().parent / "load" / "unique.lua"
_RESULT: Final = "RESULT "
_ERRORS: Final = ("status", "connect", "read", "write", "timeout")
_MOST_RUNS: Final = 10_000
_WAIT_S: Final = 30
"""For one answer; wrk's own 2 s would call slow routers broken."""


class NoResult(Exception):
    """wrk did not say what it measured; the text is the last it said."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What wrk saw: latencies in microseconds, `errors` by kind where there were any."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Requests a second."""
        return self.requests / (self.duration_us / 1e6)


@dataclass(frozen=True, slots=True)
class Window:
    """One measurement; `cpu_us` are those of a request, by the name of the process."""

    measured: Measured
    cpu_us: Mapping[str, float]


class Load:
    """wrk and its bodies, written to files in a folder. No two windows ask the same."""

    def __init__(self, home: Path, asks: Sequence[Ask], key: str) -> None:
        """Raises `ToolMissing`."""
        self._wrk = program("wrk", "wrk")
        self._key = key
        self._runs = 0
        self._bodies: dict[str, list[str]] = {}
        for number, ask in enumerate(asks):
            files = (home / f"{number}.head", home / f"{number}.tail")
            for file, text in zip(files, (ask.head, ask.tail), strict=True):
                file.write_text(text)
            self._bodies[ask.size] = [str(file) for file in files]

    def window(
        self, url: str, size: str, connections: int, seconds: int, watched: Mapping[str, int] | None = None
    ) -> Window:
        """Load for so long, with `watched` processes by name. Raises `NoResult`."""
        before = {name: used(pid).cpu_us for name, pid in (watched or {}).items()}
        measured = self._run(url, size, connections, seconds)
        requests = max(1, measured.requests)
        spent = {name: (used(pid).cpu_us - before[name]) / requests for name, pid in (watched or {}).items()}
        return Window(measured, spent)

    def _run(self, url: str, size: str, connections: int, seconds: int) -> Measured:
        self._runs = (self._runs + 1) % _MOST_RUNS
        shape = ["-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", f"{_WAIT_S}s"]
        asked = [*self._bodies[size], self._key, str(self._runs)]
        command = [self._wrk, *shape, "--latency", "-s", str(SCRIPT), url, "--", *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return read_output(done.stdout + done.stderr)


def read_output(said: str) -> Measured:
    """The line that the script wrote; nothing else of wrk's text is read. Raises `NoResult`."""
    lines = said.strip().splitlines()
    found = next((line for line in reversed(lines) if line.startswith(_RESULT)), None)
    if found is None:
        raise NoResult(lines[-1] if lines else "wrk said nothing")
    figures: dict[str, int] = json.loads(found.removeprefix(_RESULT))
    errors = {name: count for name in _ERRORS if (count := figures.pop(name))}
    return Measured(**figures, errors=errors)
