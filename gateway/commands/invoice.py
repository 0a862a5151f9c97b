"""`prefixgate invoice`: drafts out of the ledger, issued documents as HTML and PDF, credit notes, close of a period.

A period is read by the clocks of the seller's time zone: `2026-11` is that month there, DST or not.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from sqlalchemy import Connection

from billing import BillingError, PriceBook
from billing.invoicing import (
    Document,
    Drafting,
    InvoiceBook,
    InvoiceInvalid,
    Issued,
    Period,
    Seller,
    credit_all,
    credit_part,
    digest_of,
    document_json,
    minor_from_text,
    money_text,
    page_of,
    period_in,
    plans_from,
    read_seller,
    render_html,
)
from billing.prices.plans import Plans
from billing.prices.plans_file import load_plans
from billing.when import from_us, to_us
from gateway.command_line.answers import print_json
from gateway.command_line.completing import tenants
from gateway.command_line.refusals import remark
from gateway.config import ledger_place
from gateway.terminal import AsJson, ConfigFile, LedgerPlace, read_config, refused
from gateway.terminal_tables import show_tables

invoice = typer.Typer(help="Invoices out of the ledger: draft, issue, credit, list, show.", no_args_is_help=True)

SellerFile = Annotated[
    Path | None, typer.Option("--invoicing", help="Seller, buyers and taxes, YAML; default: `invoicing_file`.")
]
Out = Annotated[Path, typer.Option("--out", "--output", "-o", help="Folder for the HTML and the PDF.")]
Number = Annotated[str, typer.Argument(help="Number of an issued document.")]
PeriodText = Annotated[str, typer.Argument(help="A month, 2026-11, a day, or FROM/TO (dates), in the seller's zone.")]

_HERE = Path()


@dataclass(frozen=True, slots=True)
class _Office:
    seller: Seller
    book: InvoiceBook
    prices: PriceBook
    plans: Plans | None

    @property
    def drafting(self) -> Drafting:
        return Drafting(self.book, self.seller, plans_from(self.plans, self.prices))

    def plan_tenants(self, period: Period) -> Sequence[str]:
        """Who has a plan, and so an invoice without usage too."""
        if self.plans is None:
            return ()
        return sorted(self.plans.tenants_of(from_us(period.start_us), from_us(period.end_us)))


@invoice.command("draft")
def draft_(
    tenant: Annotated[str, typer.Argument(help="Tenant who is billed.", autocompletion=tenants)],
    period: PeriodText,
    out: Out = _HERE,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Draft the invoice of a tenant's period, in the place of an earlier draft of it; one per currency."""
    with _office(ledger, invoicing, config) as office:
        _ready(out, office.seller)
        done = Done(as_json=as_json)
        for one in office.drafting.draft(tenant, _period(period, office)):
            done.say(f"{one.id}: {_words(one.document)}")
            done.add(one.document, one.id, _write(one.document, "", out / one.id, office.seller, done))
        done.end()


