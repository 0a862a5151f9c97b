"""Prices of public APIs, shipped to compare with."""

import re
from collections import Counter
from pathlib import Path

import pytest

from billing import Buckets, PricesInvalid, charge
from billing.prices.public_apis import api_prices


def test_each_price_says_its_source_and_the_month_of_its_data() -> None:
    found = api_prices()
    assert len({one.api for one in found}) >= 9
    for one in found:
        assert re.fullmatch(r"20\d\d-\d\d", one.as_of)
        assert one.source.startswith("https://")
        assert one.price.model == f"{one.api}/{one.model}"
        assert one.price.input_pico > 0
        assert one.price.currency == "USD"


def test_prices_of_one_model_do_not_overlap() -> None:
    open_ended = Counter(one.price.model for one in api_prices() if one.price.valid_to is None)
    assert set(open_ended.values()) == {1}
    flash = [one.price for one in api_prices() if one.price.model == "deepseek/deepseek-v4-flash"]
    flash.sort(key=lambda price: price.valid_from)
    assert [price.valid_to for price in flash[:-1]] == [price.valid_from for price in flash[1:]]


def test_a_cached_token_costs_what_the_provider_asks() -> None:
    prices = {one.price.model: one.price for one in api_prices()}
    gpt, claude = prices["openai/gpt-5"], prices["anthropic/claude-haiku-4-5"]
    assert charge(Buckets(500, 1_500, 0, 0), gpt).discounted_tokens == 1_408
    assert gpt.cached_input_pico == gpt.input_pico // 10
    assert (claude.cached_input_pico, claude.cache_write_pico) == (100_000, 1_250_000)
    assert prices["google/gemini-2.5-pro"].for_prompt(200_001).input_pico == 2_500_000


def test_what_is_shown_has_no_date_that_is_not_known() -> None:
    shown = {one.price.model: one.view() for one in api_prices()}
    assert shown["openai/gpt-5"]["from"] is None
    assert shown["openai/gpt-5.6-sol"]["from"] == "2026-08-21T00:00:00+00:00"
    assert shown["openai/gpt-5"]["model"] == "gpt-5"


def test_a_price_without_its_source_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "apis.yaml"
    path.write_text("prices: [{api: a, model: m, input_per_mtok: 1, output_per_mtok: 1, as_of: 2026-11}]")
    with pytest.raises(PricesInvalid, match="`source` is missing"):
        api_prices(path)
