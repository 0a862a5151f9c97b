"""Tokens times rates: exact, never negative, and never silent about what is not known."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import Buckets, Charge, Price, SettlementState, Usage, UsageFlag, charge
from billing.money import MOST_PER_MTOK, amount_text, joined_pico, pico_per_token, split_pico
from billing.prices.pricing import Quote, bill
from tests.billing.samples import LONG_AGO, price

tokens = st.integers(0, 2**31 - 1)
rates = st.integers(0, 10**15)
prices = st.builds(
    Price,
    id=st.just("p"),
    model=st.just("m"),
    currency=st.just("USD"),
    input_pico=rates,
    output_pico=rates,
    valid_from=st.just(LONG_AGO),
    cached_input_pico=st.none() | rates,
    cache_write_pico=st.none() | rates,
)
buckets = st.builds(Buckets, st.none() | tokens, st.none() | tokens, st.none() | tokens, st.none() | tokens)


@settings(deadline=None)
@given(buckets, prices)
def test_a_charge_is_what_fractions_say_and_never_negative(heaps: Buckets, at: Price) -> None:
    found = charge(heaps, at)
    known = (heaps.fresh_tokens, heaps.cached_tokens, heaps.cache_write_tokens, heaps.output_tokens)
    if known == (None, None, None, None):
        assert found.charged_pico is None
        return
    cached_rate = at.input_pico if at.cached_input_pico is None else at.cached_input_pico
    write_rate = at.input_pico if at.cache_write_pico is None else at.cache_write_pico
    rates_pico = (at.input_pico, cached_rate, write_rate, at.output_pico)
    units = sum(
        (Fraction(count or 0) * Fraction(rate, 10**12) for count, rate in zip(known, rates_pico, strict=True)),
        Fraction(0),
    )
    assert found.charged_pico is not None
    assert Fraction(amount_text(found.charged_pico)) == units
    assert found.charged_pico >= 0
    assert found == charge(heaps, at)


@settings(deadline=None)
@given(buckets, prices)
def test_a_stored_amount_fits_its_columns(heaps: Buckets, at: Price) -> None:
    for pico in (charge(heaps, at).full_pico, charge(heaps, at).charged_pico):
        if pico is not None:
            units, remainder = split_pico(pico)
            assert 0 <= remainder < 10**12
            assert 0 <= units < 2**63
            assert joined_pico(units, remainder) == pico


@settings(deadline=None)
@given(st.integers(-(10**40), 10**40))
def test_an_amount_as_text_keeps_every_digit(pico: int) -> None:
    text = amount_text(pico)
    assert Fraction(text) == Fraction(pico, 10**12)


def test_a_rate_of_0_0028_per_million_is_2800_pico_a_token() -> None:
    assert pico_per_token(Fraction("0.0028")) == 2_800


@pytest.mark.parametrize("rate", ["0.0000001", "1/3", "-1", str(MOST_PER_MTOK + 1)])
def test_a_rate_off_the_grid_is_refused(rate: str) -> None:
    with pytest.raises(ValueError, match="per million"):
        pico_per_token(Fraction(rate))


def test_caching_saves_the_difference_of_the_rates() -> None:
    found = charge(Buckets(16, 9_984, 0, 0), price("1", "0.1"))
    assert found.full_pico == 10_000 * 1_000_000
    assert found.charged_pico == 16 * 1_000_000 + 9_984 * 100_000
    assert found.saved_pico == 9_984 * 900_000


def test_a_write_that_nobody_reads_costs_more_than_it_saves() -> None:
    assert charge(Buckets(0, 0, 1_000, 0), price("1", "0.1", write="1.25")).saved_pico == -250 * 1_000_000


def test_without_a_cached_rate_the_input_rate_holds_and_is_flagged() -> None:
    found = charge(Buckets(10, 90, 0, 0), price(cached=None))
    assert found.charged_pico == found.full_pico
    assert found.flags == {UsageFlag.NO_CACHED_PRICE}
    assert charge(Buckets(10, 0, 0, 0), price(cached=None)).flags == frozenset()


def test_without_a_write_rate_the_input_rate_holds_and_is_flagged() -> None:
    found = charge(Buckets(10, 0, 90, 0), price(write=None))
    assert found.charged_pico == found.full_pico
    assert found.flags == {UsageFlag.NO_WRITE_PRICE}


def test_a_cached_rate_of_zero_is_a_rate() -> None:
    found = charge(Buckets(0, 100, 0, 0), price(cached="0"))
    assert found.charged_pico == 0
    assert found.flags == frozenset()


def test_without_a_price_the_amount_is_unknown() -> None:
    found = charge(Buckets(1, 2, 0, 3), None)
    assert found == Charge(None, None, frozenset({UsageFlag.UNPRICED}))
    assert found.saved_pico is None


def test_what_is_unknown_is_left_out_and_flagged() -> None:
    found = charge(Buckets(10, 0, None, None), price("1", "0.1", "10"))
    assert found.charged_pico == 10 * 1_000_000
    assert found.flags == {UsageFlag.INCOMPLETE}


def test_nothing_known_is_an_unknown_amount() -> None:
    found = bill(SettlementState.COMPLETE, None, Quote(price()))
    assert found == Charge(None, None, frozenset({UsageFlag.UNREPORTED, UsageFlag.INCOMPLETE}), price=price())


@pytest.mark.parametrize("state", [SettlementState.FAILED, SettlementState.REJECTED])
@pytest.mark.parametrize("at", [price(), None])
def test_failed_and_refused_requests_are_never_billed(state: SettlementState, at: Price | None) -> None:
    found = bill(state, Usage(10, 0, 5), Quote(at))
    assert (found.full_pico, found.charged_pico, found.list_pico) == (0, 0, 0)
    assert found.flags == {UsageFlag.NOT_BILLABLE}
    assert (found.price, found.discounted_tokens) == (at, None if at is None else 0)


def test_an_interrupted_request_has_an_unknown_amount() -> None:
    assert bill(SettlementState.INTERRUPTED, None, Quote(price())) == Charge(None, None, price=price())
