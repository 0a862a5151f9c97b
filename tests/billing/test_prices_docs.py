"""The page on prices shows every key of both files, and its examples are read as they stand."""

import re
from datetime import UTC, datetime
from pathlib import Path

from billing import PriceBook
from billing.prices.file import (
    BOOK_KEYS,
    CONTEXT_TIER_KEYS,
    DEFAULT_KEYS,
    DISCOUNT_KEYS,
    PRICE_KEYS,
    TENANT_KEYS,
    VOLUME_TIER_KEYS,
)
from billing.prices.plans_file import ALLOWANCE_KEYS, ASSIGNMENT_KEYS, PLAN_KEYS, PLANS_KEYS, POOL_KEYS, parse_plans
from billing.prices.pricing import BillCached, Bucket
from billing.prices.tiers import StatementKind

PAGE = (Path(__file__).parents[2] / "docs" / "prices.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_key_of_a_price_file_is_shown() -> None:
    keys = BOOK_KEYS | DEFAULT_KEYS | PRICE_KEYS | CONTEXT_TIER_KEYS | VOLUME_TIER_KEYS | TENANT_KEYS | DISCOUNT_KEYS
    assert {key for key in keys if f"{key}:" not in PAGE and f"`{key}`" not in PAGE} == set()
    assert {word for word in (*BillCached, *Bucket) if word not in PAGE} == set()


def test_the_price_book_of_the_page_is_read_as_it_stands() -> None:
    book = PriceBook.parse(EXAMPLES[0])
    quote = book.quote("llama-3.3-70b", "globex", datetime(2026, 12, 1, tzinfo=UTC))
    assert quote.price is not None
    assert quote.price.id == "llama-2026-11~globex-winter"
    assert quote.price.input_pico == 510_000
    assert quote.bill_cached is BillCached.MIN_OF_REPORTED_AND_EXPECTED
    own = book.quote("llama-3.3-70b", "initech", datetime(2026, 12, 1, tzinfo=UTC))
    assert own.price is own.list_price
    assert own.price is not None
    assert own.price.currency == "EUR"


def test_every_key_of_a_plans_file_is_shown_and_every_line_of_a_month_explained() -> None:
    keys = PLANS_KEYS | PLAN_KEYS | ALLOWANCE_KEYS | POOL_KEYS | ASSIGNMENT_KEYS
    assert {key for key in keys if f"{key}:" not in PAGE} == set()
    assert set(StatementKind) - set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, flags=re.MULTILINE)) == set()


def test_the_plans_of_the_page_are_read_as_they_stand() -> None:
    plans = parse_plans(EXAMPLES[1])
    assert set(plans.plans) == {"team", "credits"}
    assert [one.plan_id for one in plans.assignments] == ["credits", "team"]
