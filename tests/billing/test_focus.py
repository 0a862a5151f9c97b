"""Usage as rows of FOCUS 1.2 and 1.4: costs to the last digit, and columns, types and values of the specification."""

import csv
import io
import json
import re
from dataclasses import replace
from decimal import Decimal

from focus_data_toolkit.model.validator import lint_focus_1_4_structure
from hypothesis import given
from hypothesis import strategies as st

from billing import PriceBook, Usage, report_of
from billing.reports.csv_text import csv_lines
from billing.reports.focus import Unknown, Version, focus_lines
from billing.reports.focus_lines import DECIMALS, Seller, columns_for, decimal
from billing.reports.reading import one_view
from tests.billing.conftest import Where
from tests.billing.samples import book, opened, price, settled
from tests.billing.test_exports import PERIOD, PICO, PRICES, charged, mixed
from tests.billing.test_report_splits import write

MANDATORY_1_2 = frozenset(
    {
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingCurrency",
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "ContractedCost",
        "EffectiveCost",
        "InvoiceIssuerName",
        "ListCost",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "ServiceCategory",
        "ServiceName",
    }
)
OTHERS_1_2 = frozenset(
    {
        "ChargeFrequency",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedUnitPrice",
        "InvoiceId",
        "ListUnitPrice",
        "PricingCategory",
        "ServiceSubcategory",
        "SkuId",
        "SkuMeter",
        "SkuPriceDetails",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
        "Tags",
    }
)
NULLABLE_1_2 = frozenset(
    {
        "BillingAccountName",
        "ChargeClass",
        "ChargeDescription",
        "PricingQuantity",
        "PricingUnit",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedUnitPrice",
        "InvoiceId",
        "ListUnitPrice",
        "PricingCategory",
        "SkuId",
        "SkuMeter",
        "SkuPriceDetails",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
        "Tags",
    }
)
ALLOWED_1_2 = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"", "Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"AI and Machine Learning"},
    "ServiceSubcategory": {"Generative AI"},
    "BillingCurrency": {"USD"},
}


def focus_of(
    where: Where, version: Version, *, internal: bool = False, **more: str
) -> tuple[list[dict[str, str]], int]:
    """The rows of a file, as its readers have them, and how many requests are in none."""
    unknown, seller = Unknown(), Seller("acct-1", "Example GmbH", **more)
    with one_view(where) as connection:
        lines = focus_lines(connection, PERIOD, seller, unknown)
        text = "".join(csv_lines(columns_for(version.value, seller, internal=internal), lines, DECIMALS))
    return list(csv.DictReader(io.StringIO(text))), unknown.requests


async def test_focus_1_4_passes_a_public_validator(where: Where) -> None:
    await write(where, PRICES, mixed())
    for internal in (False, True):
        rows, _ = focus_of(where, Version.V1_4, internal=internal)
        found = lint_focus_1_4_structure(
            "cost and usage",
            rows,
            supported_conditions=["SupportsUnitPricing", "SupportsMultiplePricingCategories"],
        )
        assert found.messages() == []
        assert found.row_count == len(rows) > 20


async def test_the_costs_of_focus_are_what_was_charged_to_the_last_digit(where: Where) -> None:
    await write(where, PRICES, mixed())
    for version in Version:
        rows, unknown = focus_of(where, version)
        total = sum(Decimal(row["BilledCost"]) for row in rows)
        assert total * PICO == charged(where, PERIOD)
        assert unknown == report_of(where, PERIOD).totals["USD"].unknown_amounts > 0
        for row in rows:
            if row["SkuPriceId"]:
                quantity = Decimal(row["PricingQuantity"])
                assert quantity * Decimal(row["ListUnitPrice"]) == Decimal(row["ListCost"])
                assert quantity * Decimal(row["ContractedUnitPrice"]) == Decimal(row["ContractedCost"])
                assert quantity * 10**6 == Decimal(row["ConsumedQuantity"])
            assert row["BilledCost"] == row["EffectiveCost"] == row["ContractedCost"]


