"""Rows of FOCUS of an issued document add up to what is to be paid, and pass a public validator."""

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from focus_data_toolkit.model.validator import lint_focus_1_4_structure

from billing import Correction, CorrectionKind, ReportInvalid, Usage, open_ledger
from billing.invoicing import Document, Drafting, LineKind, Party, credit_all, credit_part, money_text, plans_from
from billing.invoicing.amounts import TaxRule
from billing.invoicing.minor_units import exact_text, pico_of
from billing.prices.plans_file import parse_plans
from billing.prices.pricing import Bucket, VolumeTier
from billing.reports.csv_text import csv_lines
from billing.reports.focus import Unknown, Version
from billing.reports.focus_invoice import invoice_lines, invoice_named
from billing.reports.focus_lines import DECIMALS, Seller, columns_for
from billing.reports.reading import one_view
from tests.billing.conftest import Where
from tests.billing.invoicing.office import DECEMBER, NOVEMBER, SELLER, Written, book_at, paying, put
from tests.billing.samples import NOON, book, opened, price, rate, settled

LATER = datetime(2027, 2, 1, tzinfo=UTC)
TIERED = replace(price("1.234567"), volume_tiers=(VolumeTier(Bucket.INPUT, 2_000_000, rate("0.5")),))
PRICES = book(TIERED, replace(price("7", currency="EUR", model="euro", id_="p2")))
PLANS = parse_plans("""
currency: USD
plans:
  - {id: team, monthly_fee: 19.99, minimum_commitment: 5, included: [{bucket: output, tokens: 5000000}]}
tenants:
  acme: [{plan: team, from: 2026-11-01, to: 2026-12-01}]
""")
OFFICE = paying(SELLER, taxes_of={"plan": "reduced"})


def total(document: Document) -> Decimal:
    return Decimal(money_text(document.total_minor, document.currency).replace(",", ""))


def read(where: Where, number: str, version: Version = Version.V1_4) -> list[dict[str, str]]:
    seller = Seller("acct-1", "Example GmbH", invoice_id=number)
    with one_view(where) as connection:
        document = invoice_named(connection, number)
        assert document is not None
        lines = invoice_lines(connection, document, seller, Unknown())
        text = "".join(csv_lines(columns_for(version.value, seller), lines, DECIMALS))
    return list(csv.DictReader(io.StringIO(text)))


def sums(rows: list[dict[str, str]]) -> dict[str, Decimal]:
    """Costs by category."""
    found: dict[str, Decimal] = {}
    for row in rows:
        found[row["ChargeCategory"]] = found.get(row["ChargeCategory"], Decimal(0)) + Decimal(row["BilledCost"])
    return found


async def fill(where: Where, *records: Written) -> None:
    async with open_ledger(where, PRICES) as ledger:
        await put(ledger, *records)


def credit(name: str) -> Correction:
    return Correction(name, NOON, "1", "acme", "key-1", "llama", CorrectionKind.CREDIT, "miss", "USD", 0, -123_456)


async def two_invoices(where: Where) -> tuple[Document, Document]:
    """Of a month with a plan, and of the next, which has late usage of the first."""
    await fill(where, opened("1"), settled("1", Usage(4_321_111, 1_000_000, 7_000_001)), credit("c1"))
    await fill(where, opened("euro", model="euro"), settled("euro"))
    drafting = Drafting(book_at(where, LATER), OFFICE, plans_from(PLANS, PRICES))
    found = []
    for period in (NOVEMBER, DECEMBER):
        draft = drafting.draft("acme", period)[0]
        found.append(book_at(where, LATER).issue(draft.id, OFFICE).document)
        if period is NOVEMBER:
            await fill(where, opened("late"), settled("late", Usage(987_123, 0, 3), at=LATER))
    return found[0], found[1]


