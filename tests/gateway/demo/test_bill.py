from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from billing import OpenedRequest, PriceBook, Settlement, SettlementState, Usage, UsageFlag, open_ledger
from gateway.demo.bill import read_bill, read_cached_tokens
from gateway.demo.types import DemoFailed

NOW = datetime(2025, 6, 1, tzinfo=UTC)
PRICES = """
currency: USD
prices:
  - {model: tiny, input_per_mtok: 3.00, cached_input_per_mtok: 0.30, output_per_mtok: 15.00, from: 2000-01-01T00:00:00Z}
"""


async def ledger_of(tmp_path: Path, *used: tuple[str, Usage], model: str = "tiny") -> Path:
    prices, path = tmp_path / "prices.yaml", tmp_path / "ledger.db"
    prices.write_text(PRICES)
    async with open_ledger(path, PriceBook.load(prices)) as ledger:
        for number, (tenant, usage) in enumerate(used):
            name = f"r{number}"
            await ledger.open(
                OpenedRequest(name, NOW, tenant, f"{tenant}-1", "g", model, "/v1/chat/completions", True, None)
            )
            await ledger.settle(
                Settlement(
                    request_id=name,
                    settled_at=NOW,
                    state=SettlementState.COMPLETE,
                    http_status=200,
                    endpoint_id="engine-0",
                    usage=usage,
                    usage_json=None,
                    convention=None,
                    flags=frozenset() if usage.cached_tokens is not None else frozenset({UsageFlag.UNREPORTED}),
                    expected_cached_tokens=None,
                    ttft_s=0.1,
                    duration_s=0.2,
                    attempts=(),
                )
            )
    return path


async def test_the_lines_of_the_bill_add_up_to_the_total_to_the_last_digit(tmp_path: Path) -> None:
    path = await ledger_of(
        tmp_path, ("acme", Usage(100, 64, 7)), ("birch", Usage(33, 0, 3)), ("acme", Usage(17, 16, 1))
    )
    lines, total = read_bill(path)
    assert [(one.tenant, one.requests, one.prompt_tokens, one.cached_tokens) for one in lines] == [
        ("acme", 2, 117, 80),
        ("birch", 1, 33, 0),
    ]
    assert Decimal(lines[0].charged) == (37 * 3 + 80 * Decimal("0.3") + 8 * 15) / 10**6
    for field in ("full_price", "charged", "saved"):
        assert sum(Decimal(getattr(one, field)) for one in lines) == Decimal(getattr(total, field))
    assert read_cached_tokens(path) == total.cached_tokens == 80


async def test_a_count_that_no_engine_reported_cannot_be_compared(tmp_path: Path) -> None:
    path = await ledger_of(tmp_path, ("acme", Usage(100, None, 7)))
    with pytest.raises(DemoFailed, match="1 requests whose engine did not report"):
        read_cached_tokens(path)


async def test_a_bill_without_a_price_is_refused(tmp_path: Path) -> None:
    path = await ledger_of(tmp_path, ("acme", Usage(100, 0, 7)), model="unknown")
    with pytest.raises(DemoFailed, match="acme have no price"):
        read_bill(path)


def test_a_missing_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(DemoFailed, match=r"no ledger at .*nowhere\.db"):
        read_cached_tokens(tmp_path / "nowhere.db")