async def test_each_kind_of_token_is_a_row_and_a_hit_is_no_discount_of_the_list(where: Where) -> None:
    await write(where, book(price("1.25", "0.125", "10", "1.5")), [opened(), settled(usage=Usage(1000, 900, 100, 50))])
    rows, _ = focus_of(where, Version.V1_4)
    assert [(row["SkuMeter"], row["ConsumedQuantity"], row["ListUnitPrice"], row["ListCost"]) for row in rows] == [
        ("Input Tokens", "50", "1.25", "0.0000625"),
        ("Cache Read Input Tokens", "900", "0.125", "0.0001125"),
        ("Cache Write Input Tokens", "50", "1.5", "0.000075"),
        ("Output Tokens", "100", "10", "0.001"),
    ]
    read = rows[1]
    assert (read["x_UncachedUnitPrice"], read["x_CacheSavings"]) == ("1.25", "0.0010125")
    assert json.loads(read["SkuPriceDetails"]) == {
        "x_ModelId": "llama",
        "x_TokenCacheAction": "Read",
        "x_TokenDirection": "Input",
    }
    assert json.loads(read["Tags"]) == {"prefixgate:key": "key-1"}
    assert (read["BillingPeriodStart"], read["BillingPeriodEnd"]) == ("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z")
    assert (read["ChargePeriodStart"], read["ChargePeriodEnd"]) == ("2026-11-15T12:00:00Z", "2026-11-15T13:00:00Z")


async def test_a_tenants_own_price_is_contracted_and_the_list_price_listed(where: Where) -> None:
    usage = Usage(1000, 0, 100)
    own = replace(price("0.5", "0.05", "4", id_="own"), tenant="acme")
    await write(where, PriceBook("USD", (price("1.25", "0.125", "10"), own)), [opened(), settled(usage=usage)])
    rows, _ = focus_of(where, Version.V1_4)
    assert sum(Decimal(row["ListCost"]) for row in rows) == Decimal("0.00225")
    assert sum(Decimal(row["ContractedCost"]) for row in rows) == Decimal("0.0009")
    found = lint_focus_1_4_structure("cost and usage", rows)
    assert found.messages() == []


async def test_corrections_are_rows_of_their_class_and_category(where: Where) -> None:
    await write(where, PRICES, mixed())
    rows, _ = focus_of(where, Version.V1_4)
    assert [(row["ChargeCategory"], row["ChargeClass"], row["BilledCost"]) for row in rows[-3:]] == [
        ("Credit", "", "-0.000000000123"),
        ("Usage", "Correction", "0.000000000077"),
        ("Adjustment", "", "0.000000000005"),
    ]
    assert rows[-3]["ChargeDescription"] == "'=HYPERLINK(1)"


async def test_focus_1_2_has_the_columns_types_and_values_of_the_specification(where: Where) -> None:
    """From the rules of version 1.2.0.1. Its official validator needs a later Python than this project's oldest."""
    await write(where, PRICES, mixed())
    rows, _ = focus_of(where, Version.V1_2, invoice_id="INV-7")
    names = {name for name in rows[0] if not name.startswith("x_")}
    assert names >= MANDATORY_1_2
    assert names - MANDATORY_1_2 <= OTHERS_1_2
    assert list(rows[0]) == [*sorted(names), *sorted(set(rows[0]) - names)]
    for row in rows:
        assert row["InvoiceId"] == "INV-7"
        assert not [name for name in names - NULLABLE_1_2 if row[name] == ""]
        assert not [name for name, allowed in ALLOWED_1_2.items() if row[name] not in allowed]
        for name in names:
            if name.endswith(("Cost", "Price", "Quantity")) and row[name]:
                assert re.fullmatch(r"-?\d+(\.\d+)?", row[name]), name
            if name.endswith(("Start", "End")):
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]), name
        if row["ChargeCategory"] == "Usage" and not row["ChargeClass"]:
            needed = ("ListUnitPrice", "ContractedUnitPrice", "PricingQuantity", "PricingUnit", "PricingCategory")
            assert not [name for name in (*needed, "SkuId", "SkuPriceId", "ConsumedQuantity") if row[name] == ""]
        assert row["ChargePeriodStart"] >= row["BillingPeriodStart"]
        assert row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]


def test_no_version_gives_a_tenant_what_is_the_operators() -> None:
    for version in Version:
        inner = set(columns_for(version.value, Seller(), internal=True)) - set(columns_for(version.value, Seller()))
        assert inner == {"x_GpuSeconds"}
        assert "InvoiceId" not in columns_for(version.value, Seller())


@given(st.integers(-(10**24), 10**24), st.sampled_from([10**6, 10**12]))
def test_a_decimal_is_exact(numerator: int, denominator: int) -> None:
    text = decimal(numerator, denominator)
    assert Decimal(text) * denominator == numerator or numerator == 0
    assert re.fullmatch(r"-?\d+(\.\d+)?", text)
