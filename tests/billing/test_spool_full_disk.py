"""Where the spool has no room, or its disk none, records are refused, and nothing that was taken is harmed."""

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from billing import SettlementState, open_ledger
from billing.spool import Spool, SpoolFull
from tests.billing.conftest import Rows
from tests.billing.outages import away, until_empty, until_healthy, with_spool
from tests.billing.samples import book, opened, settled
from tests.until import until

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Spool]:
    """Who looked whether there is room again, once each time that it did."""
    done: list[Spool] = []
    probe = Spool.probe

    def counted(spool: Spool) -> None:
        probe(spool)
        done.append(spool)

    monkeypatch.setattr(Spool, "probe", counted)
    return done


async def until_probed(probes: list[Spool], times: int) -> None:
    most = len(probes) + times
    await until(lambda: len(probes) >= most)


@contextmanager
def full_disk() -> Iterator[None]:
    """Nothing can be written to a file."""

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", full)
        yield


async def test_a_full_spool_fails_its_records_and_takes_more_when_it_was_handed_in(
    postgres_url: str, rows: Rows, spool_folder: Path
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder, most_bytes=1500)) as ledger:
        with away(postgres_url):
            futures = [ledger.open(opened(f"{number}")) for number in range(100)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            taken = outcomes.count(None)
            assert 0 < taken < 20
            assert {str(outcome)[:39] for outcome in outcomes if outcome} == {"usage ledger unavailable: the spool has"}
        await until_empty(ledger)
        await ledger.open(opened("more"))
    assert len(rows("requests")) == taken + 1


async def test_a_request_that_a_full_spool_turned_away_is_no_record_that_the_ledger_refused(
    postgres_url: str, spool_folder: Path
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        with away(postgres_url):
            await ledger.settle(settled("turned away", None, state=SettlementState.FAILED))
        await until_empty(ledger)
        assert ledger.spool is not None
        assert ledger.spool.refused == 0
    assert not (spool_folder / "refused").exists()


def test_a_spool_that_is_written_to_has_room_meanwhile(spool_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(spool_folder, sync="normal", most_bytes=1 << 20)
    spool.start()
    write, seen = os.write, []

    def looked_at(descriptor: int, content: bytes) -> int:
        seen.append(spool.has_room)
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", looked_at)
    spool.append([opened("1")], "owner")
    monkeypatch.undo()
    assert seen == [True]
    spool.close()


def test_a_disk_that_fills_up_in_the_middle_leaves_whole_records_only(
    spool_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(spool_folder, sync="normal", most_bytes=1 << 20)
    spool.start()
    spool.append([opened("1")], "owner")
    write = os.write

    def full(descriptor: int, content: bytes) -> int:
        if len(content) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, content[: len(content) // 2])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SpoolFull, match="No space left"):
        spool.append([opened("2")], "owner")
    monkeypatch.undo()
    spool.append([opened("3")], "owner")
    segment = spool.oldest()
    assert segment.records == (opened("1"), opened("3"))
    spool.close()


def test_a_disk_that_was_full_at_the_first_record_does_not_lose_whose_the_next_ones_are(spool_folder: Path) -> None:
    spool = Spool(spool_folder, sync="normal", most_bytes=1 << 20)
    spool.start()
    with full_disk(), pytest.raises(SpoolFull, match="No space left"):
        spool.append([opened("1")], "owner")
    spool.append([opened("2")], "owner")
    segment = spool.oldest()
    assert (segment.owner_id, segment.records) == ("owner", (opened("2"),))
    spool.close()


async def test_where_the_disk_is_full_too_nothing_more_is_asked_for_until_there_is_room(
    postgres_url: str, rows: Rows, spool_folder: Path, probes: list[Spool]
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        with away(postgres_url):
            (spool_folder / "probe").mkdir()  # nothing can be written there
            with full_disk():
                with pytest.raises(SpoolFull, match="No space left"):
                    await ledger.open(opened("refused"))
                await until_probed(probes, 3)
                assert not ledger.healthy
            (spool_folder / "probe").rmdir()
            await until_healthy(ledger)
            await ledger.open(opened("taken"))
        await until_empty(ledger)
    assert [row["request_id"] for row in rows("requests")] == ["taken"]
    assert not (spool_folder / "probe").exists()


async def test_a_ledger_that_is_back_needs_no_room_in_the_spool(postgres_url: str, spool_folder: Path) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        (spool_folder / "probe").mkdir()  # nothing can be written there
        with away(postgres_url), full_disk(), pytest.raises(SpoolFull, match="No space left"):
            await ledger.open(opened("refused"))
        await until_healthy(ledger)
        await ledger.open(opened("taken"))
