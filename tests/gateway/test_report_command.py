"""`prefixgate report`: every form of it, from the command line."""

import asyncio
import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from billing.archive import archive_month
from billing.reading import is_read_only
from gateway.cli import cli
from tests.billing.samples import opened, settled
from tests.billing.test_exports import PRICES, mixed
from tests.billing.test_report_splits import write

PERIOD = ("--from", "2026-10-26", "--to", "2026-12-25")


@pytest.fixture
async def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    await write(path, PRICES, mixed())
    return path


def run(ledger: Path, *arguments: str, exit_code: int = 0) -> tuple[str, str]:
    result = CliRunner().invoke(cli, ["report", "--ledger", str(ledger), *arguments])
    assert result.exit_code == exit_code, result.output
    return result.stdout, result.stderr


def payable(ledger: Path, *arguments: str) -> Decimal:
    return Decimal(json.loads(run(ledger, *PERIOD, "--format", "json", *arguments)[0])["payable"]["USD"])


async def test_the_options_of_old_still_work(ledger: Path) -> None:
    period = ("--from", "2026-11-01T00:00+05:30", "--to", "2026-12-01", "--tenant", "acme")
    table, _ = run(ledger, *period)
    assert "acme" in table
    assert "bolt" not in table
    assert f"ledger: {ledger}" in table
    lines = list(csv.DictReader(io.StringIO(run(ledger, *period, "--format", "csv")[0])))
    assert {line["tenant"] for line in lines} == {"acme"}
    assert json.loads(run(ledger, *period, "--format", "json")[0])["totals"][0]["currency"] in ("USD", None)


async def test_a_month_of_a_zone_is_split_by_its_days(ledger: Path) -> None:
    month = ("--month", "2026-11", "--time-zone", "Asia/Kathmandu", "--by", "tenant,day", "--by", "tag:team")
    found = json.loads(run(ledger, *month, "--format", "json")[0])
    assert found["from"] == "2026-11-01T00:00:00+05:45"
    assert found["to"] == "2026-12-01T00:00:00+05:45"
    assert found["by"] == ["tenant", "day", "tag:team"]
    assert run(ledger, *month, "--format", "csv") == run(ledger, *month, "--format", "csv", "--from-rows")
    assert "Misses" in run(ledger, *month, "--misses")[0]


@pytest.mark.parametrize("form", ["rows-csv", "focus-1.2", "focus-1.4"])
async def test_the_sum_over_a_file_is_what_is_payable(ledger: Path, form: str) -> None:
    column = "amount_charged" if form == "rows-csv" else "BilledCost"
    text, told = run(ledger, *PERIOD, "--format", form)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert sum(Decimal(row[column] or 0) for row in rows) == payable(ledger)
    assert ("no known amount" in told) == form.startswith("focus")
    inner = {"endpoint_id", "x_GpuSeconds"}
    assert not inner & set(rows[0])
    internal, _ = run(ledger, *PERIOD, "--format", form, "--internal")
    assert inner & set(next(csv.reader(io.StringIO(internal))))


