"""The same account from SQLite and from PostgreSQL, and from both at once."""

from pathlib import Path

from billing import Usage
from billing.economics import CostReport, cost_json, cost_report, cost_sheets, ledgers
from billing.when import to_us
from tests.billing.economics.fleet import Asked, costs, moment, rate, write

ASKED = [
    Asked("r1", 0, user="h1", job="j1", group="g", chain=b"a" * 8),
    Asked("r2", 5, 12, prefill_s=3.0, usage=Usage(1400, 800, 100), endpoint="GPU-Z", failed_at=("gpu-a",)),
    Asked("r3", 40, tenant="Umbra", group="g", prefill_s=None, endpoint="Gpu-b", chain=b"a" * 8),
]
BOOK = costs(rate(), rate("GPU-Z"), rate("Gpu-b"))


def read(*places: Path | str) -> CostReport:
    with ledgers(places) as opened:
        return cost_report(opened, BOOK, to_us(moment(0)), to_us(moment(3600)))


async def test_both_databases_say_the_same(ledger_path: Path, postgres_url: str) -> None:
    for place in (ledger_path, postgres_url):
        await write(place, ASKED)
    one, other = read(ledger_path), read(postgres_url)
    assert cost_json(one, cost_sheets(one)) == cost_json(other, cost_sheets(other))


async def test_ledgers_of_two_kinds_are_one_account(ledger_path: Path, postgres_url: str, tmp_path: Path) -> None:
    await write(ledger_path, ASKED[:1])
    await write(postgres_url, ASKED[1:])
    whole = tmp_path / "whole.db"
    await write(whole, ASKED)
    one, other = read(whole), read(ledger_path, postgres_url)
    assert cost_json(one, cost_sheets(one)) == cost_json(other, cost_sheets(other))
