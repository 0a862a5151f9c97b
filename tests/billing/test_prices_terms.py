"""What a price file says beyond plain rates: tiers, tenants' own prices and discounts, the rule for cached tokens.

Tests named `fault_...` hold a fault of another gateway that users reported against its prices.
"""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import Buckets, PriceBook, PricesInvalid, SettlementState, Usage, UsageFlag, UsageMerger, charge
from billing.money import amount_text
from billing.prices.pricing import BillCached, CachedRule, Charge, Quote, bill
from tests.billing.samples import NOON, price

HEAD = "currency: USD\n"
LLAMA = "model: llama, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2026-01-01"


def book(*entries: str, rest: str = "") -> PriceBook:
    return PriceBook.parse(HEAD + "prices:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries) + rest)


def billed(of: PriceBook, usage: Usage, tenant: str | None = None, expected: int | None = None) -> Charge:
    return bill(SettlementState.COMPLETE, usage, of.quote("llama", tenant, NOON), expected)


def units(pico: int | None) -> Decimal:
    assert pico is not None
    return Decimal(amount_text(pico))


# -- the rule for cached tokens


@pytest.mark.parametrize(
    ("cached", "discounted"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (1500, 1408)]
)
def test_cached_tokens_below_a_minimum_or_beyond_whole_steps_are_billed_as_fresh(cached: int, discounted: int) -> None:
    of = book(LLAMA + ", min_cached_tokens: 1024, cached_step_tokens: 128")
    found = billed(of, Usage(2000, cached, 0))
    assert found.discounted_tokens == discounted
    assert units(found.charged_pico) == Decimal(2000 - discounted) / 10**6 + Decimal(discounted) / 10**7


@settings(deadline=None)
@given(st.integers(0, 5000), st.integers(0, 2000), st.integers(1, 300))
def test_what_is_discounted_is_the_most_that_the_rule_allows(cached: int, minimum: int, step: int) -> None:
    allowed = [0, *range(minimum, cached + 1, step)] if cached >= minimum else [0]
    assert CachedRule(minimum, step).discounted_tokens(cached) == max(allowed)


def test_without_a_report_nothing_is_known_of_what_was_discounted() -> None:
    found = billed(book(LLAMA), Usage(100, None, 1))
    assert found.discounted_tokens is None
    assert found.flags == {UsageFlag.UNREPORTED}


def test_defaults_hold_for_prices_that_do_not_say() -> None:
    rest = (
        "defaults: {cached_input_ratio: 0.1, cache_write_ratio: 1.25, min_cached_tokens: 64, cached_step_tokens: 16}\n"
    )
    plain, own = "model: a, input_per_mtok: 2, output_per_mtok: 4, from: 2026-01-01", ", cached_input_per_mtok: 0.05"
    of = book(plain, plain.replace("model: a", "model: b") + own + ", min_cached_tokens: 0", rest=rest)
    first, second = of.price_at("a", NOON), of.price_at("b", NOON)
    assert first is not None
    assert second is not None
    assert (first.cached_input_pico, first.cache_write_pico) == (200_000, 2_500_000)
    assert (first.cached_rule, second.cached_rule) == (CachedRule(64, 16), CachedRule(0, 16))
    assert second.cached_input_pico == 50_000


# -- whose word counts


@pytest.mark.parametrize(("expected", "discounted"), [(None, 900), (0, 0), (400, 400), (2000, 900)])
def test_a_tenant_may_be_billed_for_no_more_cached_tokens_than_were_expected(
    expected: int | None, discounted: int
) -> None:
    of = book(LLAMA, rest="tenants: {acme: {bill_cached: min_of_reported_and_expected}}\n")
    assert billed(of, Usage(1000, 900, 0), "acme", expected).discounted_tokens == discounted
    assert billed(of, Usage(1000, 900, 0), "other", expected).discounted_tokens == 900


def test_the_policy_of_the_file_is_that_of_tenants_without_one() -> None:
    rest = "bill_cached: min_of_reported_and_expected\ntenants: {acme: {bill_cached: reported}}\n"
    of = book(LLAMA, rest=rest)
    assert of.quote("llama", "acme", NOON).bill_cached is BillCached.REPORTED
    assert of.quote("llama", "other", NOON).bill_cached is BillCached.MIN_OF_REPORTED_AND_EXPECTED


# -- tiers by context

TIERED = LLAMA + ", id: p, context_tiers: [{over_prompt_tokens: 1000, input_per_mtok: 2, output_per_mtok: 6}]"


@pytest.mark.parametrize(("prompt", "id_"), [(1000, "p"), (1001, "p#over-1000")])
def test_the_whole_request_is_priced_by_the_tier_of_its_prompt(prompt: int, id_: str) -> None:
    found = billed(book(TIERED), Usage(prompt, 100, 145))
    assert found.price is not None
    assert found.price.id == id_
    fresh, cached, output = (1, Decimal("0.1"), 4) if prompt == 1000 else (2, Decimal("0.2"), 6)
    assert units(found.charged_pico) * 10**6 == (prompt - 100) * fresh + 100 * cached + 145 * output


def test_cached_and_written_tokens_count_for_the_tier() -> None:
    found = billed(book(TIERED), Usage(1001, 500, 0, cache_write_tokens=500))
    assert found.price is not None
    assert found.price.id == "p#over-1000"


def test_a_row_names_a_price_that_the_book_finds_again() -> None:
    of = book(TIERED, rest="tenants: {acme: {discounts: [{percent: 50, from: 2026-01-01, id: half}]}}\n")
    for tenant in (None, "acme"):
        for prompt in (10, 5000):
            found = billed(of, Usage(prompt, 0, 0), tenant).price
            assert found is not None
            assert of.by_id(found.id) == found
    assert of.by_id("p~half#over-1000") is not None
    assert of.by_id("p#over-7") is of.by_id("q") is of.by_id("p~none") is None


# -- what a tenant pays


def test_a_tenants_own_price_comes_before_its_discount_and_the_list_is_kept_beside() -> None:
    own = "model: llama, tenant: acme, input_per_mtok: 0.5, output_per_mtok: 1, from: 2026-01-01"
    discounts = "tenants: {acme: {discounts: [{percent: 90, from: 2026-01-01}]}}\n"
    found = billed(book(LLAMA, own, rest=discounts), Usage(1000, 0, 0), "acme")
    assert (units(found.charged_pico), units(found.list_pico)) == (Decimal("0.0005"), Decimal("0.001"))
    assert found.price is not None
    assert found.price.id == "acme/llama@2026-01-01T00:00:00+00:00"


def test_a_discount_is_of_every_rate_of_the_models_it_names() -> None:
    of = book(
        TIERED,
        "model: other, input_per_mtok: 1, output_per_mtok: 1, from: 2026-01-01",
        rest="tenants: {acme: {discounts: [{id: d, percent: 15, models: [llama], from: 2026-01-01, to: 2027-01-01}]}}",
    )
    at = billed(of, Usage(2000, 1000, 100), "acme")
    assert at.price is not None
    assert at.price.id == "p~d#over-1000"
    assert at.charged_pico is not None
    assert at.list_pico is not None
    assert Fraction(at.charged_pico, at.list_pico) == Fraction(85, 100)
    assert at.full_pico == 2000 * 1_700_000 + 100 * 5_100_000
    assert of.quote("other", "acme", NOON) == of.quote("other", None, NOON)
    after = of.quote("llama", "acme", NOON + timedelta(days=365))
    assert after.price is after.list_price


def test_two_discounts_of_a_tenant_may_follow_each_other_or_be_of_other_models() -> None:
    before = "{percent: 10, from: 2025-01-01, to: 2026-01-01, id: a}"
    now = "{percent: 20, models: [llama], from: 2026-01-01, id: b}"
    other = "{percent: 30, models: [other], from: 2026-01-01, id: c}"
    of = book(LLAMA, rest=f"tenants: {{acme: {{discounts: [{before}, {now}, {other}]}}}}\n")
    found = of.quote("llama", "acme", NOON).price
    assert found is not None
    assert found.id.endswith("~b")


def test_an_own_price_in_another_currency_is_its_own_list_price() -> None:
    own = "model: llama, tenant: acme, currency: JPY, input_per_mtok: 100, output_per_mtok: 400, from: 2026-01-01"
    quote = book(LLAMA, own).quote("llama", "acme", NOON)
    assert quote.price is not None
    assert quote.price is quote.list_price
    assert quote.price.currency == "JPY"


def test_prices_of_tenants_and_of_the_list_may_overlap_but_not_among_themselves() -> None:
    acme = LLAMA + ", tenant: acme"
    book(LLAMA, acme, LLAMA + ", tenant: globex")
    with pytest.raises(PricesInvalid, match="overlaps a of model llama for tenant acme"):
        book(acme + ", id: a", acme + ", id: b")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("{percent: 10, from: 2026-01-01}, {percent: 20, models: [llama], from: 2026-05-01}", "one discount at most"),
        (
            "{percent: 10, from: 2026-01-01, id: x}, {percent: 20, from: 2025-01-01, to: 2026-01-01, id: x}",
            "used twice",
        ),
        ("{percent: 0, from: 2026-01-01}", "above 0 and at most 100"),
        ("{percent: 101, from: 2026-01-01}", "above 0 and at most 100"),
        ("{percent: 0.00001, from: 2026-01-01}", "coarser percentage"),
        ("{percent: 10, from: 2026-01-01, id: a~b}", "must not contain"),
        ("{percent: 10, from: 2026-01-01, models: llama}", "`models` must be a list"),
    ],
)
def test_a_wrong_discount_says_what_and_where(rest: str, message: str) -> None:
    with pytest.raises(PricesInvalid, match=message):
        book(LLAMA, rest=f"tenants: {{acme: {{discounts: [{rest}]}}}}\n")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (LLAMA + ", output_ratio: 4", "give `output_per_mtok` or `output_ratio`, not both"),
        (LLAMA + ", currency: XYZ", "not in ISO 4217"),
        (LLAMA + ", cache_write_per_mtok: 1e-999999999", "too far from one"),
        (LLAMA + ", cache_write_per_mtok: 1" + "0" * 70, "too long"),
        (LLAMA + ", id: a#over-3", "must not contain"),
        (LLAMA + ", min_cached_tokens: 1.5", "whole number of tokens"),
        (LLAMA + ", cached_step_tokens: 0", "whole number of tokens from 1"),
        (LLAMA + ", context_tiers: [{input_per_mtok: 1}]", "`over_prompt_tokens` is missing"),
        (
            LLAMA + ", context_tiers: [{over_prompt_tokens: 9}, {over_prompt_tokens: 9}]",
            "above that of the tier before",
        ),
        (LLAMA + ", context_tiers: [{over_prompt_tokens: 9, cached_input_per_mtok: 2}]", "dearer than a fresh one"),
        (LLAMA + ", volume_tiers: [{bucket: input, over_tokens: 1}]", "give `per_mtok` or `discount_percent`"),
        (LLAMA + ", volume_tiers: [{bucket: cache_write, over_tokens: 1, per_mtok: 1}]", "no rate for cache_write"),
        (LLAMA + ", volume_tiers: [{bucket: input, over_tokens: 1, discount_percent: 0.00001}]", "finer than"),
        (
            LLAMA + ", volume_tiers: [" + ", ".join(["{bucket: input, over_tokens: 5, per_mtok: 1}"] * 2) + "]",
            "above that of the tier of input before",
        ),
        (TIERED + ", volume_tiers: [{bucket: input, over_tokens: 1, per_mtok: 1}]", "give `discount_percent`"),
    ],
)
def test_a_wrong_price_says_what_and_where(entry: str, message: str) -> None:
    with pytest.raises(PricesInvalid, match=message):
        book(entry)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("bill_cached: expected\n", "must be one of reported, min_of"),
        ("tenants: [acme]\n", "must be a mapping of tenants"),
        ("tenants: {acme: {rebate: 3}}\n", "unknown key 'rebate'"),
        ("defaults: {input_per_mtok: 3}\n", "unknown key 'input_per_mtok'"),
    ],
)
def test_a_wrong_head_says_what_and_where(rest: str, message: str) -> None:
    with pytest.raises(PricesInvalid, match=message):
        book(LLAMA, rest=rest)


