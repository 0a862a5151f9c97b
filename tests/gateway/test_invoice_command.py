"""`prefixgate invoice`, from a ledger to files; and what a tenant sees of it over HTTP."""

import asyncio
import csv
import io
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from pypdf import PdfReader
from typer.testing import CliRunner, Result

from billing import LedgerUnavailable
from gateway.cli import cli
from gateway.edge.auth import new_key
from gateway.errors import NotFound, RateLimited
from gateway.invoice_pages import INVOICES_PATH, InvoicePages
from gateway.report_rates import BURST, Rates
from tests.billing.invoicing.office import write
from tests.billing.samples import book, opened, price, settled
from tests.gateway.conftest import StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine

SELLER = """
seller: {name: 株式会社プレフィックス}
currency: JPY
taxes: {standard: {label: Consumption tax, rate_percent: 10}}
default_tax: standard
number_format: "PG/{year}/{sequence:03d}"
buyers: {acme: {name: 髙島屋}, zeta: {name: Zeta}}
"""
MAY = datetime(2026, 5, 5, tzinfo=UTC)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ledger of May, the seller's file and a configuration that names them.

    It is the current one: without `--out`, documents are written there.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seller.yaml").write_text(SELLER, "utf-8")
    (tmp_path / "prices.yaml").write_text("currency: USD\nprices: []\n")
    (tmp_path / "config.yaml").write_text(
        f"ledger: {{path: {tmp_path}/ledger.db}}\ninvoicing_file: {tmp_path}/seller.yaml\n"
        f"prices_file: {tmp_path}/prices.yaml\n"
    )
    records = [
        record
        for name, tenant in (("1", "acme"), ("2", "zeta"))
        for record in (opened(name, at=MAY, tenant=tenant), settled(name, at=MAY))
    ]
    write(tmp_path / "ledger.db", book(price("1250", "125", "10000")), *records)
    return tmp_path


def run(office: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["invoice", *arguments, "-c", str(office / "config.yaml")])


def issue(office: Path, tenant: str) -> None:
    draft_id = run(office, "draft", tenant, "2026-05", "--out", str(office)).output.partition(":")[0]
    assert run(office, "issue", draft_id, "--out", str(office)).exit_code == 0


def test_a_period_becomes_drafts_invoices_and_a_credit_note(office: Path) -> None:
    closed = run(office, "close-period", "2026-05")
    assert closed.exit_code == 0, closed.output
    assert "closed: 2026-05-01 00:00 to 2026-06-01 00:00 (UTC); drafts: 2" in closed.output
    issued = run(office, "issue", "--all", "2026-05", "--out", str(office / "out"))
    assert issued.exit_code == 0, issued.output
    (year,) = {line.split("/")[1] for line in issued.output.splitlines() if line.startswith("PG/")}
    note = run(
        office, "credit", f"PG/{year}/001", "--reason", "Outage", "--amount", "0.40", "--out", str(office / "out")
    )
    assert note.exit_code == 0, note.output
    assert f"PG/{year}/003" in note.output
    listed = run(office, "list").output
    assert all(f"PG/{year}/00{number}" in listed for number in (1, 2, 3))
    assert "closed: 2026-05-01" in listed
    files = sorted(path.suffix for path in (office / "out").iterdir())
    assert files == [".html"] * 3 + [".pdf"] * 3


def test_a_document_shown_again_is_the_same_files(office: Path) -> None:
    drafted = run(office, "draft", "acme", "2026-05", "--out", str(office / "a"))
    draft_id = drafted.output.partition(":")[0]
    assert run(office, "show", draft_id, "--out", str(office / "a")).exit_code == 0
    issued = run(office, "issue", draft_id, "--out", str(office / "a"))
    number = issued.output.partition(":")[0]
    (office / "seller.yaml").write_text(SELLER.replace("髙島屋", "Other").replace("10}", "99}"), "utf-8")
    assert run(office, "show", number, "--out", str(office / "b")).exit_code == 0
    for path in (office / "b").iterdir():
        assert path.read_bytes() == (office / "a" / path.name).read_bytes()
    data = json.loads(run(office, "show", number, "--json").output)
    assert (data["number"], data["buyer"]["name"]) == (number, "髙島屋")


