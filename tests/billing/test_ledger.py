"""The ledger over a real SQLite file."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from billing import (
    Ledger,
    LedgerOptions,
    LedgerUnavailable,
    PriceBook,
    RowRefused,
    SettlementState,
    open_ledger,
)
from billing import checkpoints as checkpoints_module
from billing import store as store_module
from billing import writer as writer_module
from billing.database import Sync
from billing.sqlite_file import SqliteFile
from tests.billing.conftest import Rows
from tests.billing.samples import attempt, book, opened, settled
from tests.until import until

IMPATIENT = LedgerOptions(busy_timeout_s=0.01)


def healthy(ledger: Ledger | store_module.LedgerStore) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return ledger.healthy


@contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """Another program holds the write lock of the file, as a stuck disk would hold us up."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_database_that_fails_fails_its_rows_and_works_again(
    ledger_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PROBE_S", 0.01)
    async with open_ledger(ledger_path, book(), options=IMPATIENT) as ledger:
        await ledger.open(opened("before"))
        with locked_by_another(ledger_path):
            with pytest.raises(LedgerUnavailable, match="locked"):
                await ledger.open(opened("lost"))
            assert not healthy(ledger)
            with pytest.raises(LedgerUnavailable, match="locked"):
                await ledger.settle(settled("before"))
        await until(lambda: healthy(ledger))
        await ledger.settle(settled("before"))
        await ledger.open(opened("after"))
    assert [row["request_id"] for row in rows("requests")] == ["after", "before"]
    assert [row["request_id"] for row in rows("settlements")] == ["before"]


async def test_a_settlement_refused_while_the_database_fails_does_not_look_like_a_recovery(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book(), options=IMPATIENT) as ledger:
        with locked_by_another(ledger_path):
            with pytest.raises(LedgerUnavailable):
                await ledger.open(opened())
            with pytest.raises(RowRefused, match="never opened"):
                await ledger.settle(settled())
            assert not healthy(ledger)


async def test_a_probe_that_fails_leaves_the_ledger_unhealthy(
    ledger_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PROBE_S", 0.001)
    store = store_module.LedgerStore(
        SqliteFile(ledger_path, sync="normal", busy_timeout_s=0.01), book(), clock=IMPATIENT.clock
    )
    store.start()
    store.healthy = False
    with locked_by_another(ledger_path):
        store.probe()
    assert not healthy(store)
    store.probe()
    assert healthy(store)
    store.close()


async def test_a_file_that_goes_away_does_not_come_back_empty(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book(), options=IMPATIENT) as ledger:
        await ledger.open(opened("1"))
        with locked_by_another(ledger_path), pytest.raises(LedgerUnavailable):
            await ledger.open(opened("2"))  # drops the connection
        moved = ledger_path.rename(ledger_path.with_suffix(".moved"))
        with pytest.raises(LedgerUnavailable, match="unable to open"):
            await ledger.open(opened("3"))
        assert not ledger_path.exists()
        moved.rename(ledger_path)
        await ledger.open(opened("4"))


async def test_what_an_earlier_owner_left_open_is_interrupted_and_not_zero(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("settled"))
        await ledger.settle(settled("settled"))
        await ledger.open(opened("left open"))
        assert ledger.interrupted == 0
    async with open_ledger(ledger_path, book()) as ledger:
        assert ledger.interrupted == 1
        await ledger.settle(settled("left open"))
        assert ledger.settled_twice == 1
    row = next(row for row in rows("settlements") if row["request_id"] == "left open")
    assert row["state"] == SettlementState.INTERRUPTED
    assert row["currency"] == "USD"
    unknown = {name for name, value in row.items() if value is None}
    assert unknown >= {"prompt_tokens", "cached_tokens", "output_tokens", "full_units", "charged_units", "price_id"}


async def test_rows_cannot_be_changed_or_removed(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(attempts=(attempt(),)))
    with closing(sqlite3.connect(ledger_path)) as connection:
        for table in ("requests", "settlements", "attempts"):
            for statement in (f"UPDATE {table} SET request_id = 'x'", f"DELETE FROM {table}"):
                with pytest.raises(sqlite3.IntegrityError, match="immutable"):
                    connection.execute(statement)


async def test_a_link_to_a_ledger_does_not_let_a_second_gateway_in(ledger_path: Path) -> None:
    link = ledger_path.with_name("link.db")
    link.symlink_to(ledger_path)
    async with open_ledger(ledger_path, book()):
        with pytest.raises(LedgerUnavailable, match="owned by another gateway"):
            async with open_ledger(link, book()):
                pass


async def test_a_second_owner_is_refused_with_the_first_ones_process_id(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()):
        with pytest.raises(LedgerUnavailable, match=rf"owned by another gateway \(process {os.getpid()}\)"):
            async with open_ledger(ledger_path, book()):
                pass
        script = (
            "import asyncio, sys\nfrom billing import *\n"
            "async def main():\n    async with open_ledger(sys.argv[1], PriceBook.empty()): pass\n"
            "try: asyncio.run(main())\nexcept LedgerUnavailable as error: print(error)"
        )
        command = [sys.executable, "-c", script, str(ledger_path)]
        answer = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, text=True, timeout=60))
        assert f"owned by another gateway (process {os.getpid()})" in answer.stdout
    async with open_ledger(ledger_path, book()):
        pass