# -- exact, whatever the terms

counts = st.integers(0, 3000)


@settings(deadline=None)
@given(counts, counts, counts, counts, st.none() | counts, st.sampled_from([0, 10, 25, 100]), st.booleans())
def test_a_bill_is_what_fractions_say_and_never_negative(
    fresh: int, cached: int, written: int, output: int, expected: int | None, percent: int, doubts: bool
) -> None:
    policy = "min_of_reported_and_expected" if doubts else "reported"
    discount = f"discounts: [{{percent: {percent}, from: 2026-01-01}}], " if percent else ""
    of = book(
        TIERED + ", cache_write_ratio: 1.25, min_cached_tokens: 256, cached_step_tokens: 64",
        rest=f"tenants: {{acme: {{{discount}bill_cached: {policy}}}}}\n",
    )
    prompt = fresh + cached + written
    found = billed(of, Usage(prompt, cached, output, cache_write_tokens=written), "acme", expected)
    believed = min(cached, expected) if doubts and expected is not None else cached
    discounted = CachedRule(256, 64).discounted_tokens(believed)
    base, answer = (1, 4) if prompt <= 1000 else (2, 6)
    on_list = (
        Fraction(base) * (prompt - discounted - written)
        + Fraction(base, 10) * discounted
        + Fraction(base * 5, 4) * written
        + answer * output
    ) / 10**6
    assert found.discounted_tokens == discounted
    assert found.list_pico == on_list * 10**12
    assert found.charged_pico == on_list * 10**12 * (1 - Fraction(percent, 100))
    assert (found.charged_pico or 0) >= 0
    assert found.price is not None
    again = (
        (prompt - discounted - written) * found.price.input_pico
        + discounted * (found.price.cached_input_pico or 0)
        + written * (found.price.cache_write_pico or 0)
        + output * found.price.output_pico
    )
    assert again == found.charged_pico, "a row holds all that its amount follows from"


