"""Memory of a server and all that it started: the most that each of its processes ever had resident, summed.

Processes of one session are found by /proc. Pages that two of them share are counted twice, files that are mapped into
memory (weights, mostly) as far as they were touched. Of what a GPU holds nothing is known here.
"""

from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_SESSION: Final = 3
"""In /proc/PID/stat, of the fields after the name in parentheses."""
KiB: Final = 1024


def peak_bytes(session: int) -> int | None:
    """None where nothing can be told: no such process, or no /proc."""
    peaks = [_peak(process) for process in _members(session)]
    known = [one for one in peaks if one is not None]
    return sum(known) if known else None


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
