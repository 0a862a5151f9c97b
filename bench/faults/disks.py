"""A disk that can be full: a small file system in memory where root allows one, else a bound on a process's files.

tmpfs           a file takes all the room that is left, and gives it back      every writer there: ENOSPC
RLIMIT_FSIZE    of one process, to what the largest file there has now         that process: EFBIG
"""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MiB: Final = 1024 * 1024
SIZE_BYTES: Final = 160 * _MiB
"""Room for PostgreSQL's own files, and for the ledger of a run."""
_SECTOR_BYTES: Final = 512
_BLOCK: Final = b"\0" * _MiB


@dataclass(slots=True)
class Disk:
    """A folder; `is_small`: on a file system of its own, of `SIZE_BYTES`."""

    folder: Path
    is_small: bool

    def fill(self, pid: int | None) -> bool:
        """Let nothing more be written there: by anybody, or by process `pid`, whose files there may grow no more.
        Whether that could be done."""
        if self.is_small:
            for piece in (_BLOCK, _BLOCK[:_SECTOR_BYTES]):  # what is left is less than the last piece
                with suppress(OSError), self._filler.open("ab", buffering=0) as file:
                    while True:
                        file.write(piece)
            return True
        if pid is None or not hasattr(resource, "prlimit"):
            return False
        _bound(pid, max((path.stat().st_size for path in self.folder.iterdir()), default=0))
        return True

    def empty(self, pid: int | None = None) -> None:
        """There is room again."""
        self._filler.unlink(missing_ok=True)
        if not self.is_small and pid is not None:
            _bound(pid, resource.RLIM_INFINITY)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"


@contextmanager
def small_disk(folder: Path, *, mounts: bool) -> Iterator[Disk]:
    """A folder on a small file system, as long as the block lasts; a usual folder where that is not allowed, or not
    wanted (`mounts`)."""
    folder.mkdir()
    mounted = False
    if mounts and os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(folder, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def _bound(pid: int, size_bytes: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))
