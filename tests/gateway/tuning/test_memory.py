"""What processes hold."""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.tuning.memory import _peak, _session_of, gpu_shares, memory_of
from gateway.tuning.types import MiB

HOLDS = """
import subprocess, sys
held = bytearray(64 << 20)
child = subprocess.Popen([sys.executable, "-c", "held = bytearray(32 << 20); print(flush=True); input()"], stdout=1)
input()
child.communicate()
"""


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_gpu")
def test_the_peaks_of_all_processes_of_a_session_are_summed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the child has what it holds
        found = memory_of(process.pid)
        process.communicate(b"\n\n")
    assert found.gpu_bytes is None
    assert found.peak_bytes is not None
    assert 96 * MiB < found.peak_bytes < 300 * MiB


@pytest.mark.usefixtures("no_gpu")
def test_of_no_process_nothing_is_known() -> None:
    assert memory_of(2**22 + 1).peak_bytes is None


def test_what_gpus_hold_is_that_of_the_processes_that_were_started() -> None:
    page = "11, 1000\n12, 24\n99, 5\n11, [N/A]\nNo running processes found\n"
    assert list(gpu_shares(page, {11, 12})) == [1000 * MiB, 24 * MiB, None]


@pytest.mark.parametrize(("printed", "expected"), [("{pid}, 512", 512 * MiB), ("{pid}, [N/A]", None), ("1, 512", None)])
def test_the_tool_of_the_driver_is_asked_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: int | None
) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as process:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\necho '{printed.format(pid=process.pid)}'\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        found = memory_of(process.pid)
        process.kill()
    assert found.gpu_bytes == expected


@pytest.mark.usefixtures("no_gpu")
def test_a_tool_that_fails_tells_nothing(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as process:
        found = memory_of(process.pid)
        process.kill()
    assert found.gpu_bytes is None
    assert found.peak_bytes is not None


def test_processes_that_have_ended_meanwhile_are_passed_over(tmp_path: Path) -> None:
    assert _peak(tmp_path / "gone") is None
    assert _session_of(tmp_path / "gone") is None
