"""A seller, a ledger and a book of invoices for tests; each argument left out is ordinary."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from billing import Ledger, OpenedRequest, PriceBook, Settlement, open_ledger
from billing.invoicing import Document, Drafting, InvoiceBook, Issued, Party, Period, Seller, period_in
from billing.invoicing.amounts import TaxRule
from billing.invoicing.documents import Fact
from billing.types import Correction

AFTER = datetime(2026, 12, 2, tzinfo=UTC)
NOVEMBER = period_in("2026-11", "UTC")
DECEMBER = period_in("2026-12", "UTC")
TAXES: Mapping[str, TaxRule] = {
    "standard": TaxRule("standard", "VAT", Decimal(20)),
    "reduced": TaxRule("reduced", "VAT, reduced", Decimal("5.5")),
}
SELLER = Seller(
    party=Party(
        "seller", "株式会社プレフィックス", ("東京都千代田区",), (Fact("Registration number", "T0123456789012"),)
    ),
    currency="USD",
    taxes=TAXES,
    default_tax="standard",
    buyers={"acme": Party("acme", "髙島屋𠮷野家株式会社"), "zeta": Party("zeta", "Zeta Ltd")},
)

Written = OpenedRequest | Settlement | Correction


async def put(ledger: Ledger, *records: Written) -> None:
    """Records, one after another, durable at the end."""
    for record in records:
        match record:
            case OpenedRequest():
                await ledger.open(record)
            case Settlement():
                await ledger.settle(record)
            case _:
                await ledger.correct(record)


def write(path: Path | str, prices: PriceBook, *records: Written) -> None:
    """Records through a ledger of their own."""

    async def all_of_them() -> None:
        async with open_ledger(path, prices) as ledger:
            await put(ledger, *records)

    asyncio.run(all_of_them())


def book_at(where: Path | str, now: datetime = AFTER) -> InvoiceBook:
    return InvoiceBook(where, clock=lambda: now)


def drafted(path: Path | str, period: Period = NOVEMBER, tenant: str = "acme", seller: Seller = SELLER) -> Document:
    """The one draft of a tenant's period."""
    (found,) = Drafting(book_at(path), seller).draft(tenant, period)
    return found.document


def invoiced(
    path: Path | str, period: Period = NOVEMBER, tenant: str = "acme", seller: Seller = SELLER, now: datetime = AFTER
) -> Issued:
    """A draft, issued."""
    (found,) = Drafting(book_at(path, now), seller).draft(tenant, period)
    return book_at(path, now).issue(found.id, seller)


def paying(seller: Seller = SELLER, **changes: object) -> Seller:
    """The seller with other terms."""
    change: Callable[..., Seller] = replace
    return change(seller, **changes)
