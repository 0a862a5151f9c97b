"""Memory of a server and all that it started: the most that each of its processes ever had resident, summed.

Processes of one session are found by /proc. Pages that two of them share are counted twice, files that are mapped into
memory (weights, mostly) as far as they were touched. What they hold on NVIDIA GPUs the driver's own tool tells, where
there is one, as of this moment. In a container it may name processes by other numbers; then nothing is known.
"""

import shutil
import subprocess
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.tuning.types import KiB, MiB

_PROC: Final = Path("/proc")
_SESSION: Final = 3
"""Place of the session in /proc/PID/stat, of the fields after the name in parentheses (man proc_pid_stat)."""
_GPU_TOOL: Final = "nvidia-smi"
_GPU_QUERY: Final = ("--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits")
_GPU_S: Final = 20.0
"""Patience with a driver that has to wake its GPUs first."""


@dataclass(frozen=True, slots=True)
class Memory:
    """None where nothing can be told: no such process, no /proc, no GPU."""

    peak_bytes: int | None
    gpu_bytes: int | None


def memory_of(session: int) -> Memory:
    """Of the processes of a session. Blocks: O(processes of the machine), and the driver's tool, where there is one."""
    members = _members(session)
    peaks = [peak for process in members if (peak := _peak(process)) is not None]
    shares = list(gpu_shares(_gpu_page(), {int(one.name) for one in members}))
    told = [share for share in shares if share is not None]
    return Memory(
        peak_bytes=sum(peaks) if peaks else None,
        gpu_bytes=sum(told) if told and len(told) == len(shares) else None,  # a part is not the whole
    )


def members_of(session: int) -> list[int]:
    """Its processes; none where there is no /proc."""
    return [int(one.name) for one in _members(session)]


def gpu_shares(page: str, processes: Collection[int]) -> Iterator[int | None]:
    """Bytes of those processes, one by one, of lines `PID, MiB`; what is not told, as `[N/A]`, is None."""
    for line in page.splitlines():
        process, _, used = (part.strip() for part in line.partition(","))
        if process.isdecimal() and int(process) in processes:
            yield int(used) * MiB if used.isdecimal() else None


def _gpu_page() -> str:
    tool = shutil.which(_GPU_TOOL)
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, *_GPU_QUERY], capture_output=True, timeout=_GPU_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


def _members(session: int) -> list[Path]:
    if not _PROC.is_dir():
        return []
    return [one for one in _PROC.iterdir() if one.name.isdecimal() and _session_of(one) == session]


def _session_of(process: Path) -> int | None:
    try:
        stat = (process / "stat").read_text(errors="replace")
    except OSError:  # it has ended meanwhile
        return None
    return int(stat.rpartition(")")[2].split()[_SESSION])


def _peak(process: Path) -> int | None:
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * KiB for line in lines if line.startswith("VmHWM:")), None)
