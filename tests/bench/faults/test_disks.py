"""A disk is full for one process, and no more."""

import subprocess
import sys
from pathlib import Path

from bench.faults.disks import small_disk

_WRITER = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1], "ab", buffering=0) as file:
            print(file.write(b"x" * int(line)), flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


def test_a_process_that_is_bound_can_write_no_more_until_it_is_let_go(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path / "disk" / "file")]
    with (
        small_disk(tmp_path / "disk", mounts=False) as disk,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def write(count: int) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert write(100) == "100"
        assert disk.fill(process.pid)
        assert write(100) == "File too large"
        disk.empty(process.pid)
        assert write(100) == "100"
        process.stdin.close()
