"""The same account from SQLite and from PostgreSQL, and from both at once."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing import Correction, CorrectionKind, PeriodInvalid, Usage, open_ledger
from billing.archive import archive_month
from billing.economics import CostReport, cost_json, cost_report, cost_sheets, job_report, ledgers
from billing.when import to_us
from tests.billing.economics.fleet import Asked, costs, moment, rate, write
from tests.billing.samples import book

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


async def test_an_archived_month_is_read_with_its_file_and_refused_without(ledger_path: Path, tmp_path: Path) -> None:
    await write(ledger_path, ASKED)
    credit = Correction("c", moment(50), "r1", "acme", None, "llama", CorrectionKind.CREDIT, "sorry", "USD", 0, -5)
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.correct(credit)
    before = read(ledger_path)
    file = archive_month(ledger_path, "2025-11", tmp_path / "archive", lambda: datetime(2026, 1, 1, tzinfo=UTC)).file
    with ledgers([ledger_path]) as opened:
        for ask in (lambda *at: cost_report(opened, BOOK, *at), lambda *at: job_report(opened, None, *at)):
            with pytest.raises(PeriodInvalid, match="2025-11': its rows were archived"):
                ask(to_us(moment(0)), to_us(moment(3600)))
    for places in ((ledger_path, file), (file, ledger_path), (file,)):
        after = read(*places)
        assert cost_json(after, cost_sheets(after)) == cost_json(before, cost_sheets(before))
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_bytes(ledger_path.read_bytes())
    with pytest.raises(PeriodInvalid, match="archived"):
        read(ledger_path, other)
