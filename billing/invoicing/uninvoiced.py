"""Whether all that a month would bill is on invoices, before its rows leave the ledger.

requests of the month that have an amount  -- in the period of a live invoice, or of a closed period's draft? -->  no
what such a period bills                   -- all that the ledger has of it?                                 -->  no
                                                                                              not invoiced <-----'
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, inspect, not_, select

from billing.invoicing.billed import Span, billed_within, joined, overlap, span_of
from billing.invoicing.credit_notes import is_credited_whole
from billing.invoicing.documents import Document, DocumentKind, InvoiceInvalid, document_of
from billing.invoicing.ledger_usage import is_all_billed, not_billed_yet, usage_of
from billing.invoicing.tables import invoice_closings, invoice_drafts, invoices
from billing.reports.reading import one_view
from billing.schema import archives, requests, settlements, usage_quarters
from billing.types import BILLABLE_STATES
from billing.when import parse_period, to_us

_SHOWN = 5


def must_be_invoiced(where: Path | str, month: str, *, is_configured: bool) -> None:
    """Raises `InvoiceInvalid` where a month in UTC has amounts that are on no invoice, and `LedgerUnavailable`.

    Only where invoices are made: `is_configured`, or the database has some. A month whose move was cut off goes on.
    O(requests of the month).
    """
    start, end = parse_period(month)
    span = (to_us(start), to_us(end))
    with one_view(where) as connection:
        is_moving = connection.execute(select(archives.c.month).filter_by(month=month)).first() is not None
        if is_moving or not (is_configured or _has_invoices(connection)):
            return
        found = [f"{tenant_id} ({currency})" for tenant_id, currency in _uninvoiced(connection, span)]
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise InvoiceInvalid(
            f"{month} (UTC) has usage that is on no invoice, of {', '.join(found[:_SHOWN])}{more}: draft or close its"
            " period first (`prefixgate invoice`), or say --not-invoiced to move it all the same"
        )


def _has_invoices(connection: Connection) -> bool:
    if not inspect(connection).has_table(invoices.name):
        return False
    tables = (invoices, invoice_drafts, invoice_closings)
    return any(connection.execute(select(table).limit(1)).first() is not None for table in tables)


def _uninvoiced(connection: Connection, month: Span) -> Iterator[tuple[str, str]]:
    q = usage_quarters.c
    priced = select(q.tenant_id, q.currency).where(
        q.quarter_us >= month[0],
        q.quarter_us < month[1],
        q.state.in_(BILLABLE_STATES),
        q.requests > q.unknown_amounts,
        q.currency != "",
    )
    for tenant_id, currency in connection.execute(priced.distinct().order_by(q.tenant_id, q.currency)).all():
        documents = [one for one in _documents(connection, tenant_id) if one.currency == currency]
        spans = joined(span_of(one.period) for one in documents if overlap(span_of(one.period), month))
        late = any(not _is_billed(connection, tenant_id, currency, span, documents) for span in spans)
        if late or _has_others(connection, tenant_id, currency, month, spans):
            yield tenant_id, currency


def _documents(connection: Connection, tenant_id: str) -> list[Document]:
    """Invoices of a tenant that are not credited whole, and drafts of closed periods, of all sellers."""
    if not inspect(connection).has_table(invoices.name):
        return []
    texts = connection.scalars(select(invoices.c.document).filter_by(tenant_id=tenant_id)).all()
    issued = [document_of(text) for text in texts]
    live = [
        one
        for one in issued
        if one.kind is DocumentKind.INVOICE
        and not is_credited_whole(
            one, [note for note in issued if (note.references, note.seller.id) == (one.number, one.seller.id)]
        )
    ]
    frozen = connection.scalars(select(invoice_drafts.c.document).filter_by(tenant_id=tenant_id, frozen=True)).all()
    return [*live, *map(document_of, frozen)]


def _is_billed(
    connection: Connection, tenant_id: str, currency: str, span: Span, documents: Sequence[Document]
) -> bool:
    billed = billed_within(documents, span)
    return is_all_billed(connection, tenant_id, currency, span, billed) or not not_billed_yet(
        usage_of(connection, tenant_id, currency, *span).entries, billed
    )


def _has_others(connection: Connection, tenant_id: str, currency: str, month: Span, spans: Sequence[Span]) -> bool:
    """Whether a request of the month that has an amount is in none of the spans."""
    r, s = requests.c, settlements.c
    chosen = select(r.request_id).join(settlements, s.request_id == r.request_id)
    of_month = (r.tenant_id == tenant_id, r.opened_at_us >= month[0], r.opened_at_us < month[1])
    priced = (s.currency == currency, s.state.in_(BILLABLE_STATES), s.charged_units.is_not(None))
    outside = [not_((r.opened_at_us >= start_us) & (r.opened_at_us < end_us)) for start_us, end_us in spans]
    return connection.execute(chosen.where(*of_month, *priced, *outside).limit(1)).first() is not None