# -- faults that users of other gateways reported


def amount(raw: dict[str, object], of: PriceBook) -> Charge:
    merger = UsageMerger()
    merger.add(raw)
    return bill(SettlementState.COMPLETE, merger.result().usage, of.quote("llama", None, NOON))


OPENAI = {"prompt_tokens": 10_000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 9_984}}
CLAUDE = {"input_tokens": 16, "cache_read_input_tokens": 9_984, "cache_creation_input_tokens": 0, "output_tokens": 10}


@pytest.mark.parametrize("raw", [OPENAI, CLAUDE])
def test_fault_1_and_3_cached_tokens_are_neither_ignored_nor_counted_twice(raw: dict[str, object]) -> None:
    assert units(amount(raw, book(LLAMA)).charged_pico) == Decimal("0.0010544")  # 16 + 998.4 + 40 millionths


def test_fault_7_and_11_a_price_of_ones_own_has_its_cached_rate_honoured() -> None:
    own = LLAMA.replace("cached_input_ratio: 0.1", "cached_input_per_mtok: 0.02") + ", tenant: acme"
    found = billed(book(LLAMA, own), Usage(1000, 1000, 0), "acme")
    assert units(found.charged_pico) == Decimal("0.00002")


def test_fault_8_10_and_14_no_report_makes_an_amount_negative() -> None:
    for raw in (
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 500}, "completion_tokens": 0},
        {"input_tokens": 0, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 9, "output_tokens": 0},
        {"prompt_tokens": -5, "completion_tokens": -5},
    ):
        assert (amount(dict(raw), book(LLAMA)).charged_pico or 0) >= 0


