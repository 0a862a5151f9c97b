"""From exact items to rows that add up: pure arithmetic.

    items of a tax rate   -- each rounded half-even --------------------> rows
                          -- summed exactly, rounded half-even once ----> net amount
                             net - sum of the rows ---------------------> a rounding row, where it is not 0
    net x rate            -- rounded once, by the seller's rule --------> tax
    nets + taxes          ----------------------------------------------> total

So rows + taxes = total to the last unit, and a net amount is within half a unit of what the ledger says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.invoicing.documents import Document, DocumentLine, InvoiceInvalid, LineKind, TaxLine
from billing.invoicing.minor_units import Rounding, exact_text, minor_of, rounded

TOKENS = "tokens"
PRICED_TOKENS = 10**6


@dataclass(frozen=True, slots=True)
class TaxRule:
    """A tax of the seller: `rate_percent` exact, `note` for a reason that the law wants told."""

    id: str
    label: str
    rate_percent: Decimal
    note: str = ""


@dataclass(frozen=True, slots=True)
class Item:
    """What is billed, before any rounding. A unit price is in pico-units a token."""

    kind: LineKind
    group: str
    description: str
    pico: int
    tax: str
    tokens: int | None = None
    rate_pico: int | None = None
    price_id: str = ""
    source: str = ""


def rows_and_taxes(
    items: Sequence[Item], rules: Mapping[str, TaxRule], currency: str, rounding: Rounding
) -> tuple[tuple[DocumentLine, ...], tuple[TaxLine, ...]]:
    """The rows in the order of the items, roundings last, and the tax of each rate that occurs."""
    rows = [_row(item, currency) for item in items]
    taxes = []
    for name in dict.fromkeys(item.tax for item in items):
        if name not in rules:
            raise InvoiceInvalid(f"the tax {name!r} is not among `taxes`: {', '.join(rules)}")
        exact = sum(item.pico for item in items if item.tax == name)
        net = minor_of(exact, currency)
        rest = net - sum(row.amount_minor for row in rows if row.tax == name)
        if rest:
            rows.append(DocumentLine(LineKind.ROUNDING, "", "Rounding", "0", rest, name))
        rule = rules[name]
        taxes.append(
            TaxLine(
                name, rule.label, f"{rule.rate_percent:f}", net, tax_of(net, rule.rate_percent, rounding), rule.note
            )
        )
    return tuple(rows), tuple(taxes)


def tax_of(net_minor: int, rate_percent: Decimal, rounding: Rounding) -> int:
    """Tax of a net amount, rounded once."""
    return rounded(net_minor * Fraction(rate_percent) / 100, rounding)


def check_sums(document: Document) -> None:
    """Rows + taxes = total, per rate and in all. Raises `InvoiceInvalid`: nothing that fails it may be issued."""
    known = {tax.id for tax in document.taxes}
    for tax in document.taxes:
        rows = sum(row.amount_minor for row in document.lines if row.tax == tax.id)
        if rows != tax.net_minor:
            raise InvoiceInvalid(f"rows of the tax {tax.id!r} are {rows}, their net amount is {tax.net_minor}")
    if any(row.tax not in known for row in document.lines):
        raise InvoiceInvalid("a row has no tax")
    if document.net_minor + document.tax_minor != document.total_minor:
        raise InvoiceInvalid("net amounts and taxes are not the total")


def _row(item: Item, currency: str) -> DocumentLine:
    has_price = item.rate_pico is not None
    return DocumentLine(
        kind=item.kind,
        group=item.group,
        description=item.description,
        exact=exact_text(item.pico),
        amount_minor=minor_of(item.pico, currency),
        tax=item.tax,
        quantity=item.tokens,
        unit="" if item.tokens is None else TOKENS,
        unit_price=exact_text((item.rate_pico or 0) * PRICED_TOKENS) if has_price else "",
        price_id=item.price_id,
        source=item.source,
    )