async def test_an_owner_that_wrote_no_process_id_is_unknown(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()):
        ledger_path.with_name("ledger.db.lock").write_text("")
        with pytest.raises(LedgerUnavailable, match="process unknown"):
            async with open_ledger(ledger_path, book()):
                pass


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="the folder must exist"):
        async with open_ledger(tmp_path / "absent" / "ledger.db", book()):
            pass


async def test_a_file_that_is_no_ledger_is_refused(ledger_path: Path) -> None:
    ledger_path.write_bytes(b"certainly no database" * 100)
    with pytest.raises(LedgerUnavailable, match=r"ledger\.db: file is not a database"):
        async with open_ledger(ledger_path, book()):
            pass
    ledger_path.unlink()
    ledger_path.mkdir()
    with pytest.raises(LedgerUnavailable, match="directory"):
        async with open_ledger(ledger_path, book()):
            pass


async def test_a_ledger_of_a_newer_program_is_refused(ledger_path: Path) -> None:
    with closing(sqlite3.connect(ledger_path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerUnavailable, match="tables are of version 99"):
        async with open_ledger(ledger_path, book()):
            pass


async def test_a_file_system_without_a_write_ahead_log_is_refused(
    ledger_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: connect(":memory:", check_same_thread=False))
    with pytest.raises(LedgerUnavailable, match="write-ahead log"):
        async with open_ledger(ledger_path, book()):
            pass


async def test_only_the_owner_of_the_files_may_read_them(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        for file in ledger_path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


@pytest.mark.parametrize(("sync", "level"), [("normal", 1), ("disk", 2)])
def test_the_two_kinds_of_durability_are_sqlites(ledger_path: Path, sync: Sync, level: int) -> None:
    store = store_module.LedgerStore(
        SqliteFile(ledger_path, sync=sync, busy_timeout_s=1), PriceBook.empty(), clock=IMPATIENT.clock
    )
    store.start()
    try:
        assert store._connected().exec_driver_sql("PRAGMA synchronous").scalar_one() == level
        assert store._connected().exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    finally:
        store.close()


async def test_an_orderly_end_that_cannot_be_noted_is_recovered_from(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book(), options=IMPATIENT) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled())
        blocker = locked_by_another(ledger_path)
        blocker.__enter__()
    blocker.__exit__(None, None, None)
    async with open_ledger(ledger_path, book()) as ledger:
        assert ledger.interrupted == 0
    assert all(owner["ended_at_us"] for owner in rows("owners"))


async def test_the_log_is_moved_into_the_file_beside_the_writer(
    ledger_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "EVERY_PAGES", 10)
    async with open_ledger(ledger_path, book()) as ledger:
        new_bytes = ledger_path.stat().st_size
        await asyncio.gather(*(ledger.open(opened(f"{number:05d}")) for number in range(200)))
        await until(lambda: ledger_path.stat().st_size > new_bytes)


def test_a_log_that_is_too_long_begins_anew_though_commits_never_pause(
    ledger_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints_module, "EVERY_PAGES", 1 << 40)  # the thread sleeps
    database = SqliteFile(ledger_path, sync="normal", busy_timeout_s=1)
    store = store_module.LedgerStore(database, book(), clock=IMPATIENT.clock)
    store.start()
    sizes = []
    for first in range(0, 1000, 50):
        database._checkpoints._too_long = first % 200 == 0
        store.write([opened(f"{number:05d}") for number in range(first, first + 50)])
        sizes.append(ledger_path.with_name("ledger.db-wal").stat().st_size)
    store.close()
    assert max(sizes) < 200_000, "the log is written over from its beginning"