@invoice.command("issue")
def issue(
    draft: Annotated[list[str] | None, typer.Argument(help="Drafts to issue, in this order.")] = None,
    every: Annotated[str | None, typer.Option("--all", metavar="PERIOD", help="All drafts of this period.")] = None,
    out: Out = _HERE,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Give drafts their numbers and dates. From then on they do not change. All are looked at before the first."""
    with _office(ledger, invoicing, config) as office:
        chosen = list(draft or ())
        if every is not None:
            period = _period(every, office)
            with office.book.reading() as connection:
                drafts = office.book.drafts(connection, office.seller.party.id)
            chosen += [one.id for one in drafts if _same(one.document.period, period) and one.id not in chosen]
        if not chosen:
            raise InvoiceInvalid("name a draft, or a period that has drafts with --all; `list` shows them")
        _ready(out, office.seller)
        if len(chosen) > 1:
            office.book.must_be_issuable(chosen, office.seller)
        done = Done(as_json=as_json)
        for draft_id in chosen:
            done.issued(office.book.issue(draft_id, office.seller), "", out, office.seller)
        done.end()


@invoice.command("credit")
def credit(
    number: Number,
    reason: Annotated[str, typer.Option(help="Why; it is printed.")],
    amount: Annotated[
        str | None, typer.Option(help="Part to give back, before tax, as 12.50; default: all that is left.")
    ] = None,
    tax: Annotated[str | None, typer.Option(help="Tax of that part, where the invoice has several.")] = None,
    out: Out = _HERE,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Issue a credit note to an invoice. One over all of it makes room to bill the period anew."""

    def note(document: Document, earlier: Sequence[Document]) -> Document:
        if amount is None:
            return credit_all(document, earlier, reason)
        return credit_part(document, earlier, minor_from_text(amount, document.currency), reason, tax)

    with _office(ledger, invoicing, config) as office:
        _ready(out, office.seller)
        done = Done(as_json=as_json)
        done.issued(office.book.credit(number, office.seller, note), f", to {number}", out, office.seller)
        done.end()


@invoice.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", autocompletion=tenants)] = None,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Drafts, issued documents, and closed periods."""
    with _office(ledger, invoicing, config) as office, office.book.reading() as connection:
        seller_id = office.seller.party.id
        if as_json:
            print_json(_listed(office, connection, tenant))
            return
        table = Table("number or draft", "kind", "tenant", "from", "to, exclusive", "issued", "total", "to invoice")
        for one in office.book.issued(connection, seller_id, tenant):
            table.add_row(*map(escape, _row(one.document, one.document.number, one.document.kind.value)))
        for draft in office.book.drafts(connection, seller_id, tenant):
            kind = "draft, period closed" if draft.frozen else "draft"
            table.add_row(*map(escape, _row(draft.document, draft.id, kind)))
        show_tables(table, spare=("to invoice", "issued", "to, exclusive"))
        if not table.row_count:
            remark("there is no document yet; `prefixgate invoice draft` makes one")
        for closed in office.book.closings(connection, seller_id):
            _say(f"closed: {closed.start_text} to {closed.end_text} ({closed.timezone})")


@invoice.command("show")
def show(
    number: Annotated[str, typer.Argument(help="Number of an issued document, or a draft.")],
    out: Out = _HERE,
    as_json: Annotated[bool, typer.Option("--json", help="Print its data as they are kept; no files.")] = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Print a document again from its data: the same pages as when it was issued."""
    with _office(ledger, invoicing, config) as office:
        seller_id = office.seller.party.id
        with office.book.reading() as connection:
            drafts = [one for one in office.book.drafts(connection, seller_id) if one.id == number]
        if drafts:
            document, sha256, name = drafts[0].document, "", drafts[0].id
        else:
            issued = office.book.get(seller_id, number)
            document, sha256, name = issued.document, issued.sha256, _file_name(number)
        if as_json:
            _say(document_json(document))
            return
        _say(f"{number}: {_words(document)}")
        _write(document, sha256, out / name, office.seller, Done(as_json=False))


@invoice.command("close-period")
def close_period(
    period: PeriodText,
    as_json: AsJson = False,
    ledger: LedgerPlace = None,
    invoicing: SellerFile = None,
    config: ConfigFile = None,
) -> None:
    """Close the books of a period: a last draft for every tenant without an invoice. What comes later, late
    settlements and corrections, is in the next period."""
    with _office(ledger, invoicing, config) as office:
        chosen = _period(period, office)
        drafts = office.drafting.close(chosen, office.plan_tenants(chosen), now_us=_now_us())
        if as_json:
            closed = {"from": chosen.start_text, "to": chosen.end_text, "time_zone": chosen.timezone}
            print_json({"closed": closed, "drafts": [_document_row(one.document, one.id) for one in drafts]})
            return
        for one in drafts:
            _say(f"{one.id}: {_words(one.document)}")
        _say(f"closed: {chosen.start_text} to {chosen.end_text} ({chosen.timezone}); drafts: {len(drafts)}")


@contextmanager
def _office(ledger: str | None, invoicing: Path | None, config: Path | None) -> Iterator[_Office]:
    settings = read_config(config, {"invoicing_file": invoicing})
    if settings.invoicing_file is None:
        raise refused(
            "no seller: give --invoicing FILE, or invoicing_file in the config file", code="invoicing_file_missing"
        )
    try:
        seller = read_seller(settings.invoicing_file)
        prices = PriceBook.empty() if settings.prices_file is None else PriceBook.load(settings.prices_file)
        plans = None if settings.plans_file is None else load_plans(settings.plans_file)
        yield _Office(seller, InvoiceBook(ledger or ledger_place(settings), clock=_now), prices, plans)
    except BillingError as error:
        raise refused(error) from None


def _period(text: str, office: _Office) -> Period:
    return period_in(text, office.seller.timezone)


def _same(one: Period, other: Period) -> bool:
    return (one.start_us, one.end_us) == (other.start_us, other.end_us)


def _row(document: Document, name: str, kind: str) -> tuple[str, ...]:
    period = document.period
    total = f"{document.currency} {money_text(document.total_minor, document.currency)}"
    return (
        *(name, kind, document.tenant_id, period.start_text, period.end_text),
        *(document.issued_on, total, document.references),
    )


def _words(document: Document) -> str:
    total = f"{document.currency} {money_text(document.total_minor, document.currency)}"
    return f"{document.tenant_id}, {document.period.start_text} to {document.period.end_text}, {total}"


def _ready(out: Path, seller: Seller) -> None:
    """Find out that documents can be drawn and written while nothing has a number yet."""
    from billing.invoicing.fonts import Fonts  # noqa: PLC0415 - what draws a PDF is not needed to serve

    Fonts(seller.fonts)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(f"cannot write {out}: {error.strerror}", 1) from None
    if not os.access(out, os.W_OK):
        raise refused(f"cannot write {out}: permission denied", 1)


def _write(document: Document, sha256: str, path: Path, seller: Seller, done: "Done") -> list[Path]:
    """Both files, and what a reader should know of them."""
    from billing.invoicing.pdf_page import (  # noqa: PLC0415 - what draws a PDF is not needed to serve
        missing_letters,
        render_pdf,
    )

    page = page_of(document, sha256)
    missing = missing_letters(page, seller.fonts)
    files: tuple[tuple[str, Callable[[], bytes]], ...] = (
        ("html", lambda: render_html(page).encode()),
        ("pdf", lambda: render_pdf(page, seller.fonts)),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        targets = [path.with_name(f"{path.name}.{ending}") for ending, _ in files]
        for target, (_, made) in zip(targets, files, strict=True):
            target.write_bytes(made())
            done.say(f"  {target}")
    except OSError as error:
        raise refused(f"cannot write {path}: {error.strerror}", 1) from None
    if missing:
        _say(f"  no font has {missing} for the PDF: name one that has under `fonts` in the invoicing file", err=True)
    return targets


class Done:
    """What was drafted or issued: said at once for people, and at the end as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._rows: list[dict[str, object]] = []

    def say(self, text: str) -> None:
        """For people."""
        if not self._as_json:
            _say(text)

    def add(self, document: Document, name: str, files: Sequence[Path]) -> None:
        """A document, and where it was written."""
        self._rows.append({**_document_row(document, name), "files": [str(one) for one in files]})

    def issued(self, one: Issued, also: str, out: Path, seller: Seller) -> None:
        """A document that has its number now: written, and said."""
        self.say(f"{one.document.number}: {_words(one.document)}{also}")
        path = out / _file_name(one.document.number)
        self.add(one.document, one.document.number, _write(one.document, one.sha256, path, seller, self))

    def end(self) -> None:
        """Print all of it where JSON is wanted."""
        if self._as_json:
            print_json({"documents": self._rows})


def _listed(office: _Office, connection: Connection, tenant: str | None) -> dict[str, object]:
    seller_id = office.seller.party.id
    drafts = office.book.drafts(connection, seller_id, tenant)
    return {
        "issued": [_document_row(one.document) for one in office.book.issued(connection, seller_id, tenant)],
        "drafts": [{**_document_row(one.document, one.id), "frozen": one.frozen} for one in drafts],
        "closed": [
            {"from": one.start_text, "to": one.end_text, "time_zone": one.timezone}
            for one in office.book.closings(connection, seller_id)
        ],
    }


def _document_row(document: Document, name: str = "") -> dict[str, object]:
    """A document for programs; the total is text in units of its currency, and what it has not is null."""
    period = document.period
    return {
        "id": name or document.number,
        "number": document.number or None,
        "kind": document.kind.value,
        "tenant": document.tenant_id,
        "from": period.start_text,
        "to": period.end_text,
        "issued_on": document.issued_on or None,
        "currency": document.currency,
        "total": money_text(document.total_minor, document.currency),
        "references": document.references or None,
    }


def _file_name(number: str) -> str:
    """A number as a name of a file."""
    name = re.sub(r"[^\w.-]+", "-", number)
    return name if name == number else f"{name}-{digest_of(number)[:8]}"


def _say(text: str, *, err: bool = False) -> None:
    typer.echo(text, err=err)


def _now() -> datetime:
    return datetime.now(UTC)


def _now_us() -> int:
    return to_us(_now())
