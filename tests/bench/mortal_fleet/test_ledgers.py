"""The ledger is read as the gateway wrote it."""

from datetime import UTC, datetime
from pathlib import Path

from bench.mortal_fleet.ledgers import read_rows
from bench.mortal_fleet.types import Counts, Row
from billing import OpenedRequest, PriceBook, Settlement, SettlementState, Usage, open_ledger

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def opened(request_id: str) -> OpenedRequest:
    return OpenedRequest(request_id, NOW, "acme", "acme-1", "partners", "tiny", "/v1/chat/completions", True, 100)


def settled(request_id: str) -> Settlement:
    return Settlement(
        request_id=request_id,
        settled_at=NOW,
        state=SettlementState.COMPLETE,
        http_status=200,
        endpoint_id="engine-0",
        usage=Usage(100, 64, 8),
        usage_json=None,
        convention=None,
        flags=frozenset(),
        expected_cached_tokens=48,
        ttft_s=0.1,
        duration_s=0.2,
        attempts=(),
    )


async def test_rows_of_all_states_are_read_with_their_usage_and_amount(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    rates = "input_per_mtok: 3, cached_input_per_mtok: 0.3, output_per_mtok: 15"
    prices.write_text(f"currency: USD\nprices: [{{model: tiny, {rates}, from: 2000-01-01T00:00:00Z}}]\n")
    ledger = tmp_path / "ledger.db"
    async with open_ledger(ledger, PriceBook.load(prices)) as owner:
        for request_id in ("a", "b"):
            await owner.open(opened(request_id))
        await owner.settle(settled("a"))
        whole, left = sorted(read_rows(ledger, 2), key=lambda row: row.request_id)
    amount = 36 * 3_000_000 + 64 * 300_000 + 8 * 15_000_000
    assert whole == Row(2, "a", "acme", "complete", Counts(100, 64, 8), 48, "engine-0", amount)
    assert left == Row(2, "b", "acme", None)
