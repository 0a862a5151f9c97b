"""`prefixgate ledger`: what is in a ledger, whether its sums are right, and moving months out of it."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from billing import open_ledger
from gateway.cli import cli
from tests.billing.samples import book, opened, settled

SELLER = """
seller: {name: Example}
currency: USD
taxes: {standard: {label: VAT, rate_percent: 20}}
default_tax: standard
buyers: {acme: {name: Acme}}
"""
JANUARY = datetime(2026, 1, 15, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"

    async def fill() -> None:
        async with open_ledger(path, book()) as opened_ledger:
            for name in ("1", "2"):
                await opened_ledger.open(opened(name, at=JANUARY))
                await opened_ledger.settle(settled(name, at=JANUARY))

    asyncio.run(fill())
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["ledger", *map(str, arguments)])


def test_what_is_in_a_ledger_is_shown(ledger: Path) -> None:
    result = run("show", "--ledger", ledger)
    assert result.exit_code == 0, result.output
    assert "requests                     2" in result.output
    assert "archived  none" in result.output


def test_sums_that_are_wrong_are_found_and_made_anew(ledger: Path) -> None:
    assert run("verify", "--ledger", ledger).exit_code == 0
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.execute("UPDATE usage_quarters SET prompt_tokens = 1 WHERE state = 'complete'")
    wrong = run("verify", "--ledger", ledger)
    assert wrong.exit_code == 1
    assert "2026-01-15 00:00 tenant_id=acme" in wrong.output
    assert run("rebuild", "--ledger", ledger).exit_code == 0
    assert run("verify", "--ledger", ledger).exit_code == 0


def test_months_move_into_files_of_their_own(ledger: Path, tmp_path: Path) -> None:
    moved = run("archive", "--ledger", ledger, "--keep-months", "0", "--to", tmp_path)
    assert moved.exit_code == 0, moved.output
    assert "2026-01: 2 requests in" in moved.output
    assert run("verify", "--ledger", tmp_path / "ledger-2026-01.db").exit_code == 0
    assert (
        "there is no month to move" in run("archive", "--ledger", ledger, "--keep-months", "0", "--to", tmp_path).output
    )
    assert "archived  2026-01" in run("show", "--ledger", ledger).output


def test_a_month_that_is_not_invoiced_stays_until_it_is_or_is_moved_all_the_same(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seller.yaml").write_text(SELLER)
    Path("c.yaml").write_text("ledger: {path: ledger.db}\ninvoicing_file: seller.yaml\n")
    moving = ("archive", "--month", "2026-01", "--to", tmp_path, "-c", "c.yaml")
    refused = run(*moving)
    assert refused.exit_code == 2
    assert "2026-01 (UTC) has usage that is on no invoice, of acme (USD)" in refused.output
    assert run(*moving, "--not-invoiced").exit_code == 0
    too_late = CliRunner().invoke(cli, ["invoice", "draft", "acme", "2026-01", "-c", "c.yaml"])
    assert "`prefixgate ledger restore`" in too_late.output
    back = run("restore", "--month", "2026-01", "--from", tmp_path, "-c", "c.yaml")
    assert "2026-01: in the ledger again: 2 requests" in back.output
    assert run("restore", "--month", "2026-01", "--from", tmp_path, "-c", "c.yaml").exit_code == 2
    assert CliRunner().invoke(cli, ["invoice", "close-period", "2026-01", "-c", "c.yaml"]).exit_code == 0
    assert run(*moving).exit_code == 0


@pytest.mark.parametrize("command", ["show", "verify", "rebuild"])
def test_a_ledger_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    result = run(command, "--ledger", tmp_path / "absent.db")
    assert result.exit_code == 2
    assert "absent.db" in result.output.replace("\n", "")


def test_which_month_must_be_said(ledger: Path, tmp_path: Path) -> None:
    assert run("archive", "--ledger", ledger, "--to", tmp_path).exit_code == 2
    assert run("archive", "--ledger", ledger, "--to", tmp_path, "--month", "2999-01").exit_code == 2
