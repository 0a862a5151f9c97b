"""However a command ends, it ends with a line that says why, an exit code, and no traceback."""

import asyncio
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import cli
from tests.billing.economics.fleet import Asked, write

PROGRAM = (sys.executable, "-m", "gateway")
APIS = ("prices", "show", "--apis")


def ended(
    arguments: Sequence[str], environment: Mapping[str, str] = {}, **given: object
) -> "subprocess.CompletedProcess[bytes]":
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given}
    return subprocess.run([*PROGRAM, *arguments], env={**os.environ, **environment}, timeout=100, **given)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], APIS])
def test_a_full_disk_is_said(arguments: Sequence[str]) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        result = ended(arguments, stdout=full)
    said = b"prefixgate: the output could not be written: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, said)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], APIS])
def test_a_reader_who_goes_away_ends_a_command_in_silence(arguments: Sequence[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        result = ended(arguments, stdout=gone)
    assert (result.returncode, result.stderr) == (141, b"")


def test_letters_that_a_locale_lacks_break_nothing_off(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f'tenants: [{{id: acme, keys: [{{id: k, name: 髙島屋, sha256: "{"0" * 64}"}}]}}]\n', "utf-8")
    result = ended(["keys", "list", "--file", str(keys)], {"PYTHONIOENCODING": "ascii"})
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"acme" in result.stdout
    assert rb"\u9ad9\u5cf6\u5c4b" in result.stdout


def on_terminal(arguments: Sequence[str], columns: int, environment: Mapping[str, str]) -> str:
    """What a command prints on a terminal so many columns wide."""
    terminal, end = pty.openpty()
    given = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    with subprocess.Popen([*PROGRAM, *arguments], stdout=end, stderr=end, stdin=end, env=given) as process:
        os.close(end)
        printed = bytearray()
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # nobody writes to it any more
                break
            if not piece:
                break
            printed += piece
        assert process.wait(60) == 0
    os.close(terminal)
    return printed.decode()


def test_help_on_a_terminal_is_plain_and_no_wider_than_it_is() -> None:
    shown = on_terminal(["lint", "--help"], 60, {})
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 60
    assert "--minimum-tokens <int range>" in shown


def test_tables_on_a_terminal_are_as_wide_as_it_is() -> None:
    columns = 80
    lines = on_terminal(APIS, columns, {"NO_COLOR": "1"}).splitlines()
    assert max(len(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line)) for line in lines) <= columns
    assert any("not shown in" in line for line in lines)


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf"
    os.mkfifo(deaf)
    with subprocess.Popen(
        [*PROGRAM, "fixes", "--try", str(deaf)], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        opened = os.open(deaf, os.O_WRONLY)  # returns when the command reads
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=60)
        os.close(opened)
    assert process.returncode == 130
    assert b"Traceback" not in complaint


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    asyncio.run(write(path, [Asked("r1")]))
    return path


def complaint(arguments: Sequence[str], exit_code: int = 2) -> str:
    result = CliRunner().invoke(cli, list(arguments))
    assert result.exit_code == exit_code, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("prefixgate: ")
    return result.stderr


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    broken, folder, binary = tmp_path / "broken.yaml", tmp_path / "folder", tmp_path / "binary.yaml"
    broken.write_text("a: [")
    folder.mkdir()
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (broken, folder, binary, tmp_path / "gone.yaml"):
        for arguments in (
            ["check", "-c", str(path)],
            ["serve", "-c", str(path)],
            ["keys", "list", "--file", str(path)],
            ["prices", "check", "--prices", str(path)],
            ["cost", "--month", "2026-11", "--costs", str(path)],
            ["invoice", "list", "--invoicing", str(path)],
            ["templates", "show", str(path)],
            ["fixes", "--try", str(path)] if path != broken else ["lint", str(path), "--baseline", str(path)],
            ["status", "--token-file", str(path)] if path != broken else ["status", "-c", str(path)],
        ):
            if path == binary and arguments[0] in {"fixes", "status"}:
                continue  # bytes of a request, and of a token, may be any
            assert path.name in complaint(arguments), arguments


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(ledger: Path, tmp_path: Path) -> None:
    asked = ["report", "--month", "2025-11", "--ledger", str(ledger), "--format", "csv"]
    gone = tmp_path / "gone" / "bill.csv"
    assert complaint([*asked, "-o", str(gone)]) == f"prefixgate: {gone}: No such file or directory\n"


def test_a_ledger_that_is_none_or_of_another_version_is_named(ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_text("no database")
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "ledger.db" in complaint(["ledger", "rebuild", "--ledger", str(ledger)])
    for path in (other, tmp_path / "gone.db"):
        for command in (["report", "--month", "2025-11"], ["ledger", "show"], ["verify", "--month", "2025-11"]):
            assert path.name in complaint([*command, "--ledger", str(path)])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "--month", "2025-11", "--tenant", "nobody"], "nothing was used in that period"),
        (["jobs", "--month", "2025-11", "--tenant", "nobody"], "no call of that period has a job id"),
        (["fixes", "--month", "2025-11"], "no request of that period was changed"),
    ],
)
def test_a_result_that_looks_like_none_is_explained_to_people_alone(
    arguments: list[str], said: str, ledger: Path
) -> None:
    shown = CliRunner().invoke(cli, [*arguments, "--ledger", str(ledger)])
    assert (shown.exit_code, said in shown.stderr) == (0, True)
    shown = CliRunner().invoke(cli, [*arguments, "--ledger", str(ledger), "--json"])
    assert (shown.exit_code, shown.stderr) == (0, "")


@pytest.mark.parametrize("month", ["2026-13", "yesterday", "2026", ""])
@pytest.mark.parametrize("command", ["report", "cost", "jobs", "verify", "fixes"])
def test_a_month_that_is_none_is_named(command: str, month: str, ledger: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.yaml"
    costs.write_text(
        "currency: USD\nendpoints: [{endpoint: a, gpu_type: H, gpus: 1, per_gpu_hour: 1, from: 2020-01-01}]"
    )
    also = ["--costs", str(costs)] if command in {"cost", "jobs"} else []
    assert month in complaint([command, "--month", month, "--ledger", str(ledger), *also])