def test_fault_12_a_price_per_token_in_a_field_per_million_is_refused() -> None:
    with pytest.raises(PricesInvalid, match="per million tokens"):
        book("model: llama, input_per_mtok: 0.0000006, output_per_mtok: 0.0000024, from: 2026-01-01")
    with pytest.raises(PricesInvalid, match="is the unit right"):
        book("model: llama, input_per_mtok: 0.6, cached_input_per_mtok: 60, output_per_mtok: 2.4, from: 2026-01-01")


def test_fault_13_and_26_a_cached_rate_that_is_not_set_is_not_free() -> None:
    found = billed(book(LLAMA.replace("cached_input_ratio: 0.1, ", "")), Usage(1000, 900, 0))
    assert found.charged_pico == found.full_pico == 1000 * 10**6
    assert found.flags == {UsageFlag.NO_CACHED_PRICE}
    assert found.discounted_tokens == 0


def test_fault_15_and_25_written_tokens_are_charged_once() -> None:
    found = billed(book(LLAMA + ", cache_write_ratio: 1.25"), Usage(1000, 0, 0, cache_write_tokens=1000))
    assert units(found.charged_pico) == Decimal("0.00125")


def test_fault_19_a_cached_rate_in_the_file_takes_effect() -> None:
    dear, cheap = (book(LLAMA.replace("0.1", ratio)) for ratio in ("0.5", "0.01"))
    usage = Usage(1000, 1000, 0)
    assert (billed(dear, usage).charged_pico, billed(cheap, usage).charged_pico) == (500 * 10**6, 10 * 10**6)


def test_fault_68_a_long_prompt_has_the_price_of_its_tier_before_it_is_sent() -> None:
    quote = book(TIERED).quote("llama", None, NOON)
    assert quote.price is not None
    assert quote.price.for_prompt(5000).input_pico == 2 * quote.price.for_prompt(1000).input_pico


def test_scenario_n_a_model_without_a_price_is_unpriced_for_every_tenant() -> None:
    of = book(LLAMA, rest="tenants: {acme: {discounts: [{percent: 50, from: 2026-01-01}]}}\n")
    assert of.quote("unknown", "acme", NOON) == Quote(None, None)
    found = bill(SettlementState.COMPLETE, Usage(1, 0, 1), of.quote("unknown", "acme", NOON))
    assert (found.charged_pico, found.list_pico) == (None, None)
    assert UsageFlag.UNPRICED in found.flags


def test_charging_at_one_price_has_it_as_its_own_list_price() -> None:
    found = charge(Buckets(10, 20, 0, 5), price())
    assert found.list_pico == found.charged_pico
    assert PriceBook.empty().quote("llama", "acme", NOON) == Quote(None, None)
