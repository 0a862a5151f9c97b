"""Several gateways on one PostgreSQL: what a dead one left open is closed by another, and only then."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count

import psycopg
import pytest

from billing import Ledger, LedgerOptions, open_ledger, reading
from billing.database import Watcher
from billing.money import joined_pico
from billing.postgres import Postgres, postgres_engine
from billing.postgres_address import postgres_url as with_driver
from billing.rollup_sql import differences
from billing.store import LedgerStore
from billing.takeover import Takeover, lock_key
from billing.writer import Record
from tests.billing.conftest import Rows
from tests.billing.samples import book, opened, settled
from tests.until import until

QUICK = LedgerOptions(takeover_s=0.2)
SLOW = LedgerOptions(takeover_s=3600)

GATEWAY = """
import asyncio, sys
from billing import open_ledger
from tests.billing.samples import book, opened, settled

async def main():
    async with open_ledger(sys.argv[1], book()) as ledger:
        for call in range(20):
            await ledger.open(opened(f"{sys.argv[2]}-{call}"))
            if call % 2:
                await ledger.settle(settled(f"{sys.argv[2]}-{call}"))
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def rows(postgres_url: str) -> Rows:
    def read(table: str) -> list[dict[str, object]]:
        with psycopg.connect(postgres_url, row_factory=psycopg.rows.dict_row) as server:
            return server.execute(f"SELECT * FROM {table} ORDER BY 1, 2".encode()).fetchall()

    return read


def interrupted(ledger: Ledger) -> int:
    """Asked through a function, since a type checker takes a property for a constant."""
    return ledger.interrupted


def end_sessions(url: str) -> None:
    """As a network that failed would: the server forgets the sessions, the gateways do not know yet."""
    with psycopg.connect(url) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )


def is_held(url: str, owner_id: str) -> bool:
    """Whether a session stands for the owner."""
    with psycopg.connect(url) as server:
        taken = server.execute("SELECT pg_try_advisory_lock(%s)", (lock_key(owner_id),)).fetchone()
        return taken == (False,)


def takeover(url: str, takeover_s: float, clock: Callable[[], float]) -> tuple[Takeover, list[int]]:
    """What looks after the owners of the ledger, for a third gateway, without its thread."""
    closed: list[int] = []
    watcher = Watcher(lambda: "third", "USD", lambda: int(datetime.now(UTC).timestamp() * 1e6), closed.append)
    return Takeover(postgres_engine(with_driver(url)), watcher, takeover_s, clock), closed


async def test_a_killed_gateways_open_rows_are_closed_once_by_those_that_live(postgres_url: str, rows: Rows) -> None:
    gateways = []
    for name in ("a", "b"):
        command = [sys.executable, "-c", GATEWAY, postgres_url, name]
        gateways.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    try:
        for gateway in gateways:
            assert gateway.stdout is not None
            assert await asyncio.to_thread(gateway.stdout.readline) == "ready\n"
        async with (
            open_ledger(postgres_url, book(), options=QUICK) as one,
            open_ledger(postgres_url, book(), options=QUICK) as two,
        ):
            gateways[0].kill()
            await until(lambda: interrupted(one) + interrupted(two) >= 10)
            states = {row["request_id"]: row["state"] for row in rows("settlements")}
            assert {states[f"a-{call}"] for call in range(0, 20, 2)} == {"interrupted"}
            assert {states[f"a-{call}"] for call in range(1, 20, 2)} == {"complete"}
            assert {f"b-{call}" for call in range(0, 20, 2)} & states.keys() == set(), "b lives"
            assert interrupted(one) + interrupted(two) == 10
    finally:
        for gateway in gateways:
            gateway.kill()
            gateway.communicate()
    with reading(postgres_url) as connection:
        assert list(differences(connection)) == []


async def test_a_gateway_that_lives_is_not_taken_for_dead_by_a_broken_session(postgres_url: str, rows: Rows) -> None:
    clock = count(0.0, 100.0)
    watch, closed = takeover(postgres_url, 1000, lambda: next(clock))
    async with open_ledger(postgres_url, book(), options=SLOW) as ledger:
        await ledger.open(opened("1"))
        watch.look()
        end_sessions(postgres_url)
        watch.look()
        for number in range(2, 20):
            await ledger.open(opened(f"{number}"))
            watch.look()
        await ledger.settle(settled("1"))
        assert ledger.settled_twice == 0
    watch.close()
    assert closed == []
    assert len(rows("owners")) == 1


