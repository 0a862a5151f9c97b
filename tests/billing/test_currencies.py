"""Minor units of currencies."""

import pytest

from billing.currencies import MINOR_UNIT_PLACES, minor_unit_pico


@pytest.mark.parametrize(
    ("currency", "places", "pico"),
    [("USD", 2, 10**10), ("EUR", 2, 10**10), ("JPY", 0, 10**12), ("KWD", 3, 10**9), ("CLF", 4, 10**8)],
)
def test_the_least_amount_of_a_currency_is_its_minor_unit(currency: str, places: int, pico: int) -> None:
    assert MINOR_UNIT_PLACES[currency] == places
    assert minor_unit_pico(currency) == pico


def test_the_table_holds_each_currency_that_can_be_paid_in_once() -> None:
    assert len(MINOR_UNIT_PLACES) == 17 + 139 + 7 + 2
    assert all(len(code) == 3 and code.isupper() for code in MINOR_UNIT_PLACES)
    assert MINOR_UNIT_PLACES.keys().isdisjoint({"XAU", "XTS", "XXX", "XDR"})
