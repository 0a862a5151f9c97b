"""A month is invoiced where each request with an amount is in what an invoice, or a closed period, has billed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billing import Usage, open_ledger
from billing.invoicing import Drafting, InvoiceInvalid, credit_all, period_in
from billing.invoicing.uninvoiced import must_be_invoiced
from tests.billing.conftest import Where
from tests.billing.invoicing.office import AFTER, NOVEMBER, SELLER, Written, book_at, invoiced, put
from tests.billing.samples import NOON, book, opened, settled

MONTH = "2026-11"


def asked(name: str, *, at: datetime = NOON, tenant: str = "acme") -> tuple[Written, Written]:
    return opened(name, at=at, tenant=tenant), settled(name, Usage(1000, 900, 100), at=at + timedelta(seconds=2))


async def fill(where: Where, *records: Written) -> None:
    async with open_ledger(where, book()) as ledger:
        await put(ledger, *records)


def refused(where: Where, *, is_configured: bool = False) -> str:
    with pytest.raises(InvoiceInvalid) as caught:
        must_be_invoiced(where, MONTH, is_configured=is_configured)
    return str(caught.value)


async def test_nobody_is_asked_for_invoices_who_makes_none(where: Where) -> None:
    await fill(where, *asked("1"))
    must_be_invoiced(where, MONTH, is_configured=False)
    assert "of acme (USD):" in refused(where, is_configured=True)


async def test_all_tenants_must_be_on_an_invoice_or_in_a_closed_period(where: Where) -> None:
    await fill(where, *asked("1"), *asked("2", tenant="zeta"))
    issued = invoiced(where)
    assert "of zeta (USD):" in refused(where)
    Drafting(book_at(where), SELLER).close(NOVEMBER, now_us=NOVEMBER.end_us)
    must_be_invoiced(where, MONTH, is_configured=True)
    book_at(where).credit(issued.document.number, SELLER, lambda one, notes: credit_all(one, notes, "wrong buyer"))
    assert "of acme (USD):" in refused(where), "credited whole, it may be billed anew"


async def test_what_was_settled_after_the_invoice_is_not_invoiced(where: Where) -> None:
    await fill(where, *asked("1"))
    invoiced(where)
    must_be_invoiced(where, MONTH, is_configured=True)
    await fill(where, *asked("2"))
    assert "of acme (USD):" in refused(where)


async def test_a_month_of_another_time_zone_leaves_a_rest_of_the_month_in_utc(where: Where) -> None:
    await fill(where, *asked("1"), *asked("2", at=datetime(2026, 11, 30, 16, tzinfo=UTC)))
    invoiced(where, period_in(MONTH, "Asia/Tokyo"))
    assert "of acme (USD):" in refused(where)
    invoiced(where, period_in("2026-12", "Asia/Tokyo"), now=AFTER + timedelta(days=60))
    must_be_invoiced(where, MONTH, is_configured=True)


async def test_of_many_tenants_the_first_are_named(where: Where) -> None:
    await fill(where, *(record for name in range(7) for record in asked(str(name), tenant=f"tenant-{name}")))
    assert "tenant-4 (USD) and 2 more:" in refused(where, is_configured=True)


async def test_what_has_no_known_amount_needs_no_invoice(where: Where, tmp_path: Path) -> None:
    await fill(where, opened("1", model="unpriced"), settled("1"))
    must_be_invoiced(where, MONTH, is_configured=True)
