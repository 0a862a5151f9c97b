"""Rows of a ledger as the audit reads them, from a file and from a server."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.faults.books import rows_of_file, rows_of_server
from bench.faults.types import Attempt, Counts, Row
from billing import Correction, CorrectionKind, SettlementState, open_ledger
from tests.billing.samples import NOON, attempt, book, opened, settled

COST = 1_237_500_000
CREDIT = Correction("c1", NOON, "done", "acme", None, "llama", CorrectionKind.CREDIT, "goodwill", "USD", 0, -5)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path | str, Callable[[], list[Row]]]:
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        return path, lambda: rows_of_file(path, "gateway-0")
    url: str = request.getfixturevalue("postgres_url")
    return url, lambda: rows_of_server(url)


async def test_rows_are_read_with_their_job_their_price_their_attempts_and_corrections(
    where: tuple[Path | str, Callable[[], list[Row]]],
) -> None:
    place, read = where
    async with open_ledger(place, book()) as ledger:
        await ledger.open(replace(opened("done"), job_id="c-0.0"))
        await ledger.settle(settled("done", attempts=(attempt("done"),)))
        await ledger.open(opened("open"))
        await ledger.open(opened("failed"))
        await ledger.settle(settled("failed", None, state=SettlementState.FAILED))
        before = {row.request_id: row for row in read()}
        await ledger.correct(CREDIT)
        after = {row.request_id: row for row in read()}
    done = before["done"]
    assert (done.job, done.state, done.usage, done.endpoint) == ("c-0.0", "complete", Counts(1000, 900, 100), "gpu-a")
    assert (done.charged_pico, done.is_corrected, done.is_estimated) == (COST, False, False)
    assert [type(one) for one in done.attempts] == [Attempt]
    assert (before["open"].state, before["open"].charged_pico, before["open"].attempts) == (None, None, ())
    assert (before["failed"].state, before["failed"].usage) == ("failed", Counts())
    assert (after["done"].charged_pico, after["done"].is_corrected) == (COST - 5, True)
