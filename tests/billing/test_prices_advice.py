"""What may be a slip in a price book is said, and refused by nobody."""

from billing import PriceBook
from billing.prices.advice import advice
from tests.billing.samples import NOON

FILE = """
currency: USD
prices:
  - {id: a1, model: a, input_per_mtok: 1, output_per_mtok: 4, from: 2026-01-01, to: 2026-03-01}
  - {id: a2, model: a, input_per_mtok: 2000, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2026-04-01}
  - {id: b1, model: b, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2027-01-01}
tenants: {acme: {discounts: [{id: d, percent: 5, models: [a, typo], from: 2026-01-01}]}}
"""


def test_what_may_be_a_slip_is_said() -> None:
    assert advice(PriceBook.parse(FILE), NOON) == [
        "a1: no cached rate, so cached tokens cost what fresh ones do",
        "a2: 2000 USD per million input tokens; is it right?",
        "a: no price from 2026-03-01T00:00:00+00:00 to 2026-04-01T00:00:00+00:00",
        "b: no list price now; requests are recorded without an amount",
        "discount d: there is no price of typo",
    ]


def test_a_gap_in_a_tenants_own_prices_is_filled_by_the_list_and_periods_that_meet_leave_none() -> None:
    own = "tenant: acme, model: a, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4"
    listed = own.removeprefix("tenant: acme, ") + ", from: 2026-01-01"
    spans = (("2026-01-01", "2026-02-01"), ("2026-02-01", "2026-03-01"), ("2026-05-01", "2027-01-01"))
    entries = ", ".join(f"{{{own}, from: {first}, to: {last}}}" for first, last in spans)
    found = advice(PriceBook.parse(f"currency: USD\nprices: [{{{listed}}}, {entries}]"), NOON)
    gap = "2026-03-01T00:00:00+00:00 to 2026-05-01T00:00:00+00:00"
    assert found == [f"a, tenant acme: no price from {gap}; the list price holds"]


def test_nothing_is_said_of_a_book_that_has_all() -> None:
    plain = "{model: a, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2026-01-01}"
    assert advice(PriceBook.parse(f"currency: USD\nprices: [{plain}]"), NOON) == []
