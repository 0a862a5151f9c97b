"""A row of the ledger holds all that its amount follows from: editing prices changes no bill of the past."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from billing import Usage, open_ledger
from billing.prices.live import LivePrices
from tests.billing.samples import NOON, opened, settled

BOOK = """
currency: USD
prices:
  - id: old
    model: llama
    input_per_mtok: 1
    cached_input_ratio: 0.1
    cache_write_ratio: 1.25
    output_per_mtok: 4
    min_cached_tokens: 256
    cached_step_tokens: 64
    from: 2026-01-01
    to: 2026-11-15T12:00:01
    context_tiers: [{over_prompt_tokens: 1000, input_per_mtok: 2}]
  - {id: new, model: llama, input_per_mtok: 8, cached_input_ratio: 0.5, output_per_mtok: 9, from: 2026-11-15T12:00:01}
tenants:
  acme: {bill_cached: min_of_reported_and_expected, discounts: [{id: d, percent: 20, from: 2026-01-01}]}
"""
ROW = """
    SELECT price_id, prompt_tokens - discounted_tokens - coalesce(cache_write_tokens, 0), discounted_tokens,
           coalesce(cache_write_tokens, 0), output_tokens, input_pico, coalesce(cached_input_pico, 0),
           coalesce(cache_write_pico, input_pico), output_pico, charged_units * 1000000000000 + charged_pico
    FROM settlements ORDER BY request_id"""


def rows(path: Path) -> list[tuple[str, int]]:
    """Price id and amount of each row, after each amount was computed again from its row alone."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(ROW).fetchall()
    for _, fresh, cached, written, output, *rates, charged in found:
        assert charged == sum(count * rate for count, rate in zip((fresh, cached, written, output), rates, strict=True))
    return [(row[0], row[-1]) for row in found]


@pytest.mark.parametrize(
    "edited", ["currency: USD\nprices: []\n", BOOK.replace("input_per_mtok: 1", "input_per_mtok: 5")]
)
async def test_q_rows_that_are_written_are_as_they_were_after_prices_change(tmp_path: Path, edited: str) -> None:
    file, ledger_path = tmp_path / "prices.yaml", tmp_path / "ledger.db"
    file.write_text(BOOK)
    prices = LivePrices(file, lambda: NOON)
    async with open_ledger(ledger_path, prices) as ledger:
        for number, prompt in enumerate((900, 1900)):
            await ledger.open(opened(f"r{number}"))
            usage = Usage(prompt, 800, 100, cache_write_tokens=50)
            await ledger.settle(settled(f"r{number}", usage, expected_cached_tokens=400))
        before = rows(ledger_path)
        file.write_text(edited)
        assert prices.reload().problem is None
        assert rows(ledger_path) == before
    discounted = 256 + (400 - 256) // 64 * 64
    fresh = 900 - discounted - 50
    assert before == [
        ("old~d", fresh * 800_000 + discounted * 80_000 + 50 * 1_000_000 + 100 * 3_200_000),
        (
            "old~d#over-1000",
            (fresh + 1000) * 1_600_000 + discounted * 160_000 + 50 * 2_000_000 + 100 * 3_200_000,
        ),
    ]


async def test_o_the_price_is_that_of_the_moment_at_which_a_request_came_in_whatever_was_read_since(
    tmp_path: Path,
) -> None:
    file, ledger_path = tmp_path / "prices.yaml", tmp_path / "ledger.db"
    file.write_text(BOOK)
    prices = LivePrices(file, lambda: NOON)
    async with open_ledger(ledger_path, prices) as ledger:
        await ledger.open(opened("r0"))
        await ledger.open(opened("r1", at=NOON + timedelta(seconds=1)))
        prices.reload()
        for name in ("r0", "r1"):
            await ledger.settle(settled(name, Usage(10, 0, 0), at=NOON + timedelta(seconds=9)))
    assert [price_id for price_id, _ in rows(ledger_path)] == ["old~d", "new~d"]
