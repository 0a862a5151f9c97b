"""Faults of other gateways, by their numbers in our list of them: cached tokens mispriced (3a), usage of streams (3b).

Each is a report as those gateways had it, and what it should have cost, worked out by hand. What needs a wire, a price
file or a report is tested elsewhere: `test_index_of_scenarios.py` says where.
"""

from decimal import Decimal

import pytest

from billing import Buckets, Price, UsageFlag, UsageMerger, charge
from billing.money import amount_text
from tests.billing.samples import price

Reports = tuple[dict[str, object], ...]
NONE: frozenset[UsageFlag] = frozenset()
DOLLARS = price("1", "0.1", "10", "1.25")
"""Per million: a fresh token a millionth of a dollar, a cached one a tenth of that."""
OPENAI: dict[str, object] = {
    "prompt_tokens": 10_000,
    "completion_tokens": 100,
    "total_tokens": 10_100,
    "prompt_tokens_details": {"cached_tokens": 8_000},
}
ANTHROPIC: dict[str, object] = {
    "input_tokens": 2_000,
    "cache_read_input_tokens": 8_000,
    "cache_creation_input_tokens": 0,
    "output_tokens": 100,
}
START: dict[str, object] = {"input_tokens": 2_000, "cache_read_input_tokens": 8_000, "output_tokens": 1}

FAULTS: dict[str, tuple[Reports, Price, str, frozenset[UsageFlag]]] = {
    "3a-1 cached tokens ignored, or counted twice": ((OPENAI,), DOLLARS, "0.0038", NONE),
    "3a-3 cached inside the prompt and outside of it": (
        ({**OPENAI, "cache_read_input_tokens": 8_000},),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3a-4 cached at four times its price": ((OPENAI,), price("1", "0.25", "10"), "0.005", NONE),
    "3a-5 hits that nobody asked for ignored": (
        ({"prompt_tokens": 10_000, "completion_tokens": 100, "cached_tokens": 8_000},),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3a-6 hits at the full price": ((OPENAI,), price("1", "0.5", "10"), "0.007", NONE),
    "3a-8 negative cost: less input than was read from the cache": (
        ({"input_tokens": 16, "cache_read_input_tokens": 8_000, "cache_creation_input_tokens": 0, "output_tokens": 0},),
        DOLLARS,
        "0.000816",
        NONE,
    ),
    "3a-9 negative text tokens beside cached images": (
        (
            {
                "prompt_tokens": 1_000,
                "completion_tokens": 0,
                "prompt_tokens_details": {"cached_tokens": 900, "image_tokens": 800, "text_tokens": -700},
            },
        ),
        DOLLARS,
        "0.00019",
        NONE,
    ),
    "3a-10 negative cost: more cached than prompt": (
        ({"prompt_tokens": 100, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 250}},),
        DOLLARS,
        "0.00001",
        frozenset({UsageFlag.CLAMPED}),
    ),
    "3a-13 no cached rate made cached tokens free": (
        (OPENAI,),
        price("1", None, "10"),
        "0.011",
        frozenset({UsageFlag.NO_CACHED_PRICE}),
    ),
    "3a-14 negative input came back after a fix": (
        ({**OPENAI, "prompt_tokens": 7_000, "total_tokens": None},),
        DOLLARS,
        "0.0017",
        frozenset({UsageFlag.CLAMPED}),
    ),
    "3a-15 writes for five minutes not charged": (
        (
            {
                "input_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 4_000},
                "output_tokens": 0,
            },
        ),
        DOLLARS,
        "0.005",
        NONE,
    ),
    "3a-18 the convention read wrongly": ((ANTHROPIC,), DOLLARS, "0.0038", NONE),
    "3a-21 cached never filled where its details come late": (
        ({**OPENAI, "prompt_tokens_details": None}, OPENAI),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3a-25 writes charged twice": (
        (
            {
                "input_tokens": 10,
                "cache_creation_input_tokens": 4_000,
                "cache_creation": {"ephemeral_5m_input_tokens": 1_000, "ephemeral_1h_input_tokens": 3_000},
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
            },
        ),
        DOLLARS,
        "0.00501",
        NONE,
    ),
    "3a-27 prompt tokens that mean another thing": (
        (
            {
                "prompt_tokens": 10_000,
                "completion_tokens": 100,
                "prompt_cache_hit_tokens": 8_000,
                "prompt_cache_miss_tokens": 2_000,
            },
        ),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3b-33 a total without the reasoning": (
        (
            {
                "input_tokens": 10_000,
                "input_tokens_details": {"cached_tokens": 8_000},
                "output_tokens": 100,
                "output_tokens_details": {"reasoning_tokens": 60},
                "total_tokens": 10_100,
            },
        ),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3b-34 a total that is the output only": (
        ({**ANTHROPIC, "total_tokens": None}, {"output_tokens": 100}),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3b-35 a message_delta that loses input and cache": ((START, {"output_tokens": 100}), DOLLARS, "0.0038", NONE),
    "3b-36 cumulative usage summed": (
        tuple({**OPENAI, "completion_tokens": k, "total_tokens": 10_000 + k} for k in range(1, 101)),
        DOLLARS,
        "0.0038",
        NONE,
    ),
    "3b-37 a streamed call deducted twice": ((OPENAI, OPENAI), DOLLARS, "0.0038", NONE),
}


@pytest.mark.parametrize(("reports", "at", "right", "flags"), FAULTS.values(), ids=FAULTS)
def test_what_others_got_wrong_is_right_to_the_last_digit(
    reports: Reports, at: Price, right: str, flags: frozenset[UsageFlag]
) -> None:
    merger = UsageMerger()
    for each in reports:
        merger.add(each)
    found = merger.result()
    assert found.usage is not None
    bill = charge(Buckets.of(found.usage), at)
    assert bill.charged_pico is not None
    assert Decimal(amount_text(bill.charged_pico)) == Decimal(right)
    assert bill.flags | found.flags == flags
    assert found.usage.prompt_tokens is not None
    assert min(found.usage.prompt_tokens, bill.charged_pico) >= 0


def test_3a_12_a_price_per_million_typed_where_a_token_was_meant_is_a_million_times_too_much_and_says_its_unit() -> (
    None
):
    """The unit is in the name of each field, and a token is priced exactly."""
    assert price("1.25").input_pico == 1_250_000
    assert Decimal(amount_text(price("1.25").input_pico * 1_000_000)) == Decimal("1.25")


def test_3b_29_a_report_of_the_engine_stands_where_there_is_one() -> None:
    """No estimate takes its place: nothing of a report is flagged as one."""
    merger = UsageMerger()
    merger.add(OPENAI)
    assert UsageFlag.ESTIMATED not in merger.result().flags