@pytest.mark.parametrize("form", ["parquet", "rows-parquet"])
async def test_parquet_goes_to_a_file(ledger: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "out.parquet"
    _, told = run(ledger, *PERIOD, "--format", form, exit_code=2)
    assert "--output" in told
    run(ledger, *PERIOD, "--format", form, "-o", str(path))
    amounts = [amount for amount in parquet.read_table(path)["amount_charged"].to_pylist() if amount is not None]
    assert sum(amounts) == payable(ledger)


@pytest.mark.parametrize("form", ["table", "csv", "json", "rows-csv", "cloudevents", "lago"])
async def test_a_file_holds_what_would_be_printed(ledger: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "out"
    printed, _ = run(ledger, *PERIOD, "--format", form)
    run(ledger, *PERIOD, "--format", form, "--output", str(path))
    assert path.read_text() == printed != ""


async def test_an_invoice_stands_in_focus(ledger: Path) -> None:
    named = ("--seller", "Example K.K.", "--account", "a-1", "--invoice", "2026-11-0001")
    text, _ = run(ledger, *PERIOD, "--format", "focus-1.4", *named)
    row = next(csv.DictReader(io.StringIO(text)))
    assert (row["InvoiceIssuerName"], row["BillingAccountId"], row["InvoiceId"]) == (
        "Example K.K.",
        "a-1",
        "2026-11-0001",
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--month", "2026-11", "--from", "2026-11-01"), "not both"),
        ((), "which period? give from and to, or a month, as 2026-11\n  --month 2026-11, or --from"),
        (("--month", "2026-11", "--time-zone", "Mars"), "no time zone"),
        (("--month", "2026-11", "--by", "planet"), "split by"),
        (("--month", "2026-11", "--tag", "team"), "team=search"),
    ],
)
async def test_what_cannot_be_reported_is_told(ledger: Path, arguments: tuple[str, ...], why: str) -> None:
    assert why in run(ledger, *arguments, exit_code=2)[1]


@pytest.mark.parametrize("form", ["rows-csv", "cloudevents", "lago"])
async def test_a_reader_who_goes_away_ends_a_report_in_silence(ledger: Path, form: str) -> None:
    asked = (*PERIOD, "--ledger", str(ledger), "--format", form)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        command = (sys.executable, "-m", "gateway", "report", *asked)
        ended = await asyncio.to_thread(subprocess.run, command, stdout=gone, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_ledger_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "no ledger" in run(tmp_path / "absent.db", *PERIOD, exit_code=2)[1]


@pytest.fixture
def old_ledger(tmp_path: Path) -> Path:
    """As a gateway of the first version left it."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parents[1] / "billing" / "version_1.sql").read_text())
    return path


@pytest.mark.parametrize("form", ["table", "rows-csv", "focus-1.4", "lago"])
def test_a_ledger_of_an_older_gateway_is_said_to_be_one(old_ledger: Path, form: str) -> None:
    told = run(old_ledger, *PERIOD, "--format", form, exit_code=2)[1]
    assert "a ledger of an older gateway is upgraded when this one is started on it" in told


@pytest.mark.parametrize("form", ["rows-csv", "rows-parquet", "focus-1.2"])
def test_an_export_that_fails_leaves_no_half_of_a_file(old_ledger: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / "out"
    run(old_ledger, *PERIOD, "--format", form, "-o", str(path), exit_code=2)
    assert not path.exists()
    path.write_text("of yesterday")
    run(old_ledger, *PERIOD, "--format", form, "-o", str(path), exit_code=2)
    assert path.read_text() == "of yesterday"
    assert not list(tmp_path.glob("*.part"))


async def test_a_report_goes_to_a_device(ledger: Path) -> None:
    run(ledger, *PERIOD, "--format", "csv", "-o", "/dev/null")
    assert not Path("/dev/null").is_file()


async def test_a_copy_on_a_medium_that_cannot_be_written_is_read(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = payable(ledger)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert payable(ledger) == before
    ledger.with_name("ledger.db-wal").touch()
    assert not is_read_only(ledger)  # somebody writes it


async def test_rows_of_an_archived_month_are_refused_and_not_an_empty_file(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    await write(ledger, PRICES, [opened(), settled()])
    month = ("--month", "2026-11")
    forms = (("--format", "rows-csv"), ("--format", "focus-1.4"), ("--format", "lago"), ("--from-rows",), ("--misses",))
    before = run(ledger, *month, "--format", "csv")
    archived = archive_month(ledger, "2026-11", tmp_path / "archive", lambda: datetime(2027, 2, 1, tzinfo=UTC))
    assert run(ledger, *month, "--format", "csv") == before
    for form in forms:
        assert "'2026-11': its rows were archived" in run(ledger, *month, *form, exit_code=2)[1]
        run(archived.file, *month, *form)
