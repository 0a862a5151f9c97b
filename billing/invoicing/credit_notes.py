"""Credit notes: an issued invoice is never changed, it is credited, whole or in part.

Credits of one invoice are added up per tax rate before their tax is rounded, so that together they never give back more
tax than was charged, and exactly all of it when all is credited.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from billing.invoicing.amounts import tax_of
from billing.invoicing.documents import Document, DocumentKind, DocumentLine, InvoiceInvalid, LineKind, TaxLine
from billing.invoicing.minor_units import Rounding, minor_digits, money_text


def credit_all(invoice: Document, earlier: Sequence[Document], reason: str) -> Document:
    """A note over all that is left of an invoice, over 0 of one that was 0. Raises `InvoiceInvalid` where all of it
    is credited."""
    _must_be_invoice(invoice)
    lines, taxes = [], []
    for tax in invoice.taxes:
        net, back = _left(tax, earlier)
        if not earlier:
            lines += [_reversed(line) for line in invoice.lines if line.tax == tax.id]
        elif net:
            lines.append(_credit_line(invoice, tax, -net, reason))
        if net or back or not earlier:
            taxes.append(replace(tax, net_minor=-net, tax_minor=-back))
    if earlier and not taxes:
        raise InvoiceInvalid(f"nothing is left of {invoice.number}: it is credited already")
    return _note(invoice, lines, taxes, reason)


def credit_part(
    invoice: Document, earlier: Sequence[Document], net_minor: int, reason: str, tax_id: str | None = None
) -> Document:
    """A note over a net amount (before tax) at one tax rate. Raises `InvoiceInvalid` where less than that is left."""
    _must_be_invoice(invoice)
    named = [tax for tax in invoice.taxes if tax_id in (None, tax.id)]
    if len(named) != 1:
        raise InvoiceInvalid(f"name one tax of {invoice.number}: {', '.join(tax.id for tax in invoice.taxes)}")
    tax = named[0]
    net, back = _left(tax, earlier)
    if not 0 < net_minor <= net:
        left = money_text(net, invoice.currency)
        raise InvoiceInvalid(
            f"a credit must be above 0 and at most what is left of {invoice.number}, {left} before tax"
        )
    still = tax_of(net - net_minor, Decimal(tax.rate_percent), Rounding(invoice.tax_rounding)) if net > net_minor else 0
    part = replace(tax, net_minor=-net_minor, tax_minor=-max(0, back - still))
    return _note(invoice, [_credit_line(invoice, tax, -net_minor, reason)], [part], reason)


def is_credited_whole(invoice: Document, notes: Sequence[Document]) -> bool:
    """Whether the notes give back all of an invoice. One over 0 is when it has a note at all."""
    return bool(notes) and invoice.total_minor + sum(note.total_minor for note in notes) == 0


def _left(tax: TaxLine, earlier: Sequence[Document]) -> tuple[int, int]:
    """Net amount and tax of a rate that no note has given back."""
    same = [one for note in earlier for one in note.taxes if one.id == tax.id]
    return tax.net_minor + sum(one.net_minor for one in same), tax.tax_minor + sum(one.tax_minor for one in same)


def _must_be_invoice(document: Document) -> None:
    if document.kind is not DocumentKind.INVOICE:
        raise InvoiceInvalid(f"{document.number} is a credit note; only an invoice can be credited")


def _reversed(line: DocumentLine) -> DocumentLine:
    exact = line.exact.removeprefix("-") if line.exact.startswith("-") or line.exact == "0" else f"-{line.exact}"
    return replace(line, amount_minor=-line.amount_minor, exact=exact)


def _credit_line(invoice: Document, tax: TaxLine, net_minor: int, reason: str) -> DocumentLine:
    exact = money_text(net_minor, invoice.currency).replace(",", "")
    return DocumentLine(LineKind.CREDIT, "", reason, exact, net_minor, tax.id, source=invoice.number)


def _note(invoice: Document, lines: Sequence[DocumentLine], taxes: Sequence[TaxLine], reason: str) -> Document:
    return Document(
        kind=DocumentKind.CREDIT_NOTE,
        tenant_id=invoice.tenant_id,
        currency=invoice.currency,
        seller=invoice.seller,
        buyer=invoice.buyer,
        period=invoice.period,
        lines=tuple(lines),
        taxes=tuple(taxes),
        total_minor=sum(tax.net_minor + tax.tax_minor for tax in taxes),
        references=invoice.number,
        notes=(f"Credit note to invoice {invoice.number} of {invoice.issued_on}. Reason: {reason}",),
        tax_rounding=invoice.tax_rounding,
    )


def minor_from_text(text: str, currency: str) -> int:
    """`12.50` as cents. Raises `InvoiceInvalid` for what is no amount of that currency."""
    digits = minor_digits(currency)
    whole, point, rest = text.strip().partition(".")
    if not whole.isdecimal() or not whole.isascii() or (point and not (rest.isdecimal() and rest.isascii())):
        raise InvoiceInvalid(f"{text!r} is no amount, as 12.50")
    if len(rest) > digits:
        raise InvoiceInvalid(f"{text!r} is finer than {currency} has digits ({digits})")
    return int(whole + rest.ljust(digits, "0"))
