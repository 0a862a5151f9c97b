"""What an invoice is: plain data from which its pages are drawn, and nothing else is.

    UsageEntry, PlanCharge, Correction          (what is billed)
       `--> DocumentLine --> TaxLine --> total  (amounts)
    Document = parties, period, lines, taxes, cache, notes, and the entries it bills
       `--> canonical JSON --> SHA-256          (what is kept when it is issued)

Exact amounts are decimal texts, as no JSON number holds them; `_minor` are whole cents, yen, fils. A sum of `_minor`
over the lines of a tax rate is its net amount, net amounts and taxes are the total: nothing is added in passing.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from billing.errors import BillingError

LAYOUT: Final = 1
"""Of the data below. A later program draws an older document as it was drawn."""


class InvoiceInvalid(BillingError):
    """An invoice cannot be made, issued or found; the text says why and what would help."""


class DocumentKind(StrEnum):
    """What a document is."""

    INVOICE = "invoice"
    CREDIT_NOTE = "credit_note"


class LineKind(StrEnum):
    """Where the amount of a line comes from."""

    USAGE = "usage"
    LATE = "late"
    """Usage of an earlier period, settled after that period was billed."""
    PLAN = "plan"
    CORRECTION = "correction"
    CREDIT = "credit"
    """Of a credit note."""
    ROUNDING = "rounding"
    """What the rounded lines of a tax rate differ by from their exact sum, rounded once."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and what stands beside it, as a registration number."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Party:
    """Seller or buyer."""

    id: str
    name: str
    address: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Period:
    """[from, to) in the time zone it was asked in; the instants are what counts."""

    start_us: int
    end_us: int
    timezone: str
    start_text: str
    end_text: str


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """A row. Without a quantity it is an amount alone. `tax` is the id of a tax line; `source` is where to look."""

    kind: LineKind
    group: str
    description: str
    exact: str
    amount_minor: int
    tax: str
    quantity: int | None = None
    unit: str = ""
    unit_price: str = ""
    price_id: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class TaxLine:
    """Tax of one rate, rounded once from the net amount of all lines of that rate."""

    id: str
    label: str
    rate_percent: str
    net_minor: int
    tax_minor: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class CacheLine:
    """What caching did for a model, over the period; amounts are exact texts of the billed requests."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    reported_prompt_tokens: int
    reported_cached_tokens: int
    verified_tokens: int
    disputed_tokens: int
    full: str
    charged: str
    saved: str


@dataclass(frozen=True, slots=True)
class RequestCount:
    """How many requests ended so, and whether they are in the amount."""

    state: str
    requests: int
    billed: bool


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """Requests of one model, price and set of rates, in a period of their own: what an invoice has billed of it.

    Tokens are disjoint and of billable requests. `other` is what the amount charged has beyond tokens times rates.
    `unknown_amounts` are requests that are billable and whose amount nobody knows.
    """

    start_us: int
    end_us: int
    model: str
    price_id: str
    rates: tuple[int, int, int, int]
    """Pico-units a token: input, cached, written, output."""
    requests: int
    fresh_tokens: int
    cached_tokens: int
    written_tokens: int
    output_tokens: int
    full: str
    charged: str
    unknown_amounts: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        """Entries of one key differ in their sums alone."""
        return (self.start_us, self.end_us, self.model, self.price_id, self.rates)


@dataclass(frozen=True, slots=True)
class Document:
    """An invoice or a credit note. `number` and the dates are empty in a draft."""

    kind: DocumentKind
    tenant_id: str
    currency: str
    seller: Party
    buyer: Party
    period: Period
    lines: tuple[DocumentLine, ...]
    taxes: tuple[TaxLine, ...]
    total_minor: int
    number: str = ""
    issued_on: str = ""
    due_on: str = ""
    references: str = ""
    """The number of the invoice that a credit note is of."""
    cache: tuple[CacheLine, ...] = ()
    requests: tuple[RequestCount, ...] = ()
    misses: tuple[RequestCount, ...] = ()
    """Prompts that missed the cache, by reason."""
    prices: tuple[str, ...] = ()
    payment: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usage: tuple[UsageEntry, ...] = ()
    corrections: tuple[str, ...] = ()
    """Ids of the corrections that are billed."""
    tax_rounding: str = "half_even"
    layout: int = LAYOUT

    @property
    def net_minor(self) -> int:
        """Before tax."""
        return sum(tax.net_minor for tax in self.taxes)

    @property
    def tax_minor(self) -> int:
        """All tax."""
        return sum(tax.tax_minor for tax in self.taxes)


_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder(Document)


def document_json(document: Document) -> str:
    """The one text of a document: keys sorted, no spaces."""
    return _ENCODER.encode(document).decode()


def document_of(text: str) -> Document:
    """The document of `document_json`. Raises `InvoiceInvalid`."""
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise InvoiceInvalid(f"a stored invoice is not what this program writes: {error}") from error


def digest_of(text: str) -> str:
    """SHA-256 of the text of a document, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
