"""An issued document as rows of FOCUS whose costs add up to what is to be paid.

    requests of its period      hour by hour, as without an invoice       Usage
    less those settled later    what the invoice does not bill of them    Adjustment
    late usage                  per model, price and kind of token        Usage
    plan and volume tiers       the fee; the others                       Purchase; Adjustment
    corrections that it bills                                             as their kind
    taxes                       per rate                                  Tax
    rounding                    to whole cents, all that is left          Adjustment

    a credit note               its rows, taxes and rounding              Credit, Tax, Adjustment

Sum of `BilledCost` = total of the document, to the last digit.
"""

from collections.abc import Iterator
from zoneinfo import ZoneInfo

from sqlalchemy import Connection, inspect, select

from billing.errors import ReportInvalid
from billing.invoicing.documents import Document, DocumentKind, DocumentLine, LineKind, UsageEntry, document_of
from billing.invoicing.minor_units import minor_digits, pico_of
from billing.invoicing.plan_charges import FEE
from billing.invoicing.tables import invoices
from billing.money import PICO, joined_pico
from billing.reports.focus import Unknown, usage_lines
from billing.reports.focus_lines import (
    FocusLine,
    Part,
    Seller,
    amount_line,
    charge_line,
    correction_line,
    difference_line,
)
from billing.reports.query import About, Query
from billing.reports.tokens_by_kind import Kind
from billing.reports.zones import month_around
from billing.schema import corrections
from billing.when import from_us


def invoice_named(connection: Connection, number: str) -> Document | None:
    """The issued document of a number; None where this database has none. Raises `ReportInvalid` where it has two."""
    if not inspect(connection).has_table(invoices.name):
        return None
    found = connection.scalars(select(invoices.c.document).filter_by(number=number)).all()
    if len(found) > 1:
        raise ReportInvalid(number, "several sellers have an invoice of this number")
    return document_of(found[0]) if found else None


def query_of(document: Document) -> Query:
    """What a document is about: its tenant and its period."""
    zone = ZoneInfo(document.period.timezone)
    start, end = from_us(document.period.start_us), from_us(document.period.end_us)
    return Query(start, end, zone=zone, about=About(document.tenant_id))


def invoice_lines(connection: Connection, document: Document, seller: Seller, unknown: Unknown) -> Iterator[FocusLine]:
    """The rows of a document, what is left of the total last. Lazy.

    Raises `PeriodInvalid` where the rows of an invoice's period are archived.
    """
    left = document.total_minor * PICO // 10 ** minor_digits(document.currency)
    for line in _lines(connection, document, seller, unknown):
        left -= pico_of(line["BilledCost"])
        yield line
    if left:
        part = _part(document, document.period.start_us, document.period.end_us)
        yield amount_line(part, left, seller, "Adjustment", "Rounding to what can be paid") | _billed_in(document)


def _lines(connection: Connection, document: Document, seller: Seller, unknown: Unknown) -> Iterator[FocusLine]:
    whole = _part(document, document.period.start_us, document.period.end_us)
    billed_in = _billed_in(document)
    if document.kind is DocumentKind.CREDIT_NOTE:
        for line in document.lines:
            if line.kind is not LineKind.ROUNDING:
                yield amount_line(whole, pico_of(line.exact), seller, "Credit", _words(line)) | billed_in
    else:
        yield from _usage(connection, document, seller, unknown)
        for entry in document.usage:
            if (entry.start_us, entry.end_us) != (document.period.start_us, document.period.end_us):
                yield from (line | billed_in for line in _late(document, entry, seller))
        for line in document.lines:
            if line.kind is LineKind.PLAN:
                category = "Purchase" if line.description == FEE else "Adjustment"
                yield amount_line(whole, pico_of(line.exact), seller, category, _words(line)) | billed_in
        yield from (line | billed_in for line in _corrections(connection, document, seller))
    for tax in document.taxes:
        pico = tax.tax_minor * PICO // 10 ** minor_digits(document.currency)
        if pico:
            yield amount_line(whole, pico, seller, "Tax", f"{tax.label}, {tax.rate_percent} %") | billed_in


def _usage(connection: Connection, document: Document, seller: Seller, unknown: Unknown) -> Iterator[FocusLine]:
    """The requests of the period, less what of them is on another invoice."""
    pico = sum(pico_of(line.exact) for line in document.lines if line.kind is LineKind.USAGE)
    for line in usage_lines(connection, query_of(document), seller, unknown, document.currency):
        pico -= pico_of(line["BilledCost"])
        yield line
    if pico:
        part = _part(document, document.period.start_us, document.period.end_us)
        words = "Usage of the period that is on another invoice, as it was settled later"
        yield amount_line(part, pico, seller, "Adjustment", words) | _billed_in(document)


def _late(document: Document, entry: UsageEntry, seller: Seller) -> Iterator[dict[str, str]]:
    part = _part(document, entry.start_us, entry.end_us, entry)
    rest = pico_of(entry.charged)
    tokens = (entry.fresh_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens)
    for kind, count, rate in zip(Kind, tokens, entry.rates, strict=True):
        if count:
            rest -= count * rate
            yield charge_line(part, kind, count, rate, count * rate, seller)
    if rest:
        yield difference_line(part, rest, seller)


def _corrections(connection: Connection, document: Document, seller: Seller) -> Iterator[dict[str, str]]:
    c = corrections.c
    asked = select(corrections).where(c.correction_id.in_(document.corrections)).order_by(c.made_at_us, c.correction_id)
    for row in connection.execute(asked).mappings():
        pico = joined_pico(row["charged_units"], row["charged_pico"])
        yield correction_line(row, pico, seller, ZoneInfo(document.period.timezone))


def _part(document: Document, start_us: int, end_us: int, entry: UsageEntry | None = None) -> Part:
    row = {
        **dict.fromkeys(("key_id", "tags", "state", "verdict", "cached_source", "prefill_s", "decode_s")),
        "tenant_id": document.tenant_id,
        "currency": document.currency,
        "model": "" if entry is None else entry.model,
        "price_id": None if entry is None else entry.price_id,
        "input_pico": 0 if entry is None else entry.rates[0],
    }
    return Part(row, ZoneInfo(document.period.timezone), start_us, end_us)


def _billed_in(document: Document) -> dict[str, str]:
    """The month in which the period of the document ends, also for what it bills of an earlier one."""
    first, after = month_around(document.period.end_us - 1, ZoneInfo(document.period.timezone))
    return {"BillingPeriodStart": f"{first:%Y-%m-%dT%H:%M:%SZ}", "BillingPeriodEnd": f"{after:%Y-%m-%dT%H:%M:%SZ}"}


def _words(line: DocumentLine) -> str:
    return f"{line.group}: {line.description}" if line.group else line.description
