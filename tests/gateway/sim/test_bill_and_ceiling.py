"""A run has a bill by the server's own arithmetic, and a hit share that no policy can pass."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing import Buckets, Price, PriceBook, charge
from gateway.sim import Workload
from gateway.sim.bill import Bill, PriceUnclear, bill_of, price_of
from gateway.sim.ceiling import ceiling_of
from gateway.sim.records import Records
from gateway.sim.summary import money
from tests.gateway.sim.scripted import BLOCK, ask

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def price(model: str = "m", cached: int | None = 100) -> Price:
    return Price(f"price of {model}", model, "USD", 1000, 4000, datetime(2026, 1, 1, tzinfo=UTC), None, cached)


def records_of(rows: list[tuple[int, int, int, bool]]) -> Records:
    """Of prompt, cached and output tokens, and whether the answer is whole."""
    records = Records(1)
    for prompt, cached, output, whole in rows:
        row = records.begin(0.0, prompt, output)
        records.sent(row, 0)
        records.first_token(row, 1.0, cached, None)
        if whole:
            records.ended(row, 2.0)
    return records


@given(
    st.lists(
        st.tuples(st.integers(1, 100_000), st.floats(0, 1), st.integers(1, 9_000), st.booleans()).map(
            lambda row: (row[0], int(row[0] * row[1]), row[2], row[3])
        )
    ),
    st.sampled_from([None, 0, 100, 1000]),
)
def test_a_bill_is_the_sum_of_what_each_whole_answer_is_charged(
    rows: list[tuple[int, int, int, bool]], cached_pico: int | None
) -> None:
    charges = [charge(Buckets(p - c, c, 0, o), price(cached=cached_pico)) for p, c, o, whole in rows if whole]
    bill = bill_of(records_of(rows), price(cached=cached_pico))
    assert bill.charged_pico == sum(one.charged_pico or 0 for one in charges)
    assert bill.full_pico == sum(one.full_pico or 0 for one in charges)
    assert bill.saved_pico == sum(one.saved_pico or 0 for one in charges)


def test_without_a_price_a_bill_is_unknown_and_not_nothing() -> None:
    assert bill_of(records_of([(10, 0, 1, True)]), None) == Bill(None, None, None)
    assert Bill(None, None, None).saved_pico is None


def test_the_price_is_that_of_the_model_at_the_time() -> None:
    book = PriceBook("USD", (price("m"), price("n")))
    assert price_of(book, "n", NOON) == price("n")
    assert price_of(book, "x", NOON) is None
    assert price_of(book, "m", datetime(2025, 1, 1, tzinfo=UTC)) is None
    assert price_of(PriceBook("USD", (price("m"),)), None, NOON) == price("m")
    with pytest.raises(PriceUnclear, match="m, n"):
        price_of(book, None, NOON)
    with pytest.raises(PriceUnclear, match="no model"):
        price_of(PriceBook.empty(), None, NOON)


def test_amounts_are_shown_with_the_digits_they_need() -> None:
    assert money("USD", 1_234_567_890_000_000) == "USD 1,234.57"
    assert money("EUR", 341_642_000_000) == "EUR 0.341642"
    assert money("USD", 0) == "USD 0.000000"
    assert (money(None, None), money("USD", None)) == ("-", "-")


def test_an_unlimited_cache_reuses_the_leading_run_save_for_the_last_token() -> None:
    prompts = [ask(0, 0.0, "a", tokens=16), ask(1, 0.0, "a", tokens=16), ask(2, 0.0, "a", tokens=22), ask(3, 0.0, "b")]
    ceiling = ceiling_of(Workload("by hand", BLOCK, prompts))
    assert ceiling.hit_share == (0 + 12 + 16 + 0) / (16 + 16 + 22 + 16)


def test_of_more_blocks_than_are_kept_and_of_nothing_the_ceiling_is_unknown() -> None:
    prompts = [ask(number, 0.0) for number in range(3)]
    assert ceiling_of(Workload("by hand", BLOCK, prompts), most_blocks=11).hit_share is None
    assert ceiling_of(Workload("by hand", BLOCK, prompts), most_blocks=12).hit_share == 0.0
    assert ceiling_of(Workload("by hand", BLOCK, [])).hit_share is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), max_size=30))
def test_the_ceiling_is_what_comparing_all_prompts_gives(prompts: list[tuple[str, int]]) -> None:
    requests = [ask(number, 0.0, name, tokens=tokens) for number, (name, tokens) in enumerate(prompts)]
    cached = 0
    for number, (name, tokens) in enumerate(prompts):
        longest = max((other // BLOCK for letter, other in prompts[:number] if letter == name), default=0)
        cached += min(longest, (tokens - 1) // BLOCK) * BLOCK
    total = sum(tokens for _, tokens in prompts)
    assert ceiling_of(Workload("by hand", BLOCK, requests)).hit_share == (cached / total if total else None)


def test_each_request_has_the_tier_of_its_own_prompt() -> None:
    tiered = "model: m, input_per_mtok: 1, output_per_mtok: 1, from: 2026-01-01"
    above = (
        "context_tiers: [{over_prompt_tokens: 100, input_per_mtok: 2}], cached_input_ratio: 0.1, min_cached_tokens: 50"
    )
    book = PriceBook.parse(f"currency: USD\nprices: [{{{tiered}, {above}}}]")
    rows = [(60, 40, 0, True), (60, 50, 0, True), (101, 100, 0, True)]
    found = bill_of(records_of(rows), book.price_at("m", NOON))
    assert found.charged_pico == 60 * 10**6 + (10 * 10**6 + 50 * 10**5) + (2 * 10**6 + 100 * 2 * 10**5)
