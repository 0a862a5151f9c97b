"""Credit notes give back what was charged: never more, and all of it in the end."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.invoicing import Document, DocumentKind, InvoiceInvalid, LineKind, credit_all, credit_part, minor_from_text
from billing.invoicing.amounts import Item, TaxRule, check_sums, rows_and_taxes
from billing.invoicing.credit_notes import is_credited_whole
from billing.invoicing.minor_units import Rounding
from tests.billing.invoicing.office import NOVEMBER, SELLER

RATE = st.decimals(0, 30, places=2)


def invoice(amounts: dict[str, int], rates: dict[str, Decimal], rule: Rounding = Rounding.HALF_EVEN) -> Document:
    items = [Item(LineKind.USAGE, "m", "Input tokens", cents * 10**10, tax) for tax, cents in amounts.items()]
    rules = {name: TaxRule(name, name, rate) for name, rate in rates.items()}
    lines, taxes = rows_and_taxes(items, rules, "USD", rule)
    return Document(
        kind=DocumentKind.INVOICE,
        tenant_id="acme",
        currency="USD",
        seller=SELLER.party,
        buyer=SELLER.buyer("acme"),
        period=NOVEMBER,
        lines=lines,
        taxes=taxes,
        total_minor=sum(tax.net_minor + tax.tax_minor for tax in taxes),
        number="2026-000001",
        issued_on="2026-12-02",
        tax_rounding=rule.value,
    )


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=12), RATE, st.sampled_from(Rounding), st.booleans())
def test_parts_of_an_invoice_give_back_exactly_its_tax_when_all_is_credited(
    parts: list[int], rate: Decimal, rule: Rounding, whole_at_the_end: bool
) -> None:
    original = invoice({"vat": sum(parts)}, {"vat": rate}, rule)
    notes: list[Document] = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if is_last and whole_at_the_end:
            notes.append(credit_all(original, notes, "the rest"))
        else:
            notes.append(credit_part(original, notes, part, "a part"))
        check_sums(notes[-1])
        back = sum(note.taxes[0].tax_minor for note in notes)
        assert -original.taxes[0].tax_minor <= back <= 0
        assert notes[-1].total_minor <= 0
    assert sum(note.total_minor for note in notes) == -original.total_minor


def test_a_note_over_all_of_an_invoice_reverses_each_of_its_rows() -> None:
    original = invoice({"a": 1_001, "b": 333}, {"a": Decimal(20), "b": Decimal("5.5")})
    note = credit_all(original, [], "wrong buyer")
    check_sums(note)
    assert [line.amount_minor for line in note.lines] == [-1_001, -333]
    assert (note.kind, note.references, note.total_minor) == (
        DocumentKind.CREDIT_NOTE,
        "2026-000001",
        -original.total_minor,
    )
    assert "wrong buyer" in note.notes[0]


def test_no_more_is_given_back_than_is_left() -> None:
    original = invoice({"a": 100}, {"a": Decimal(20)})
    first = credit_part(original, [], 60, "a part")
    with pytest.raises(InvoiceInvalid, match=r"0\.40 before tax"):
        credit_part(original, [first], 41, "too much")
    with pytest.raises(InvoiceInvalid, match="above 0"):
        credit_part(original, [first], 0, "nothing")
    last = credit_all(original, [first], "the rest")
    with pytest.raises(InvoiceInvalid, match="nothing is left"):
        credit_all(original, [first, last], "again")


def test_of_an_invoice_with_two_taxes_the_part_must_name_one() -> None:
    original = invoice({"a": 100, "b": 100}, {"a": Decimal(20), "b": Decimal(0)})
    with pytest.raises(InvoiceInvalid, match="name one tax of 2026-000001: a, b"):
        credit_part(original, [], 10, "a part")
    assert credit_part(original, [], 10, "a part", "b").total_minor == -10


def test_a_credit_note_cannot_be_credited() -> None:
    note = replace(invoice({"a": 1}, {"a": Decimal(0)}), kind=DocumentKind.CREDIT_NOTE)
    with pytest.raises(InvoiceInvalid, match="only an invoice"):
        credit_all(note, [], "why not")


@pytest.mark.parametrize(
    ("text", "currency", "minor"), [("12.50", "USD", 1250), ("3", "USD", 300), ("7.5", "KWD", 7500), ("8", "JPY", 8)]
)
def test_an_amount_is_read_in_the_digits_of_its_currency(text: str, currency: str, minor: int) -> None:
    assert minor_from_text(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency"), [("1.5", "JPY"), ("1.234", "USD"), ("-1", "USD"), ("1e3", "USD"), ("1.", "USD"), ("", "USD")]
)
def test_what_is_no_amount_of_a_currency_is_refused(text: str, currency: str) -> None:
    with pytest.raises(InvoiceInvalid):
        minor_from_text(text, currency)


def test_an_invoice_over_0_is_credited_once_and_makes_room_for_another() -> None:
    original = invoice({"a": 0, "b": 0}, {"a": Decimal(20), "b": Decimal("5.5")})
    note = credit_all(original, [], "wrong buyer")
    check_sums(note)
    assert (note.total_minor, len(note.lines)) == (0, 2)
    assert is_credited_whole(original, [note])
    assert credit_all(invoice({}, {}), [], "wrong buyer").lines == ()
    with pytest.raises(InvoiceInvalid, match="nothing is left"):
        credit_all(original, [note], "twice")
