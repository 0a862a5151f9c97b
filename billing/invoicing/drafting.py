"""Drafts out of the ledger, and the end of a period.

What a closed or billed period still gets, late settlements and corrections, is the difference between the ledger now
and what its invoices have billed: so it is billed once, whatever ran at the same time.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from sqlalchemy import Connection

from billing.invoicing.billed import (
    Span,
    billed_within,
    counted,
    joined,
    late_period,
    overlap,
    replaces,
    span_of,
)
from billing.invoicing.book import Draft, InvoiceBook
from billing.invoicing.compose import Facts, LatePeriod, Planned, draft
from billing.invoicing.documents import Document, DocumentKind, InvoiceInvalid, Period, UsageEntry
from billing.invoicing.ledger_usage import (
    PeriodUsage,
    corrections_of,
    currencies_of,
    is_all_billed,
    not_billed_yet,
    tenants_of,
    usage_of,
)
from billing.invoicing.seller_file import Seller
from billing.maintenance import archived_spans

PlanOf = Callable[[Facts], Planned]
"""A tenant's plan, and what it adds to the facts of a period or takes off."""


def no_plan(_facts: Facts) -> Planned:
    """Nobody has a plan."""
    return Planned()


class Drafting:
    """Makes drafts of one seller. The ledger is read first, without a lock; writing is one short transaction."""

    def __init__(self, book: InvoiceBook, seller: Seller, plan_of: PlanOf = no_plan) -> None:
        self._book = book
        self._seller = seller
        self._plan_of = plan_of

    def draft(self, tenant_id: str, period: Period) -> Sequence[Draft]:
        """A draft per currency, in the place of earlier ones. Raises `InvoiceInvalid` where it is billed, or closed."""
        with self._book.reading() as connection:
            is_closed = any(_overlap(one, period) for one in self._closed(connection))
            make = self._credited if is_closed else self._drafted
            stands = self._stands(connection, tenant_id)
            documents = make(connection, tenant_id, period)
        with self._book.writing() as connection:
            self._must_stand(connection, {tenant_id: stands})
            for closed in self._closed(connection):
                if _overlap(closed, period) and not (is_closed and documents):
                    raise InvoiceInvalid(
                        f"{closed.start_text} to {closed.end_text} is closed: its drafts stand (`prefixgate invoice"
                        f" list`), and what comes late is in the next period"
                    )
            return [self._book.save_draft(connection, one, frozen=is_closed) for one in documents]

    def preview(self, tenant_id: str, period: Period, deadline_s: float | None = None) -> Sequence[Document]:
        """What bills a period: the invoices that are issued, the drafts of a closed one, and what `draft` would make of
        the rest, where there is any. Nothing is kept. Raises `InvoiceInvalid` where its rows were archived, and
        `ReportTooSlow` where reading takes longer than `deadline_s`."""
        with self._book.reading(deadline_s) as connection:
            live = self._book.live(connection, self._seller.party.id, tenant_id)
            frozen = self._frozen(connection, tenant_id)
            known = [one for one in (*live, *frozen) if _overlap(one.period, period)]
            is_closed = any(_overlap(one, period) for one in self._closed(connection))
            rest = [] if is_closed else self._unbilled(connection, tenant_id, period)
            return [*known, *(one for one in rest if one.lines)]

    def close(self, period: Period, plan_tenants: Sequence[str] = (), *, now_us: int) -> Sequence[Draft]:
        """Close the books of a period: a last draft for each tenant that has none issued, frozen from now on.

        The ledger is read before anything is locked; what is settled meanwhile comes late.
        """
        if period.end_us > now_us:
            raise InvoiceInvalid(f"the period ends at {period.end_text} ({period.timezone}); it can be closed then")
        with self._book.reading() as connection:
            earlier = [one for one in self._closed(connection) if one.end_us <= period.start_us]
            asked = {name for one in (period, *earlier) for name in tenants_of(connection, one.start_us, one.end_us)}
            documents = [
                one
                for tenant_id in sorted({*asked, *plan_tenants})
                for one in self._unbilled(connection, tenant_id, period)
                if one.lines
            ]
            stands = {one.tenant_id: self._stands(connection, one.tenant_id) for one in documents}
        with self._book.writing() as connection:
            self._must_stand(connection, stands)
            self._book.close(connection, self._seller.party.id, period)
            return [self._book.save_draft(connection, one, frozen=True) for one in documents]

    def _drafted(self, connection: Connection, tenant_id: str, period: Period) -> Sequence[Document]:
        """A document per currency that is not billed; without any, one over nothing."""
        found = self._unbilled(connection, tenant_id, period)
        with_lines = [one for one in found if one.lines]
        numbers = sorted(self._billed_in(connection, tenant_id, period).values())
        if numbers and not with_lines:
            raise InvoiceInvalid(f"{', '.join(numbers)} bills {tenant_id} for a part of that period already")
        if not with_lines and tenant_id not in self._seller.buyers:
            raise InvoiceInvalid(f"{tenant_id!r} used nothing in that period, and is not among `buyers`")
        return with_lines or found[:1]

    def _unbilled(self, connection: Connection, tenant_id: str, period: Period) -> Sequence[Document]:
        """A document for each currency in which no invoice has a part of the period; the seller's currency first."""
        billed = self._billed(connection, tenant_id, period)
        currencies = {self._seller.currency}
        for start_us, end_us in (span_of(period), *self._earlier(connection, tenant_id, period)):
            currencies |= set(currencies_of(connection, tenant_id, start_us, end_us))
        currencies -= set(self._billed_in(connection, tenant_id, period))
        in_order = sorted(currencies, key=lambda one: (one != self._seller.currency, one))
        return [self._document(connection, tenant_id, one, period, billed) for one in in_order]

    def _document(
        self, connection: Connection, tenant_id: str, currency: str, period: Period, billed: Sequence[Document]
    ) -> Document:
        own = [one for one in billed if one.currency == currency]
        late: list[LatePeriod] = []
        is_late_lost = False
        archived = archived_spans(connection)
        earlier = self._earlier(connection, tenant_id, period, currency)
        for span in earlier:
            before = billed_within(own, span)
            if not is_all_billed(connection, tenant_id, currency, span, before):
                is_late_lost |= self._has_lost(connection, tenant_id, currency, span, archived)
                new = not_billed_yet(usage_of(connection, tenant_id, currency, *span).entries, before)
                late += [late_period(span, new, own)] if new else []
        done = {one for document in own for one in document.corrections}
        since = min([period.start_us, *(start_us for start_us, _ in earlier)])
        usage = usage_of(connection, tenant_id, currency, *span_of(period))
        taken = billed_within(own, span_of(period))
        if self._has_lost(connection, tenant_id, currency, span_of(period), archived):
            self._must_be_there(connection, tenant_id, currency, period, taken)
        return self._planned(
            Facts(
                tenant_id=tenant_id,
                currency=currency,
                period=period,
                usage=replace(usage, entries=not_billed_yet(usage.entries, taken)),
                late=tuple(late),
                is_late_lost=is_late_lost,
                corrections=tuple(
                    one
                    for one in corrections_of(connection, tenant_id, currency, since, period.end_us)
                    if one.id not in done
                ),
            )
        )

    @staticmethod
    def _has_lost(connection: Connection, tenant_id: str, currency: str, span: Span, archived: Sequence[Span]) -> bool:
        """Whether requests of a span were in a month that was archived. Months are UTC's, so one may end in a span."""
        shared = [(max(span[0], one[0]), min(span[1], one[1])) for one in archived if overlap(span, one)]
        return not all(is_all_billed(connection, tenant_id, currency, one, ()) for one in shared)

    def _must_be_there(
        self, connection: Connection, tenant_id: str, currency: str, period: Period, taken: Sequence[UsageEntry]
    ) -> None:
        """Raises `InvoiceInvalid` where rows to bill were moved out of the ledger: they would be billed as nothing."""
        if not is_all_billed(connection, tenant_id, currency, span_of(period), taken):
            raise InvoiceInvalid(
                f"the rows of {tenant_id} from {period.start_text} to {period.end_text} were archived before they were"
                " invoiced: bring them back with `prefixgate ledger restore`, draft, and archive them again"
            )

    def _planned(self, facts: Facts) -> Document:
        return draft(replace(facts, plan=self._plan_of(facts)), self._seller)

    def _billed(self, connection: Connection, tenant_id: str, period: Period) -> Sequence[Document]:
        """What counts as billed already where a period is drafted."""
        issued = self._book.issued(connection, self._seller.party.id, tenant_id)
        return counted([one.document for one in issued], self._frozen(connection, tenant_id), period)

    def _frozen(self, connection: Connection, tenant_id: str) -> Sequence[Document]:
        """Drafts of closed periods: what they bill will be billed."""
        drafts = self._book.drafts(connection, self._seller.party.id, tenant_id)
        return [one.document for one in drafts if one.frozen]

    def _stands(self, connection: Connection, tenant_id: str) -> Set[str]:
        return self._book.names(connection, self._seller.party.id, tenant_id)

    def _must_stand(self, connection: Connection, before: Mapping[str, Set[str]]) -> None:
        """Raises `InvoiceInvalid` where something was issued or frozen since the ledger was read."""
        for tenant_id, names in before.items():
            if self._stands(connection, tenant_id) != names:
                raise InvoiceInvalid(f"{tenant_id} was invoiced or credited while this was drafted: try again")

    def _billed_in(self, connection: Connection, tenant_id: str, period: Period) -> Mapping[str, str]:
        """Currencies in which an invoice has a part of the period, with its number."""
        live = self._book.live(connection, self._seller.party.id, tenant_id)
        return {one.currency: one.number for one in live if _overlap(one.period, period)}

    def _closed(self, connection: Connection) -> Sequence[Period]:
        return self._book.closings(connection, self._seller.party.id)

    def _earlier(
        self, connection: Connection, tenant_id: str, period: Period, currency: str | None = None
    ) -> Sequence[Span]:
        """Spans before a period that are billed, in a currency or any, or closed: what comes late of them is in it."""
        live = self._book.live(connection, self._seller.party.id, tenant_id)
        billed = [one for one in (*live, *self._frozen(connection, tenant_id)) if currency in (None, one.currency)]
        done = [*(one.period for one in billed), *self._closed(connection)]
        return joined(span_of(one) for one in done if one.end_us <= period.start_us)

    def _credited(self, connection: Connection, tenant_id: str, period: Period) -> Sequence[Document]:
        """Documents of a closed period whose invoice was credited whole: billed anew, as they were."""
        seller_id = self._seller.party.id
        live = {one.number for one in self._book.live(connection, seller_id, tenant_id)}
        billed = self._billed_in(connection, tenant_id, period)
        frozen = [one for one in self._frozen(connection, tenant_id) if one.period != period]
        last: dict[str, Document] = {}
        for issued in self._book.issued(connection, seller_id, tenant_id):
            one = issued.document
            is_credited = one.kind is DocumentKind.INVOICE and one.number not in live
            if is_credited and one.period == period and not any(replaces(other, one) for other in frozen):
                last[one.currency] = one
        return [self._again(connection, one) for currency, one in last.items() if currency not in billed]

    def _again(self, connection: Connection, old: Document) -> Document:
        """The same usage, corrections and plan, with the parties and taxes of today."""
        period = old.period
        own = span_of(period)
        chosen = set(old.corrections)
        issued = [one.document for one in self._book.issued(connection, self._seller.party.id, old.tenant_id)]
        before = issued[: [one.number for one in issued].index(old.number)]
        billed = [one for one in self._billed(connection, old.tenant_id, period) if one in before]
        billed = [one for one in billed if one.currency == old.currency]
        spans = sorted({span_of(entry) for entry in old.usage} - {own})
        facts = Facts(
            tenant_id=old.tenant_id,
            currency=old.currency,
            period=period,
            usage=PeriodUsage(
                tuple(entry for entry in old.usage if span_of(entry) == own),
                old.cache,
                old.requests,
                old.misses,
            ),
            late=tuple(
                late_period(span, [entry for entry in old.usage if span_of(entry) == span], billed) for span in spans
            ),
            corrections=tuple(
                one
                for one in corrections_of(connection, old.tenant_id, old.currency, 0, period.end_us)
                if one.id in chosen
            ),
        )
        return self._planned(facts)


def _overlap(one: Period, other: Period) -> bool:
    return overlap(span_of(one), span_of(other))