def test_an_issued_invoice_is_written_as_focus_whole_and_adds_up(office: Path) -> None:
    issue(office, "acme")
    with closing(sqlite3.connect(office / "ledger.db")) as connection:
        ((number,),) = connection.execute("SELECT number FROM invoices")

    def focus(*more: str) -> Result:
        asked = ("report", "--format", "focus-1.4", "--invoice", number, "-c", str(office / "config.yaml"))
        return CliRunner().invoke(cli, [*asked, *more])

    rows = list(csv.DictReader(io.StringIO(focus().stdout)))
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("1.36")
    assert {row["SubAccountId"] for row in rows} == {"acme"}
    assert focus("--month", "2026-05", "--tenant", "acme").stdout == focus().stdout
    assert "leave the period out" in focus("--month", "2026-06").output
    for part in (("--tenant", "zeta"), ("--model", "llama")):
        assert "it is an invoice of acme, and is written whole" in focus(*part).output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("draft", "acme", "May"), "a period is a month"),
        (("draft", "acmee", "2026-05"), "'acmee' used nothing in that period, and is not among `buyers`"),
        (("issue",), "name a draft"),
        (("issue", "draft-gone"), "there is no draft 'draft-gone'"),
        (("show", "PG/2026/009"), "there is no invoice 'PG/2026/009'"),
        (("credit", "PG/2026/009", "--reason", "x"), "there is no invoice"),
        (("draft", "acme", "2026-05", "--ledger", "gone.db"), "ledger unavailable"),
        (("draft", "acme", "2026-05", "--invoicing", "gone.yaml"), "gone.yaml"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(office: Path, arguments: tuple[str, ...], complaint: str) -> None:
    refused = run(office, *arguments)
    assert refused.exit_code == 2
    assert complaint in refused.output


def test_without_a_sellers_file_there_are_no_invoices(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("log_level: info\n")
    assert "no seller: give --invoicing FILE" in run(tmp_path, "list").output


def test_a_folder_that_cannot_be_written_is_named(office: Path) -> None:
    (office / "file").write_text("")
    refused = run(office, "draft", "acme", "2026-05", "--out", str(office / "file"))
    assert refused.exit_code == 1
    assert "cannot write" in refused.output


@pytest.mark.parametrize("out", ["file", "out"])
def test_what_cannot_be_printed_gets_no_number(office: Path, out: str) -> None:
    draft_id = run(office, "draft", "acme", "2026-05").output.partition(":")[0]
    (office / "file").write_text("")
    if out == "out":
        (office / "seller.yaml").write_text(f"{SELLER}fonts: [file]\n", "utf-8")
    refused = run(office, "issue", draft_id, "--out", str(office / out))
    assert refused.exit_code in (1, 2)
    (office / "seller.yaml").write_text(SELLER, "utf-8")
    assert draft_id in run(office, "list").output


def test_where_one_of_several_drafts_cannot_be_issued_none_is(office: Path) -> None:
    (office / "seller.yaml").write_text(SELLER.replace(", zeta: {name: Zeta}", ""), "utf-8")
    assert run(office, "close-period", "2026-05").exit_code == 0
    result = run(office, "issue", "draft-gone", "--all", "2026-05")
    assert result.exit_code == 2
    for words in ("there is no draft 'draft-gone'", " of zeta: ", "buyer", "nothing was issued"):
        assert words in result.output
    assert "PG/" not in run(office, "list").output


def test_a_letter_without_a_font_is_told(office: Path) -> None:
    (office / "seller.yaml").write_text(SELLER.replace("髙島屋", "한국"), "utf-8")
    assert "no font has 국한" in run(office, "draft", "acme", "2026-05", "--out", str(office)).output


async def test_a_tenant_reads_its_own_invoices_and_nobody_elses(office: Path) -> None:
    for tenant in ("acme", "zeta"):
        issue(office, tenant)
    run(office, "draft", "acme", "2026-04", "--out", str(office))
    pages = InvoicePages(office / "ledger.db", Rates(lambda: 0.0))
    (one,) = json.loads((await pages.of_tenant("acme", INVOICES_PATH)).body)["invoices"]
    assert (one["total"], one["currency"], one["kind"]) == ("1.36", "USD", "invoice")
    pdf = await pages.of_tenant("acme", one["pdf"])
    assert "髙島屋" in PdfReader(io.BytesIO(pdf.body)).pages[0].extract_text()
    assert "髙島屋" in (await pages.of_tenant("acme", one["html"])).body.decode()
    assert (
        json.loads((await pages.of_tenant("acme", one["html"].replace(".html", ".json"))).body)["number"]
        == one["number"]
    )
    for tenant, path in (("zeta", one["pdf"]), ("acme", one["pdf"].replace(".pdf", ".exe")), ("nobody", one["pdf"])):
        with pytest.raises(NotFound):
            await pages.of_tenant(tenant, path)
    pages.close()


async def test_a_ledger_that_never_had_an_invoice_lists_none(office: Path) -> None:
    pages = InvoicePages(office / "ledger.db", Rates(lambda: 0.0))
    assert json.loads((await pages.of_tenant("acme", INVOICES_PATH)).body) == {"invoices": []}
    for _ in range(BURST - 1):
        await pages.of_tenant("acme", INVOICES_PATH)
    with pytest.raises(RateLimited):
        await pages.of_tenant("acme", INVOICES_PATH)
    pages.close()


async def test_a_document_that_was_changed_in_the_database_is_not_handed_out(office: Path) -> None:
    issue(office, "acme")
    with closing(sqlite3.connect(office / "ledger.db")) as connection:
        connection.execute("DROP TRIGGER invoices_no_update")
        connection.execute("UPDATE invoices SET sha256 = 'x'")
        connection.commit()
    pages = InvoicePages(office / "ledger.db", Rates(lambda: 0.0))
    with pytest.raises(LedgerUnavailable, match="was changed in the database"):
        await pages.of_tenant("acme", INVOICES_PATH)
    pages.close()


KEYS = {tenant: new_key() for tenant in ("acme", "zeta")}


async def test_over_http_the_key_alone_says_whose_invoices_are_read(start_gateway: StartGateway, office: Path) -> None:
    for tenant in KEYS:
        await asyncio.to_thread(issue, office, tenant)
    entries = [f"  - {{id: {name}, keys: [{{id: {name}-1, sha256: {digest}}}]}}" for name, (_, digest) in KEYS.items()]
    (office / "keys.yaml").write_text("tenants:\n" + "\n".join(entries))
    async with scripted_engine(answer_chat("hello")) as engine:
        gateway = await asyncio.to_thread(
            start_gateway, engine.url, ledger__path=office / "ledger.db", keys_file=office / "keys.yaml"
        )
        async with httpx.AsyncClient(base_url=gateway.url) as client:
            seen, asked_by = {}, {name: {"authorization": f"Bearer {key}"} for name, (key, _) in KEYS.items()}
            for tenant, headers in asked_by.items():
                (seen[tenant],) = (await client.get(INVOICES_PATH, headers=headers)).json()["invoices"]
                assert (await client.get(seen[tenant]["pdf"], headers=headers)).content.startswith(b"%PDF")
            assert seen["acme"]["number"] != seen["zeta"]["number"]
            assert (await client.get(seen["zeta"]["pdf"], headers=asked_by["acme"])).status_code == 404
            assert (await client.get(INVOICES_PATH)).status_code == 401
            assert (await client.post(INVOICES_PATH, headers=asked_by["acme"])).status_code == 405
