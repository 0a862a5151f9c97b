"""`prefixgate cost` and `prefixgate jobs` over a ledger; and what is the operator's is in no file for a tenant."""

import asyncio
import csv
import io
import json
import re
from pathlib import Path

import pytest
from pypdf import PdfReader
from typer.testing import CliRunner, Result

from gateway.cli import cli
from tests.billing.economics.fleet import Asked, write

COSTS = """
currency: USD
endpoints:
  - {endpoint: gpu-hush, gpu_type: H100 HUSHED, gpus: 2, per_gpu_hour: 977.31, from: 2020-01-01}
"""
HOUR = ("--from", "2025-11-15T12:00", "--to", "2025-11-15T13:00")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a ledger, a costs file, and a configuration that names both."""
    monkeypatch.chdir(tmp_path)
    asked = [
        Asked("r1", 0, user="h1", job="run-1", endpoint="gpu-hush", prefill_s=1.23456, decode_s=6.54321),
        Asked("r2", 20, user="h2", job="run-1", endpoint="gpu-hush", prefill_s=1.23456, decode_s=6.54321),
        Asked("r3", 40, tenant="umbra", endpoint="gpu-hush", prefill_s=1.23456, decode_s=6.54321),
    ]
    asyncio.run(write(tmp_path / "ledger.db", asked))
    Path("costs.yaml").write_text(COSTS)
    Path("c.yaml").write_text("ledger: {path: ledger.db}\ncosts_file: costs.yaml\n")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments], env={"COLUMNS": "300"})


@pytest.mark.usefixtures("folder")
def test_costs_are_printed_and_add_up() -> None:
    result = run("cost", *HOUR, "-c", "c.yaml")
    assert result.exit_code == 0, result.output
    assert "2 x H100 HUSHED, rented" in result.output
    assert "= 1954.620000000000 USD, which is what the endpoints cost" in result.output
    assert "openai/gpt-5-mini" in result.output


@pytest.mark.usefixtures("folder")
def test_one_sheet_is_a_csv_and_all_are_in_the_json() -> None:
    tenants = list(csv.DictReader(io.StringIO(run("cost", *HOUR, "-c", "c.yaml", "--format", "csv").output)))
    assert [row["tenant"] for row in tenants] == ["acme", "umbra", "all"]
    api = run("cost", *HOUR, "-c", "c.yaml", "--format", "csv", "--sheet", "api", "--api", "theirs=1:0.1:8").output
    assert [row["api"] for row in csv.DictReader(io.StringIO(api))] == ["theirs"]
    found = json.loads(run("cost", *HOUR, "-c", "c.yaml", "--format", "json").output)
    assert found["internal"] is True
    assert list(found["sheets"]) == [
        *("endpoints", "tokens", "tenants", "plans", "users", "heaviest", "discounts", "fills", "api")
    ]


@pytest.mark.usefixtures("folder")
def test_jobs_have_a_price_and_with_a_costs_file_a_cost() -> None:
    table = run("jobs", *HOUR, "-c", "c.yaml")
    assert table.exit_code == 0, table.output
    assert "run-1" in table.output
    (job,) = json.loads(run("jobs", *HOUR, "-c", "c.yaml", "--format", "json").output)["jobs"]["rows"]
    assert (job["calls"], job["prompt_tokens"], job["hit_share"]) == (2, 2000, 0.8)
    assert float(job["amount_cost_busy"]) == pytest.approx(20 * 1954.62 / 3600)
    (priced,) = csv.DictReader(io.StringIO(run("jobs", *HOUR, "--ledger", "ledger.db", "--format", "csv").output))
    assert "amount_cost_busy" not in priced
    assert float(priced["amount_price"]) == pytest.approx(2 * 0.00135)
    assert "run-1" not in run("jobs", *HOUR, "-c", "c.yaml", "--tenant", "umbra").output
    assert "run-1" not in run("jobs", *HOUR, "-c", "c.yaml", "--job", "run-2").output


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("cost", *HOUR, "--ledger", "ledger.db"), "no costs file"),
        (("cost", *HOUR, "-c", "c.yaml", "--costs", "gone.yaml"), "cannot be read"),
        (("cost", *HOUR, "-c", "c.yaml", "--ledger", "gone.db"), "no ledger"),
        (("cost", *HOUR, "-c", "c.yaml", "--sheet", "secrets"), "no sheet 'secrets'"),
        (("cost", *HOUR, "-c", "c.yaml", "--api", "theirs=1"), "NAME=INPUT:CACHED:OUTPUT"),
        (("cost", *HOUR, "-c", "c.yaml", "--api", "theirs=a:b"), "--api"),
        (("cost", "-c", "c.yaml", "--from", "2999-01-01", "--to", "2999-01-02"), "must have begun"),
        (("cost", "-c", "c.yaml"), "or a month"),
        (("jobs", *HOUR, "--ledger", "gone.db"), "no ledger"),
        (("jobs", "--ledger", "ledger.db", "--from", "2999-01-01", "--to", "2999-01-02"), "must have begun"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_reason(arguments: tuple[str, ...], why: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_costs_file_that_cannot_be_used_is_refused_at_the_start(command: str, folder: Path) -> None:
    (folder / "costs.yaml").write_text("currency: usd\n")
    (folder / "c.yaml").write_text("backends: [{url: 'http://127.0.0.1:9'}]\ncosts_file: costs.yaml\n")
    result = run(command, "-c", "c.yaml")
    assert result.exit_code == 2
    assert "costs.yaml" in result.output


HUSHED = ("hush", "H100", "1954.62", "1.23456", "6.54321", "margin", "busy", "idle", "prefill", "decode_s")
"""What a tenant is not to see: endpoints, rates, the seconds of the GPU, and any word of costs."""
TENANT_FORMATS = ["table", "csv", "json", "rows-csv", "focus-1.2", "focus-1.4", "cloudevents", "lago"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("format_", TENANT_FORMATS)
def test_nothing_of_costs_is_in_a_report_for_a_tenant(format_: str) -> None:
    result = run("report", *HOUR, "-c", "c.yaml", "--tenant", "acme", "--format", format_, "--misses")
    assert result.exit_code == 0, result.output
    assert "acme" in result.output
    found = [word for word in HUSHED if word.lower() in result.output.lower()]
    assert found == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("format_", ["parquet", "rows-parquet"])
def test_nothing_of_costs_is_in_a_parquet_file_for_a_tenant(format_: str) -> None:
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    result = run("report", *HOUR, "-c", "c.yaml", "--tenant", "acme", "--format", format_, "-o", "out.parquet")
    assert result.exit_code == 0, result.output
    text = str(parquet.read_table("out.parquet").to_pylist()).lower()
    assert "acme" in text
    assert [word for word in HUSHED if word.lower() in text] == []


def test_nothing_of_costs_is_in_an_invoice(folder: Path) -> None:
    seller = "seller: {name: We}\ncurrency: USD\ntaxes: {none: {label: Tax, rate_percent: 0}}\ndefault_tax: none\n"
    Path("seller.yaml").write_text(seller + "buyers: {acme: {name: Acme}}\n")
    Path("c.yaml").write_text("ledger: {path: ledger.db}\ncosts_file: costs.yaml\ninvoicing_file: seller.yaml\n")
    result = run("invoice", "draft", "acme", "2025-11", "-c", "c.yaml", "--out", str(folder / "out"))
    assert result.exit_code == 0, result.output
    written = sorted((folder / "out").iterdir())
    assert {path.suffix for path in written} == {".html", ".pdf"}
    pages = [path.read_text() for path in written if path.suffix == ".html"]
    pages += [page.extract_text() for path in written if path.suffix == ".pdf" for page in PdfReader(path).pages]
    text = re.sub(r"<style>.*?</style>", "", "".join(pages), flags=re.DOTALL).lower()
    assert "acme" in text
    assert [word for word in (*HUSHED, "run-1") if word.lower() in text] == []


@pytest.mark.usefixtures("folder")
def test_the_words_that_are_looked_for_are_there_where_the_operator_asks() -> None:
    internal = run("report", *HOUR, "-c", "c.yaml", "--format", "rows-csv", "--internal").output
    said = run("cost", *HOUR, "-c", "c.yaml", "--format", "json").output
    found = [word for word in HUSHED if word.lower() not in (internal + said).lower()]
    assert found == []