async def test_a_long_call_is_not_closed_while_its_gateway_has_nothing_to_write(
    postgres_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.writer.PROBE_S", 0.01)
    async with open_ledger(postgres_url, book(), options=SLOW) as ledger:
        await ledger.open(opened("long"))
        (owner,) = rows("owners")
        end_sessions(postgres_url)
        await until(lambda: is_held(postgres_url, str(owner["owner_id"])))
        await ledger.settle(settled("long"))
    assert len(rows("owners")) == 1


def test_a_busy_gateway_takes_its_lock_back_from_a_session_that_the_server_still_had(postgres_url: str) -> None:
    database = Postgres(postgres_url, sync="normal", patience_s=1, takeover_s=3600)
    store = LedgerStore(database, book(), clock=lambda: datetime.now(UTC))
    store.start()
    try:
        end_sessions(postgres_url)
        with psycopg.connect(postgres_url) as half_open:
            half_open.execute("SELECT pg_advisory_lock(%s)", (lock_key(store.owner_id),))
            assert store.write([opened("1")]) == [None]
            half_open.execute("SELECT pg_advisory_unlock(%s)", (lock_key(store.owner_id),))
        assert store.write([opened("2")]) == [None]
        assert is_held(postgres_url, store.owner_id)
    finally:
        store.close()


async def test_what_is_settled_after_all_becomes_a_correction(postgres_url: str, rows: Rows) -> None:
    clock = count()
    watch, closed = takeover(postgres_url, 2, lambda: float(next(clock)))
    async with open_ledger(postgres_url, book(), options=SLOW) as ledger:
        for name in ("1", "2"):
            await ledger.open(opened(name))
        end_sessions(postgres_url)
        for _ in range(4):
            watch.look()
        assert closed == [2]
        for _ in range(2):
            await ledger.settle(settled("1"))
        await ledger.open(opened("3"))
        await ledger.settle(settled("3"))
    watch.close()
    assert {row["request_id"]: row["state"] for row in rows("settlements")} == {
        "1": "interrupted",
        "2": "interrupted",
        "3": "complete",
    }
    (late,) = rows("corrections")
    assert (late["correction_id"], late["kind"], late["request_id"]) == ("late-1", "correction", "1")
    assert joined_pico(late["charged_units"], late["charged_pico"]) == 1_237_500_000
    assert len(rows("owners")) == 2, "it goes on under another name"
    with reading(postgres_url) as connection:
        assert list(differences(connection)) == []


async def test_an_owner_is_judged_by_one_session_of_ours_alone(postgres_url: str) -> None:
    clock = count()
    watch, closed = takeover(postgres_url, 3, lambda: float(next(clock)))
    async with open_ledger(postgres_url, book(), options=SLOW) as ledger:
        await ledger.open(opened())
        end_sessions(postgres_url)
        for _ in range(4):
            watch.look()  # 0, 1, 2: free for two
            end_sessions(postgres_url)  # the whole server was away, also for us
            watch.look()
        assert closed == []
    watch.close()


async def test_a_commit_whose_answer_was_lost_is_not_written_twice(
    postgres_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(postgres_url, book(), options=SLOW) as ledger:
        await ledger.open(opened("before"))
        committed = LedgerStore._transaction

        def lost(store: LedgerStore, records: Sequence[Record]) -> object:
            monkeypatch.undo()
            committed(store, records)
            end_sessions(postgres_url)
            return store._connected().exec_driver_sql("SELECT 1")  # raises: the session is gone

        monkeypatch.setattr(LedgerStore, "_transaction", lost)
        await asyncio.gather(ledger.open(opened("1")), ledger.settle(settled("before")))
    assert [row["request_id"] for row in rows("requests")] == ["1", "before"]
    assert [row["request_id"] for row in rows("settlements")] == ["before"]
    with reading(postgres_url) as connection:
        assert list(differences(connection)) == []
