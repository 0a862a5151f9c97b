"""What processes used, from /proc: of a process and all that it has started."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")
_LEASHES: Final = ("sh", "dash", "bash")
"""Shells of ours that only wait for the end: see gateway/demo/processes.py."""


@dataclass(frozen=True, slots=True)
class Used:
    """`cpu_us` since the start, in steps of a clock tick (10 ms), and the kernel's part of it; the resident memory of
    now, and the most ever, MB."""

    cpu_us: int
    system_us: int
    resident_mb: float
    peak_mb: float


def used(pid: int) -> Used:
    """By a process, its descendants, and those of them that have ended and were waited for."""
    user, system, resident_kb, peak_kb = 0, 0, 0, 0
    for one in _tree(pid):
        try:
            name, fields = _stat(_PROC / str(one))
            memory = _memory_kb(_PROC / str(one) / "status")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        if name in _LEASHES:
            continue
        user += int(fields[_UTIME]) + int(fields[_UTIME + 2])  # its own, and that of children it waited for
        system += int(fields[_UTIME + 1]) + int(fields[_UTIME + 3])
        resident_kb += memory.get("VmRSS", 0)
        peak_kb += memory.get("VmHWM", 0)
    return Used((user + system) * _TICK_US, system * _TICK_US, resident_kb / 1024, peak_kb / 1024)


def _tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            try:
                parent = int(_stat(entry)[1][_PARENT])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        yield (one := waiting.pop())
        waiting += children.get(one, ())


_PARENT: Final = 1
_UTIME: Final = 11
"""Fields of /proc/PID/stat behind the name: proc_pid_stat(5) counts from one, and the name is the second."""


def _stat(directory: Path) -> tuple[str, list[str]]:
    """Name and the fields behind it."""
    before, _, after = (directory / "stat").read_text().rpartition(")")
    return before.partition("(")[2], after.split()


def _memory_kb(status: Path) -> dict[str, int]:
    lines = (line.split() for line in status.read_text().splitlines() if line.startswith(("VmRSS:", "VmHWM:")))
    return {name.rstrip(":"): int(kb) for name, kb, _ in lines}