async def test_rows_of_an_invoice_add_up_to_what_is_to_be_paid(where: Where) -> None:
    first, second = await two_invoices(where)
    for document in (first, second):
        for version in Version:
            rows = read(where, document.number, version)
            assert sum(Decimal(row["BilledCost"]) for row in rows) == total(document) != 0
            assert {row["InvoiceId"] for row in rows} == {document.number}
            assert {row["BillingCurrency"] for row in rows} == {"USD"}
            assert len({(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows}) == 1
    found = sums(read(where, first.number))
    assert set(found) == {"Usage", "Purchase", "Credit", "Adjustment", "Tax"}
    assert found["Purchase"] == Decimal("19.99")
    assert found["Tax"] * 100 == first.tax_minor
    late = [row for row in read(where, second.number) if row["SkuMeter"] == "Input Tokens"]
    assert [(row["ConsumedQuantity"], row["ChargePeriodStart"]) for row in late] == [("987123", "2026-11-01T00:00:00Z")]


async def test_rows_of_an_invoice_pass_a_public_validator(where: Where) -> None:
    for document in await two_invoices(where):
        found = lint_focus_1_4_structure(
            "cost and usage",
            read(where, document.number),
            supported_conditions=["SupportsUnitPricing", "SupportsMultiplePricingCategories"],
        )
        assert found.messages() == []


async def test_rows_of_credit_notes_add_up_to_what_is_given_back(where: Where) -> None:
    first, _ = await two_invoices(where)
    notes = (
        lambda one, notes: credit_part(one, notes, 333, "outage", "standard"),
        lambda one, notes: credit_all(one, notes, "the rest"),
    )
    for note in notes:
        document = book_at(where, LATER).credit(first.number, OFFICE, note).document
        rows = read(where, document.number)
        assert sum(Decimal(row["BilledCost"]) for row in rows) == total(document) < 0
        assert set(sums(rows)) <= {"Credit", "Tax", "Adjustment"}


async def test_what_late_usage_was_charged_beyond_its_tokens_is_a_row_of_its_own(where: Where) -> None:
    _, document = await two_invoices(where)
    (entry,) = document.usage
    dearer = replace(document, usage=(replace(entry, charged=exact_text(pico_of(entry.charged) + 7)),))
    with one_view(where) as connection:
        rows = list(invoice_lines(connection, dearer, Seller(), Unknown()))
    assert "0.000000000007" in [row["BilledCost"] for row in rows if row["ChargeCategory"] == "Adjustment"]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == total(document)


async def test_rounding_is_one_row_and_no_tax_is_none(where: Where) -> None:
    seller = paying(SELLER, taxes={"standard": TaxRule("standard", "None", Decimal(0))})
    await fill(where, opened("1"), settled("1", Usage(3_240, 0, 400)))
    (draft,) = Drafting(book_at(where, LATER), seller).draft("acme", NOVEMBER)
    invoice = book_at(where, LATER).issue(draft.id, seller).document
    assert invoice.lines[-1].kind is LineKind.ROUNDING
    note = book_at(where, LATER).credit(invoice.number, seller, lambda one, notes: credit_all(one, notes, "all"))
    for document in (invoice, note.document):
        rows = read(where, document.number)
        assert [row["ChargeDescription"] for row in rows].count("Rounding to what can be paid") == 1
        assert "Tax" not in sums(rows)
        assert sum(Decimal(row["BilledCost"]) for row in rows) == total(document)


async def test_a_number_that_is_none_or_that_of_two_sellers_is_told(where: Where) -> None:
    await fill(where)
    with one_view(where) as connection:
        assert invoice_named(connection, "1") is None
    for seller in (SELLER, paying(SELLER, party=Party("other", "Other"))):
        (draft,) = Drafting(book_at(where, LATER), seller).draft("acme", NOVEMBER)
        number = book_at(where, LATER).issue(draft.id, seller).document.number
    with one_view(where) as connection, pytest.raises(ReportInvalid, match="several sellers"):
        invoice_named(connection, number)
