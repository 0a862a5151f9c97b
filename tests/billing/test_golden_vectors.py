"""Bills that other gateways got wrong in public, as their reporters counted them. Exact to the last digit."""

from decimal import Decimal

import pytest

from billing import Buckets, Price, UsageMerger, charge
from billing.money import amount_text
from tests.billing.samples import price

VECTORS: dict[str, tuple[dict[str, object], Price, str, str]] = {
    "cached tokens at full price": (
        {
            "prompt_tokens": 1_239_328,
            "completion_tokens": 12_909,
            "prompt_tokens_details": {"cached_tokens": 1_188_096},
        },
        price("1.25", "0.125", "10"),
        "0.341642",
        "1.67825",
    ),
    "written tokens also charged as input": (
        {
            "input_tokens": 6,
            "cache_creation_input_tokens": 159_217,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 159_217, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 2_745,
        },
        price("5", "0.5", "25", "6.25"),
        "1.06376125",
        "1.85984625",
    ),
    "rule for cached inside applied to cached outside": (
        {
            "input_tokens": 56_322,
            "cache_read_input_tokens": 72_960,
            "cache_creation_input_tokens": 0,
            "output_tokens": 87,
        },
        price("1", "0.1", "5"),
        "0.064053",
        "-0.008907",
    ),
    "written tokens without lifetimes dropped": (
        {
            "input_tokens": 24_951,
            "cache_read_input_tokens": 64_126,
            "cache_creation_input_tokens": 2_805,
            "output_tokens": 854,
        },
        price("1.75", "0.175", "8.75", "2.1875"),
        "0.0684947375",  # reported as 0.0684947
        "0.0623588",
    ),
    "cached image tokens again at full price": (
        {
            "prompt_tokens": 24_643,
            "completion_tokens": 3_110,
            "total_tokens": 27_753,
            "prompt_tokens_details": {"cached_tokens": 24_503, "image_tokens": 22_000},
        },
        price("1.5", "0.15", "9"),
        "0.03187545",
        "0.06487545",
    ),
}


@pytest.mark.parametrize(("raw", "at", "right", "seen_elsewhere"), VECTORS.values(), ids=VECTORS)
def test_the_amount_is_right_to_the_last_digit(
    raw: dict[str, object], at: Price, right: str, seen_elsewhere: str
) -> None:
    merger = UsageMerger()
    merger.add(raw)
    usage = merger.result().usage
    assert usage is not None
    bill = charge(Buckets.of(usage), at)
    assert bill.charged_pico is not None
    assert Decimal(amount_text(bill.charged_pico)) == Decimal(right) != Decimal(seen_elsewhere)
    assert bill.flags == frozenset()
