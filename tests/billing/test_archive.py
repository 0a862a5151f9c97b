"""A month that is over moves into a file of its own, and no sum and no bill changes."""

import asyncio
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing import (
    Correction,
    CorrectionKind,
    LedgerUnavailable,
    PeriodInvalid,
    Usage,
    archive,
    open_ledger,
    reading,
    report,
)
from billing.archive import archive_month, months_before, restore_month
from billing.maintenance import check, contents, rebuild_sums
from tests.billing.conftest import Execute, Rows, Where
from tests.billing.samples import attempt, book, opened, settled

OCTOBER, NOVEMBER, DECEMBER = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11, 12))
LAST = datetime(2026, 10, 31, 23, 59, 59, 999999, tzinfo=UTC)


def now() -> datetime:
    return datetime(2026, 11, 20, tzinfo=UTC)


async def two_months(where: Where, *, left_open: bool = False) -> None:
    async with open_ledger(where, book()) as ledger:
        futures = []
        for number in range(700):
            at = LAST if number % 2 else NOVEMBER
            futures.append(ledger.open(opened(f"{number}", at=at)))
            settlement = settled(f"{number}", Usage(1000, number, 5), at=at, attempts=(attempt(f"{number}"),))
            futures.append(ledger.settle(settlement))
        credit = Correction("c", LAST, "1", "acme", None, "llama", CorrectionKind.CREDIT, "sorry", "USD", 0, -5)
        futures.append(ledger.correct(credit))
        if left_open:
            futures.append(ledger.open(opened("left open", at=OCTOBER)))
        await asyncio.gather(*futures)


async def test_a_month_moves_and_its_bill_stays(where: Where, rows: Rows, tmp_path: Path) -> None:
    await two_months(where)
    before = report(where, OCTOBER, DECEMBER)
    done = archive_month(where, "2026-10", tmp_path / "archive", now)
    assert (done.requests, done.deleted) == (350, 350)
    assert len(rows("requests")) == len(rows("settlements")) == len(rows("attempts")) == 350
    assert stat.S_IMODE(done.file.stat().st_mode) == 0o400
    assert report(where, OCTOBER, DECEMBER) == before
    assert check(where) == []
    of_month = report(done.file, OCTOBER, NOVEMBER)
    assert of_month.lines == report(where, OCTOBER, NOVEMBER).lines
    assert of_month.adjustments == report(where, OCTOBER, NOVEMBER).adjustments
    assert check(done.file) == []
    assert contents(where).archived == ("2026-10",)
    assert contents(done.file).rows["requests"] == 350


async def test_sums_made_anew_keep_those_of_archived_months(where: Where, tmp_path: Path) -> None:
    await two_months(where)
    before = report(where, OCTOBER, DECEMBER)
    archive_month(where, "2026-10", tmp_path, now)
    rebuild_sums(where)
    assert report(where, OCTOBER, DECEMBER) == before


async def test_a_gateway_goes_on_while_a_month_moves(where: Where, rows: Rows, tmp_path: Path) -> None:
    await two_months(where)
    async with open_ledger(where, book()) as ledger, asyncio.TaskGroup() as group:
        moving = group.create_task(asyncio.to_thread(archive_month, where, "2026-10", tmp_path, now))
        written = 0
        while not moving.done():
            await ledger.open(opened(f"new {written}", at=NOVEMBER))
            await ledger.settle(settled(f"new {written}"))
            written += 1
    assert written > 0
    assert len(rows("requests")) == 350 + written
    assert check(where) == []


