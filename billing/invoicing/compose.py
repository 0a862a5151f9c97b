"""A draft, from what a period was and who the parties are. Pure: the same facts make the same document.

entries of the period         --> usage rows, per model and price: input, cached, written, output
entries of earlier periods,
  settled after their invoice --> late rows
charges of a plan             --> plan rows (fee, overage, minimum commitment); of an earlier period, what late rows
                                  change of them
corrections                   --> a row each, with its request
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.counting import counted
from billing.invoicing.amounts import Item, check_sums, rows_and_taxes
from billing.invoicing.documents import Document, DocumentKind, LineKind, Period, UsageEntry
from billing.invoicing.ledger_usage import Correction, PeriodUsage
from billing.invoicing.minor_units import pico_of
from billing.invoicing.seller_file import Seller
from billing.when import from_us

_BUCKETS = ("Input tokens", "Cached input tokens", "Tokens written into the cache", "Output tokens")
_CORRECTION_WORDS = {"correction": "Correction", "credit": "Credit", "adjustment": "Adjustment"}
_RULES = (
    "Each request is priced by the moment at which it came in. Rows are shown rounded half-even; the sum of a tax rate"
    " is rounded once from exact amounts, and its tax once: a rounding row shows the difference.",
    "Answers that were cut are billed for what was computed. Failed, refused and interrupted requests are not billed.",
    "Requests settled and corrections made after this invoice are in a later one.",
)


@dataclass(frozen=True, slots=True)
class LatePeriod:
    """An earlier period of which usage was settled late: what has been billed of it, and what has not."""

    start_us: int
    end_us: int
    late: tuple[UsageEntry, ...]
    billed: tuple[UsageEntry, ...] = ()
    corrections_pico: int = 0
    """On the invoices of the period: they count towards its minimum."""


@dataclass(frozen=True, slots=True)
class PlanCharge:
    """An amount of a plan: a fee, an overage, the rest of a minimum commitment; negative: what is included."""

    description: str
    pico: int
    tokens: int | None = None
    rate_pico: int | None = None
    plan_name: str = ""
    of: LatePeriod | None = None
    """The earlier period, where it is of one."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan makes of a period: its name, its charges, and what the invoice should say of it."""

    name: str = ""
    charges: tuple[PlanCharge, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is billed to a tenant."""

    tenant_id: str
    currency: str
    period: Period
    usage: PeriodUsage
    late: tuple[LatePeriod, ...] = ()
    plan: Planned = Planned()
    corrections: tuple[Correction, ...] = ()
    is_late_lost: bool = False
    """Whether rows that were settled late were archived before they were billed."""


def draft(facts: Facts, seller: Seller) -> Document:
    """An invoice without a number. Raises `InvoiceInvalid`."""
    late = tuple(entry for one in facts.late for entry in one.late)
    items = [
        *(item for entry in facts.usage.entries for item in _items_of(entry, LineKind.USAGE, facts, seller)),
        *(item for entry in late for item in _items_of(entry, LineKind.LATE, facts, seller)),
        *_plan_items(facts, seller),
        *(_correction_item(one, facts, seller) for one in facts.corrections),
    ]
    lines, taxes = rows_and_taxes(items, seller.taxes, facts.currency, seller.tax_rounding)
    billed = (*facts.usage.entries, *late)
    document = Document(
        kind=DocumentKind.INVOICE,
        tenant_id=facts.tenant_id,
        currency=facts.currency,
        seller=seller.party,
        buyer=seller.buyer(facts.tenant_id),
        period=facts.period,
        lines=lines,
        taxes=taxes,
        total_minor=sum(tax.net_minor + tax.tax_minor for tax in taxes),
        cache=facts.usage.cache,
        requests=facts.usage.requests,
        misses=facts.usage.misses,
        prices=tuple(dict.fromkeys(entry.price_id for entry in billed if entry.price_id)),
        payment=seller.payment,
        notes=(*_unknowns(facts), *facts.plan.notes, *seller.notes, *_RULES),
        usage=billed,
        corrections=tuple(one.id for one in facts.corrections),
        tax_rounding=seller.tax_rounding.value,
    )
    check_sums(document)
    return document


def _items_of(entry: UsageEntry, kind: LineKind, facts: Facts, seller: Seller) -> Iterable[Item]:
    tax = seller.tax_of(facts.tenant_id, kind)
    group = entry.model
    if kind is LineKind.LATE:
        group = f"{entry.model}, settled late: {_days(entry, seller)}"
    tokens = (entry.fresh_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens)
    rest = pico_of(entry.charged)
    for words, count, rate in zip(_BUCKETS, tokens, entry.rates, strict=True):
        if count:
            rest -= count * rate
            yield Item(kind, group, words, count * rate, tax, count, rate, entry.price_id)
    if rest:
        yield Item(kind, group, "Discounts and tiers of the price", rest, tax, price_id=entry.price_id)


def _days(of: UsageEntry | LatePeriod, seller: Seller) -> str:
    """An earlier period, by its first and last day."""
    zone = seller.zone
    first, last = from_us(of.start_us).astimezone(zone), from_us(of.end_us - 1).astimezone(zone)
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def _plan_items(facts: Facts, seller: Seller) -> Iterable[Item]:
    tax = seller.tax_of(facts.tenant_id, LineKind.PLAN)
    for one in facts.plan.charges:
        group = facts.plan.name if one.of is None else f"{one.plan_name}, settled late: {_days(one.of, seller)}"
        yield Item(LineKind.PLAN, group, one.description, one.pico, tax, one.tokens, one.rate_pico)


def _correction_item(one: Correction, facts: Facts, seller: Seller) -> Item:
    words = f"{_CORRECTION_WORDS.get(one.kind, one.kind)}: {one.reason}"
    source = f"{one.id}, request {one.request_id}" if one.request_id else one.id
    tax = seller.tax_of(facts.tenant_id, LineKind.CORRECTION)
    return Item(LineKind.CORRECTION, "Corrections", words, one.pico, tax, source=source)


def _unknowns(facts: Facts) -> Iterable[str]:
    """What is not in the amount though it might be: unknown is never shown as zero."""
    unpriced: Mapping[str, int] = {
        entry.model: sum(one.unknown_amounts for one in facts.usage.entries if one.model == entry.model)
        for entry in facts.usage.entries
    }
    for model, count in unpriced.items():
        if count:
            requests = counted(count, "request")
            yield f"Not in the amount, as their price or their tokens are unknown: {requests} of {model}."
    if facts.is_late_lost:
        yield "Not in the amount: usage of an earlier period, settled after its invoice, whose rows are archived."
    if facts.usage.in_flight:
        requests = counted(facts.usage.in_flight, "request")
        yield f"Not in the amount, as they had not ended: {requests}. A later invoice has them."


def dates_of(issued_at: datetime, seller: Seller) -> tuple[str, str, int]:
    """Date of issue, due date, and the year whose numbers are used, by the clocks of the seller."""
    day = issued_at.astimezone(seller.zone).date()
    due = day + timedelta(days=seller.payment_terms_days)
    return day.isoformat(), due.isoformat(), day.year


def issues(document: Document, seller: Seller) -> Sequence[str]:
    """Why a draft must not be issued; empty where it may be."""
    found = []
    if document.tenant_id not in seller.buyers:
        found.append(f"`buyers` has no entry for {document.tenant_id!r}: an invoice needs the name of its buyer")
    if document.seller != seller.party:
        found.append("the seller was changed since the draft was made: draft it again")
    return found
