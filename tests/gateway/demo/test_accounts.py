"""The invoice and the cost table at the end of the demo."""

import io
import shlex
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from pypdf import PdfReader
from rich.console import Console
from typer.testing import CliRunner

from billing.economics import CostBook
from billing.invoicing import LineKind, read_seller
from billing.money import PICO
from billing.prices.plans_file import load_plans
from gateway.cli import cli
from gateway.demo.accounts import BILLED_TENANT, Accounts, make_accounts, show_accounts
from gateway.demo.engines import ENGINES
from gateway.demo.types import DemoFailed, DemoOutcome
from gateway.demo.workload import SHARE_GROUPS
from tests.gateway.demo.conftest import BEGAN_AT, ENDED_AT


def shown(accounts: Accounts) -> list[str]:
    out = io.StringIO()
    show_accounts(accounts, "prefixgate", Console(file=out, width=80, force_terminal=False))
    return out.getvalue().splitlines()


def folders(tmp_path: Path) -> Iterable[Path]:
    return tmp_path.glob("prefixgate-*")


def test_the_invoice_has_the_tokens_of_the_run_the_plan_and_the_tax(served: DemoOutcome) -> None:
    invoice = make_accounts(served).invoice
    rows = [(row.kind, row.quantity, row.amount_minor) for row in invoice.lines]
    assert rows == [
        (LineKind.USAGE, 1_200, 0),
        (LineKind.USAGE, 10_800, 0),
        (LineKind.USAGE, 1_200, 2),
        (LineKind.PLAN, None, 20_00),
        (LineKind.PLAN, 1_200, 0),
    ]
    assert (invoice.net_minor, invoice.tax_minor, invoice.total_minor) == (20_02, 2_00, 22_02)
    assert invoice.period.start_text == "2025-06-01 00:00"
    assert invoice.issued_on == "2025-07-01"


def test_both_pages_are_written_with_the_names_of_the_parties(served: DemoOutcome) -> None:
    accounts = make_accounts(served)
    html, pdf = accounts.invoice_files
    printed = PdfReader(pdf).pages[0].extract_text()
    for text in ("株式会社アクメ髙橋商会", "T0000000000000", accounts.invoice.number):
        assert text in html.read_text("utf-8")
        assert text in printed


def test_the_ledger_of_the_run_is_left_as_it_was(served: DemoOutcome) -> None:
    before = served.ledger.read_bytes()
    make_accounts(served)
    assert served.ledger.read_bytes() == before


def test_the_engines_cost_the_seconds_of_the_run(served: DemoOutcome) -> None:
    costs = make_accounts(served).costs
    seconds = (ENDED_AT - BEGAN_AT).seconds
    assert costs.account.cost_pico == ENGINES * 2 * PICO * seconds // 3600


def test_the_tables_fit_into_eighty_columns_and_say_where_the_pages_are(served: DemoOutcome) -> None:
    accounts = make_accounts(served)
    lines = shown(accounts)
    assert all(f"  {path}" in lines for path in accounts.invoice_files)
    sentence = next(at for at, line in enumerate(lines) if "which is what the endpoints cost" in line)
    assert max(len(line) for line in lines[lines.index(f"  {accounts.invoice_files[-1]}") + 1 : sentence]) <= 84
    assert "USD 2, as a GPU may be" in "\n".join(lines)


def test_the_commands_that_are_printed_go_on_with_the_folder(served: DemoOutcome) -> None:
    accounts = make_accounts(served)
    commands = [shlex.split(line)[1:] for line in shown(accounts) if line.startswith("  prefixgate ")]
    invoices, cost = (CliRunner().invoke(cli, command) for command in commands)
    assert (invoices.exit_code, cost.exit_code) == (0, 0)
    assert accounts.invoice.number in invoices.output
    assert "= 0.100000000000 USD, which is what the endpoints cost" in cost.output


def test_where_there_is_no_ledger_no_folder_is_left(served: DemoOutcome, tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match="cannot be written"):
        make_accounts(replace(served, ledger=tmp_path / "gone" / "ledger.db"))
    assert list(folders(tmp_path)) == []


def test_a_ledger_that_cannot_be_billed_is_said_and_no_folder_is_left(served: DemoOutcome, tmp_path: Path) -> None:
    with closing(sqlite3.connect(served.ledger)) as ledger:
        ledger.execute("DROP TABLE corrections")
    with pytest.raises(DemoFailed, match="cannot be accounted for"):
        make_accounts(served)
    assert list(folders(tmp_path)) == []


def test_seller_plans_and_costs_are_those_of_the_demo(tmp_path: Path) -> None:
    for name in ("seller.yaml", "plans.yaml", "costs.yaml"):
        (tmp_path / name).write_bytes(files("gateway.demo").joinpath("data", name).read_bytes())
    seller, plans = read_seller(tmp_path / "seller.yaml"), load_plans(tmp_path / "plans.yaml")
    costs = CostBook.load(tmp_path / "costs.yaml")
    assert BILLED_TENANT in seller.buyers
    assert {one.tenant for one in plans.assignments} <= set(SHARE_GROUPS)
    assert plans.timezone == seller.timezone
    assert seller.currency == costs.currency == "USD"
    assert {rate.endpoint_id for rate in costs.rates} == {f"engine-{number}" for number in range(ENGINES)}
