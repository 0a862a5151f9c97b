"""Rows and taxes are the total, to the last unit, whatever the currency, the rates and the rule of rounding."""

from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.invoicing import Document, DocumentKind, InvoiceInvalid, LineKind, money_text
from billing.invoicing.amounts import Item, TaxRule, check_sums, rows_and_taxes
from billing.invoicing.minor_units import Rounding, exact_text, minor_digits, minor_of, pico_of
from billing.money import PICO
from tests.billing.invoicing.office import NOVEMBER, SELLER

CURRENCIES = st.sampled_from(["JPY", "USD", "KWD", "CLF"])
PICOS = st.integers(-(10**26), 10**26) | st.integers(-(10**13), 10**13)
RATES = st.decimals(0, 100, places=3)
ITEMS = st.lists(st.tuples(PICOS, st.sampled_from(["a", "b", "c"])), max_size=30)
IN_DECIMALS = {
    Rounding.HALF_EVEN: ROUND_HALF_EVEN,
    Rounding.HALF_UP: ROUND_HALF_UP,
    Rounding.DOWN: ROUND_DOWN,
    Rounding.UP: ROUND_UP,
}


def items_of(amounts: list[tuple[int, str]]) -> list[Item]:
    return [Item(LineKind.USAGE, "m", "Input tokens", pico, tax) for pico, tax in amounts]


def quantized(value: Decimal, rule: str = ROUND_HALF_EVEN) -> int:
    return int(value.quantize(Decimal(1), rounding=rule))


@given(ITEMS, st.tuples(RATES, RATES, RATES), CURRENCIES, st.sampled_from(Rounding))
def test_rows_and_taxes_are_the_total_for_any_rates_and_currencies(
    amounts: list[tuple[int, str]], rates: tuple[Decimal, Decimal, Decimal], currency: str, rule: Rounding
) -> None:
    rules = {name: TaxRule(name, name, rate) for name, rate in zip("abc", rates, strict=True)}
    rows, taxes = rows_and_taxes(items_of(amounts), rules, currency, rule)
    assert [row.amount_minor for row in rows[: len(amounts)]] == [minor_of(pico, currency) for pico, _ in amounts]
    assert {row.kind for row in rows[len(amounts) :]} <= {LineKind.ROUNDING}
    assert sum(row.amount_minor for row in rows) == sum(tax.net_minor for tax in taxes)
    for tax in taxes:
        exact = Decimal(sum(pico for pico, name in amounts if name == tax.id)) / PICO * 10 ** minor_digits(currency)
        assert tax.net_minor == quantized(exact) == sum(row.amount_minor for row in rows if row.tax == tax.id)
        assert tax.tax_minor == quantized(tax.net_minor * Decimal(tax.rate_percent) / 100, IN_DECIMALS[rule])


@given(PICOS)
def test_an_exact_text_is_read_back_as_the_same_amount(pico: int) -> None:
    assert pico_of(exact_text(pico)) == pico
    assert Decimal(exact_text(pico)) == Decimal(pico) / PICO


def test_a_rounding_row_says_what_rounded_rows_differ_by() -> None:
    thirds = items_of([(5 * 10**9, "a")] * 3)  # 0.005 each: shown as 0.00, together 0.015
    rows, (tax,) = rows_and_taxes(thirds, {"a": TaxRule("a", "VAT", Decimal(0))}, "USD", Rounding.HALF_EVEN)
    assert [(row.kind.value, row.amount_minor) for row in rows] == [("usage", 0)] * 3 + [("rounding", 2)]
    assert tax.net_minor == 2


def test_ten_billion_yen_are_exact_and_have_no_decimals() -> None:
    whole = 10_000_000_000 * PICO
    rules = {"a": TaxRule("a", "Consumption tax", Decimal(10))}
    rows, (tax,) = rows_and_taxes(items_of([(whole - 1, "a"), (1, "a")]), rules, "JPY", Rounding.DOWN)
    assert [row.amount_minor for row in rows] == [10_000_000_000, 0]
    assert (tax.net_minor, tax.tax_minor) == (10_000_000_000, 1_000_000_000)
    assert money_text(tax.net_minor + tax.tax_minor, "JPY") == "11,000,000,000"


def test_amounts_are_written_with_the_digits_of_their_currency() -> None:
    written = [money_text(-1_234_567, currency) for currency in ("JPY", "USD", "KWD", "CLF")]
    assert written == ["-1,234,567", "-12,345.67", "-1,234.567", "-123.4567"]


def test_a_currency_without_a_minor_unit_of_its_own_is_refused() -> None:
    with pytest.raises(InvoiceInvalid, match="XAU"):
        minor_digits("XAU")


def test_a_tax_that_the_seller_does_not_have_is_refused() -> None:
    with pytest.raises(InvoiceInvalid, match="'gone' is not among `taxes`"):
        rows_and_taxes(items_of([(1, "gone")]), {}, "USD", Rounding.HALF_EVEN)


def test_a_document_whose_figures_do_not_add_up_is_never_issued() -> None:
    rows, taxes = rows_and_taxes(items_of([(PICO, "a")]), {"a": TaxRule("a", "VAT", Decimal(10))}, "USD", Rounding.DOWN)
    good = Document(
        kind=DocumentKind.INVOICE,
        tenant_id="acme",
        currency="USD",
        seller=SELLER.party,
        buyer=SELLER.party,
        period=NOVEMBER,
        lines=rows,
        taxes=taxes,
        total_minor=110,
    )
    check_sums(good)
    for change, complaint in (
        ({"total_minor": 111}, "are not the total"),
        ({"lines": (*rows, *rows)}, "rows of the tax 'a' are 200"),
        ({"lines": (*rows, replace(rows[0], tax="b"))}, "a row has no tax"),
    ):
        with pytest.raises(InvoiceInvalid, match=complaint):
            check_sums(replace(good, **change))
