"""The ledger over a real SQLite file."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from billing import (
    Ledger,
    LedgerOptions,
    LedgerUnavailable,
    PriceBook,
    RowRefused,
    SettlementState,
    Usage,
    UsageFlag,
    open_ledger,
)
from billing import store as store_module
from billing import writer as writer_module
from billing.money import joined_pico
from tests.billing.conftest import Rows
from tests.billing.samples import NOON, attempt, book, opened, price, settled

IMPATIENT = LedgerOptions(busy_timeout_s=0.01)


def healthy(ledger: Ledger | store_module.SqliteStore) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return ledger.healthy


@contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """Another program holds the write lock of the file, as a stuck disk would hold us up."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_request_is_opened_and_settled_with_its_bill(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        assert healthy(ledger)
        await ledger.open(opened())
        await ledger.settle(
            settled(attempts=(attempt(outcome="ConnectFailed", status=None), attempt(ordinal=1)), usage_json=b'{"a":1}')
        )
    (request,) = rows("requests")
    assert request["tenant_id"] == "acme"
    assert request["stream"] == 1
    (row,) = rows("settlements")
    assert row["state"] == "complete"
    assert row["usage_json"] == '{"a":1}'
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (1000, 900, 100)
    assert joined_pico(row["full_units"], row["full_pico"]) == 1000 * 1_250_000 + 100 * 10_000_000
    assert joined_pico(row["charged_units"], row["charged_pico"]) == 100 * 1_250_000 + 900 * 125_000 + 100 * 10_000_000
    assert (row["currency"], row["price_id"], row["input_pico"]) == ("USD", "p1", 1_250_000)
    assert [(row["ordinal"], row["status"]) for row in rows("attempts")] == [(0, None), (1, 200)]


async def test_two_hundred_clients_at_once_lose_nothing(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:

        async def client(number: int) -> None:
            for call in range(10):
                request_id = f"{number:03d}-{call}"
                await ledger.open(opened(request_id))
                await ledger.settle(settled(request_id, attempts=(attempt(request_id),)))

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(client(number))
    assert len(rows("requests")) == len(rows("settlements")) == len(rows("attempts")) == 2000


async def test_a_second_settlement_is_ignored_and_counted(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        await asyncio.gather(ledger.settle(settled()), ledger.settle(settled(usage=Usage(5, 0, 5))))
        await ledger.settle(settled(usage=Usage(6, 0, 6), attempts=(attempt(),)))
        assert ledger.settled_twice == 2
    (row,) = rows("settlements")
    assert row["prompt_tokens"] == 1000
    assert rows("attempts") == []


async def test_a_settlement_of_a_request_never_opened_is_refused(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        with pytest.raises(RowRefused, match="never opened"):
            await ledger.settle(settled("ghost"))
        assert healthy(ledger)
    assert rows("settlements") == []


async def test_one_bad_row_is_refused_alone(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("twice"))
        futures = [ledger.open(opened(f"{n:02d}")) for n in range(20)]
        futures.append(ledger.open(opened("twice")))
        futures.append(ledger.open(opened("surrogate", tenant="\ud800")))
        futures.append(ledger.open(opened("too big", prompt_tokens_expected=2**70)))
        futures += [ledger.open(opened(f"{n:02d}")) for n in range(20, 40)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert healthy(ledger)
    refused = [outcome for outcome in outcomes if outcome is not None]
    assert [type(outcome) for outcome in refused] == [RowRefused] * 3
    assert [row["request_id"] for row in rows("requests")] == [*(f"{n:02d}" for n in range(40)), "twice"]


async def test_facts_that_are_not_remembered_are_read_back(
    ledger_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_FACTS", 2)
    async with open_ledger(ledger_path, book()) as ledger:
        for n in range(6):
            await ledger.open(opened(f"{n}"))
        for n in range(6):
            await ledger.settle(settled(f"{n}"))
    assert {row["price_id"] for row in rows("settlements")} == {"p1"}


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
        async with asyncio.timeout(10):
            while not healthy(ledger):
                await asyncio.sleep(0)
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
    store = store_module.SqliteStore(
        ledger_path, book(), "o", sync="normal", busy_timeout_s=0.01, clock=IMPATIENT.clock
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


async def test_an_orderly_end_leaves_nothing_to_recover(ledger_path: Path, rows: Rows) -> None:
    for n in range(3):
        async with open_ledger(ledger_path, book()) as ledger:
            assert ledger.interrupted == 0
            await ledger.open(opened(f"{n}"))
            await ledger.settle(settled(f"{n}"))
    assert all(owner["ended_at_us"] for owner in rows("owners"))
    assert {row["state"] for row in rows("settlements")} == {"complete"}


async def test_rows_cannot_be_changed_or_removed(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(attempts=(attempt(),)))
    with closing(sqlite3.connect(ledger_path)) as connection:
        for table in ("requests", "settlements", "attempts"):
            for statement in (f"UPDATE {table} SET request_id = 'x'", f"DELETE FROM {table}"):
                with pytest.raises(sqlite3.IntegrityError, match="immutable"):
                    connection.execute(statement)


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
    with pytest.raises(LedgerUnavailable, match="tables of version 99"):
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
def test_the_two_kinds_of_durability_are_sqlites(ledger_path: Path, sync: store_module.Sync, level: int) -> None:
    store = store_module.SqliteStore(
        ledger_path, PriceBook.empty(), "o", sync=sync, busy_timeout_s=1, clock=IMPATIENT.clock
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


async def test_cancelling_the_opening_leaves_no_thread_and_no_lock(ledger_path: Path) -> None:
    async def open_for_ever() -> None:
        async with open_ledger(ledger_path, book()):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(open_for_ever())
        await asyncio.sleep(0)
        task.cancel()
    async with open_ledger(ledger_path, book()):
        pass


async def test_usage_that_contradicts_itself_is_clamped_here_too(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(usage=Usage(100, 250, -4), flags={UsageFlag.ESTIMATED}))
    (row,) = rows("settlements")
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 100, 0)
    assert row["flags"] == "clamped,estimated"
    assert joined_pico(row["charged_units"], row["charged_pico"]) == 100 * 125_000


async def test_the_price_is_that_of_the_opening(ledger_path: Path, rows: Rows) -> None:
    midnight = NOON + timedelta(hours=12)
    prices = book(price("1", id_="before", valid_to=midnight), price("2", id_="after", valid_from=midnight))
    async with open_ledger(ledger_path, prices) as ledger:
        await ledger.open(opened("1", at=midnight - timedelta(microseconds=1)))
        await ledger.open(opened("2", at=midnight))
        await ledger.settle(settled("1", at=midnight + timedelta(hours=1)))
        await ledger.settle(settled("2", at=midnight + timedelta(hours=1)))
    assert [row["price_id"] for row in rows("settlements")] == ["before", "after"]


async def test_errors_of_the_database_hold_no_values(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("twice", tenant="a-secret-tenant"))
        with pytest.raises(RowRefused) as caught:
            await ledger.open(opened("twice", tenant="a-secret-tenant"))
    assert "a-secret-tenant" not in str(caught.value)
    assert not isinstance(caught.value, SQLAlchemyError)
