"""What the prefix-aware run comes to: a tenant's invoice, and what the engines cost their operator.

    ledger, prices of the run ─┐                 ┌─ invoice of the month, issued: HTML, PDF     as `prefixgate invoice`
    seller, plans, costs ──────┴─> a new folder ─┴─ cost of the seconds of the run              as `prefixgate cost`

The folder is for whoever ran the demo to keep or delete. The invoice is in its copy of the ledger, and a configuration
in it names all of its files, so that both commands can go on with it.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

import yaml
from rich.console import Console

from billing import BillingError, PriceBook
from billing.economics import CostBook, CostReport, cost_report, cost_sheets, ledgers, tables
from billing.economics.sheet import Sheet
from billing.invoicing import (
    Document,
    Drafting,
    InvoiceBook,
    Issued,
    money_text,
    page_of,
    period_in,
    plans_from,
    read_seller,
    render_html,
)
from billing.invoicing.pdf_page import render_pdf
from billing.money import amount_text
from billing.prices.plans_file import load_plans
from billing.when import from_us, to_us
from gateway.config import load_config
from gateway.cost_terms import assumptions, total_line
from gateway.demo.types import DemoFailed, DemoOutcome, Policy, RunResult

BILLED_TENANT: Final = "acme"
SHOWN: Final[Mapping[str, Sequence[str]]] = {
    "tokens": ("model", "kind", "tokens", "per_mtok_busy", "per_mtok_loaded"),
    "tenants": ("tenant", "requests", "amount_revenue", "amount_cost_loaded", "gross_margin_loaded", "notes"),
    "discounts": ("tenant", "amount_given", "amount_avoided_busy", "amount_avoided_loaded", "worth"),
}
"""Sheets that `prefixgate cost` has, and as many of their columns as fit into eighty."""

_LEDGER: Final = "ledger.db"
_PRICES: Final = "prices.yaml"
_CONFIG: Final = "prefixgate.yaml"
_FILES: Final = {"invoicing_file": "seller.yaml", "plans_file": "plans.yaml", "costs_file": "costs.yaml"}
"""Keys of the configuration, and the files of the demo's data that they name."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The invoice with its files, the cost of the run, and the configuration with which both can be made again."""

    config: Path
    invoice: Document
    invoice_files: tuple[Path, ...]
    run: RunResult
    costs: CostReport


def make_accounts(outcome: DemoOutcome) -> Accounts:
    """Write the files of the prefix-aware run into a new folder. Raises `DemoFailed`, and leaves none then."""
    run = outcome.run(Policy.PREFIX)
    with ExitStack() as on_failure:
        try:
            folder = Path(tempfile.mkdtemp(prefix="prefixgate-invoice-"))
            on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
            config = _copy(outcome.ledger, folder)
            issued = _issue(folder, run.began_at)
            written = _write_pages(issued, folder)
            costs = _cost_of(config, run)
        except BillingError as error:
            raise DemoFailed(f"the ledger cannot be accounted for: {error}") from error
        except (OSError, sqlite3.Error) as error:
            raise DemoFailed(f"the invoice cannot be written: {error}") from error
        on_failure.pop_all()
    return Accounts(config, issued.document, written, run, costs)


def show_accounts(accounts: Accounts, program: str, console: Console) -> None:
    """Print where the invoice is, the cost tables, and the commands that go on; `program` is ours in a shell."""
    invoice, config, run = accounts.invoice, accounts.config, accounts.run
    total = f"{invoice.currency} {money_text(invoice.total_minor, invoice.currency)}"
    lines = (
        f"\nthe invoice of {invoice.tenant_id}, {total}, dated at the end of the month:",
        *(f"  {path}" for path in accounts.invoice_files),
        f"\nwhat the run cost its operator, if an hour of an engine were {_rates(accounts.costs)}, as a GPU may be",
        "(a plan's fee is by the month: it is not in the revenue of a run)\n",
    )
    _say(lines, console)
    for table in tables(_shown_sheets(accounts.costs), accounts.costs.account.currency):
        table.title_justify = table.caption_justify = "left"
        table.collapse_padding = True
        console.print(table)
        console.print()
    console.print(total_line(accounts.costs), markup=False, highlight=False, soft_wrap=True)
    kept = (
        f"\nkept until you delete it: {config.parent}; go on with",
        f"  {program} invoice list --config {config}",
        f"  {program} cost --config {config} --from {run.began_at.isoformat()} --to {run.ended_at.isoformat()}",
    )
    _say(kept, console)


def _rates(costs: CostReport) -> str:
    rates = {round(one.rate.pico_per_hour) for one in costs.account.endpoints if one.rate is not None}
    texts = (amount_text(pico).rstrip("0").rstrip(".") for pico in sorted(rates))
    return f"{costs.account.currency} {' and '.join(texts)}"


def _shown_sheets(costs: CostReport) -> Iterable[Sheet]:
    for sheet in cost_sheets(costs):
        places = [at for at, column in enumerate(sheet.columns) if column.name in SHOWN.get(sheet.name, ())]
        if places:
            columns = [sheet.columns[at] for at in places]
            yield replace(sheet, columns=columns, rows=[[row[at] for at in places] for row in sheet.rows])


def _say(lines: tuple[str, ...], console: Console) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _copy(ledger: Path, folder: Path) -> Path:
    """The ledger as it is now, and the files that say what it comes to. Returns the configuration that names them."""
    with closing(sqlite3.connect(ledger)) as source, closing(sqlite3.connect(folder / _LEDGER)) as copy:
        source.backup(copy)
    shutil.copyfile(ledger.with_name(_PRICES), folder / _PRICES)
    for name in _FILES.values():
        (folder / name).write_bytes(files("gateway.demo").joinpath("data", name).read_bytes())
    named = {"prices_file": _PRICES, **_FILES}
    settings = {"ledger": {"path": str(folder / _LEDGER)}, **{key: str(folder / name) for key, name in named.items()}}
    config = folder / _CONFIG
    config.write_text(yaml.safe_dump(settings, sort_keys=False))
    return config


def _issue(folder: Path, at: datetime) -> Issued:
    """The invoice of the month in which the run began, as the seller's clocks have it.

    It is dated at the end of the month: an invoice can be issued, and a plan be billed, when its month is over.
    """
    seller = read_seller(folder / _FILES["invoicing_file"])
    plans = load_plans(folder / _FILES["plans_file"])
    month = period_in(f"{at.astimezone(seller.zone):%Y-%m}", seller.timezone)
    book = InvoiceBook(folder / _LEDGER, clock=lambda: from_us(month.end_us))
    drafting = Drafting(book, seller, plans_from(plans, PriceBook.load(folder / _PRICES)))
    [draft] = drafting.draft(BILLED_TENANT, month)
    return book.issue(draft.id, seller)


def _write_pages(issued: Issued, folder: Path) -> tuple[Path, ...]:
    page = page_of(issued.document, issued.sha256)
    html, pdf = (folder / f"{issued.document.number}.{ending}" for ending in ("html", "pdf"))
    html.write_text(render_html(page), "utf-8")
    pdf.write_bytes(render_pdf(page, ()))
    return html, pdf


def _cost_of(config: Path, run: RunResult) -> CostReport:
    settings = load_config(config, {}, {})
    assert settings.costs_file is not None
    book = CostBook.load(settings.costs_file)
    start_us, end_us = to_us(run.began_at), to_us(run.ended_at)
    with ledgers([settings.ledger.path]) as opened:
        assumed = assumptions(opened, settings, book.currency, (start_us, end_us))
        return cost_report(opened, book, start_us, end_us, assumed)
