"""`prefixgate fixes`, from the command line."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from billing import Usage, open_ledger
from gateway.cli import cli
from tests.billing.samples import book, opened, settled

LEFT, CHANGED = Usage(1000, 0, 10), Usage(1000, 900, 20)
BODY = {"messages": [{"role": "system", "content": "Time: 2026-11-30T12:05:11Z\nYou help."}], "x": 1.0}


@pytest.fixture
async def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    async with open_ledger(path, book()) as writing:
        for name, fixes, usage in (("r1", "on:lines", CHANGED), ("r2", "off:lines", LEFT), ("r3", None, LEFT)):
            await writing.open(opened(name))
            await writing.settle(replace(settled(name, usage), layout_fixes=fixes))
    return path


def run(*arguments: str, exit_code: int = 0, given: bytes | None = None) -> tuple[str, str]:
    result = CliRunner().invoke(cli, ["fixes", *arguments], input=given)
    assert result.exit_code == exit_code, result.output
    return result.stdout, result.stderr


def test_both_sides_are_shown_beside_each_other(ledger: Path) -> None:
    period = ("--ledger", str(ledger), "--month", "2026-11")
    table, _ = run(*period)
    lines = [line for line in table.splitlines() if "lines" in line]
    assert [("on" in line, "90.0%" in line) for line in lines] == [(False, False), (True, True)]
    (off, on) = json.loads(run(*period, "--format", "json")[0])
    assert (off["arm"], off["hit_share"], on["arm"], on["output_tokens_mean"]) == ("off", 0.0, "on", 20.0)
    assert json.loads(run(*period, "--tenant", "nobody", "--format", "json")[0]) == []


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    assert "no ledger" in run("--ledger", str(tmp_path / "none.db"), "--month", "2026-11", exit_code=2)[1]
    assert "No such file" in run("--try", str(tmp_path / "none.json"), exit_code=2)[1]


def test_a_request_is_tried(tmp_path: Path) -> None:
    file = tmp_path / "body.json"
    file.write_text(json.dumps(BODY))
    out, said = run("--try", str(file), "--fix", "lines")
    assert json.loads(out)["messages"][0]["content"] == "You help.\nTime: 2026-11-30T12:05:11Z"
    assert '"x": 1.0' in out
    assert said == "changed by: lines\n"
    out, said = run("--try", "-", "--route", "messages", "--fix", "compact", given=b'{"system": "x"}')
    assert (out, said) == ('{"system":"x"}', "changed by: compact\n")


def test_a_request_is_tried_with_what_a_rule_changes_that_names_nothing() -> None:
    body = BODY | {"tools": [{"type": "function", "function": {"name": name}} for name in "ba"]}
    out, said = run("--try", "-", given=json.dumps(body).encode())
    assert "2026-11-30T12:05:11Z" in out
    assert said == "changed by: tools, lines\n"