async def test_a_move_that_was_cut_off_goes_on(
    where: Where, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_months(where)
    before = report(where, OCTOBER, DECEMBER)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "_digest", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archive_month(where, "2026-10", tmp_path, now)
    assert len(rows("requests")) == 700, "nothing is gone before the file is noted"
    with monkeypatch.context() as patch:
        patch.setattr(archive, "_delete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            archive_month(where, "2026-10", tmp_path, now)
    assert contents(where).archived == ("2026-10",)
    done = archive_month(where, "2026-10", tmp_path, now)
    assert (done.requests, done.deleted) == (350, 350)
    assert archive_month(where, "2026-10", tmp_path, now).deleted == 0
    assert report(where, OCTOBER, DECEMBER) == before


async def test_a_file_that_is_another_one_stops_a_move(where: Where, rows: Rows, tmp_path: Path) -> None:
    await two_months(where)
    file = archive_month(where, "2026-10", tmp_path, now).file
    file.chmod(0o600)
    file.write_bytes(b"something else")
    with pytest.raises(LedgerUnavailable, match="bring it back"):
        archive_month(where, "2026-10", tmp_path, now)


async def test_a_month_that_is_not_over_or_has_a_request_in_flight_is_refused(where: Where, tmp_path: Path) -> None:
    await two_months(where, left_open=True)
    with pytest.raises(PeriodInvalid, match="not over"):
        archive_month(where, "2026-11", tmp_path, now)
    with pytest.raises(LedgerUnavailable, match="in flight"):
        archive_month(where, "2026-10", tmp_path, now)
    assert list(tmp_path.glob("*.db.draft")) == []


async def test_a_month_whose_sums_are_wrong_is_refused(
    where: Where, rows: Rows, execute: Execute, tmp_path: Path
) -> None:
    await two_months(where)
    execute("UPDATE usage_quarters SET requests = requests + 1")
    assert len(check(where)) > 0
    with pytest.raises(LedgerUnavailable, match="sums of"):
        archive_month(where, "2026-10", tmp_path, now)
    assert len(rows("requests")) == 700
    rebuild_sums(where)
    assert check(where) == []
    assert archive_month(where, "2026-10", tmp_path, now).deleted == 350


async def test_months_to_move_are_those_before_the_ones_to_keep(where: Where) -> None:
    async with open_ledger(where, book()) as ledger:
        assert months_before(where, 0, now()) == []
        await ledger.open(opened(at=datetime(2026, 7, 15, tzinfo=UTC)))
    assert months_before(where, 0, now()) == ["2026-07", "2026-08", "2026-09", "2026-10"]
    assert months_before(where, 2, now()) == ["2026-07", "2026-08"]
    assert months_before(where, 12, now()) == []


async def test_a_reading_of_an_archive_says_what_it_is_over(where: Where, tmp_path: Path) -> None:
    await two_months(where)
    file = archive_month(where, "2026-10", tmp_path, now).file
    with reading(file) as connection:
        states = connection.exec_driver_sql("SELECT DISTINCT state FROM settlements").scalars().all()
    assert states == ["complete"]


async def test_a_month_comes_back_from_its_file_row_by_row(where: Where, rows: Rows, tmp_path: Path) -> None:
    await two_months(where)
    tables = ("requests", "settlements", "attempts", "chains", "usage_quarters", "corrections")
    before = {name: rows(name) for name in tables}
    done = archive_month(where, "2026-10", tmp_path, now)
    assert restore_month(where, "2026-10", tmp_path) == done.requests
    assert {name: rows(name) for name in tables} == before
    assert check(where) == []
    assert contents(where).archived == ()
    assert archive_month(where, "2026-10", tmp_path, now).deleted == 350


async def test_a_month_that_was_brought_back_in_part_comes_back_whole(
    where: Where, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two_months(where)
    before = rows("requests")
    archive_month(where, "2026-10", tmp_path, now)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "delete", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            restore_month(where, "2026-10", tmp_path)
    assert contents(where).archived == ("2026-10",)
    assert restore_month(where, "2026-10", tmp_path) == 350
    assert rows("requests") == before


async def test_only_the_file_of_an_archived_month_brings_it_back(where: Where, tmp_path: Path) -> None:
    await two_months(where)
    with pytest.raises(LedgerUnavailable, match="is not archived"):
        restore_month(where, "2026-10", tmp_path)
    file = archive_month(where, "2026-10", tmp_path, now).file
    file.rename(tmp_path / "elsewhere.db")
    with pytest.raises(LedgerUnavailable, match="is not the file"):
        restore_month(where, "2026-10", tmp_path)
