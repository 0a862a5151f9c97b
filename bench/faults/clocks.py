"""The wall clock of a gateway, moved while it runs: some lines of C in front of libc, and a file that says by how much.

Needs a C compiler and a libc that can be stood in front of (Linux); elsewhere `built` says None, and the fault is left
out and named as left out.
"""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shifted_clock.c")
_NS: Final = 10**9


def built(folder: Path) -> Path | None:
    """The library, compiled into `folder`; None where that cannot be done here."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / "shifted_clock.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False)
    return library if done.returncode == 0 else None


class WallClock:
    """That of one process, to be started in `environment`."""

    def __init__(self, file: Path, library: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK_FILE": str(file)}
        self._file = file
        self.move(0.0)

    def move(self, by_s: float) -> None:
        """From now on it is so far off, in both directions."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", int(by_s * _NS)))
