"""A PostgreSQL that is frozen says nothing at all: its session is given up, and nothing is lost or doubled by that."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from billing import LedgerOptions, LedgerUnavailable, ReportTooSlow, open_ledger
from billing import postgres as postgres_module
from billing.patience import allow, unhurried
from billing.postgres import Postgres
from billing.reports import reading as reports
from billing.reports.reading import one_view
from tests.billing.outages import until_empty, with_spool
from tests.billing.samples import book, opened, settled

READING = sys.modules["billing.reading"]  # `billing` has a function of that name
SILENT_S = 0.2
WITHIN_S = 20.0


@pytest.fixture(autouse=True)
def _more_impatient(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "LEAST_SILENT_S", SILENT_S)


def processes(url: str) -> list[int]:
    """The server's processes that serve this database, ours apart."""
    with psycopg.connect(url) as server:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return [pid for (pid,) in server.execute(query)]


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """They are stopped: their connections stay open, and their machine takes what is sent."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def counted(url: str) -> tuple[int, int]:
    with psycopg.connect(url) as server:
        row = server.execute("SELECT (SELECT count(*) FROM requests), (SELECT count(*) FROM settlements)").fetchone()
    assert row is not None
    return row[0], row[1]


async def test_a_session_that_is_frozen_is_given_up_and_its_rows_are_written_by_another(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ledger(postgres_url, book(), options=LedgerOptions(busy_timeout_s=0.05)) as ledger:
        await ledger.open(opened("before"))
        with frozen(processes(postgres_url)):
            async with asyncio.timeout(WITHIN_S):
                await ledger.open(opened("meanwhile"))
                await ledger.settle(settled("before"))
        await ledger.settle(settled("meanwhile"))
    assert counted(postgres_url) == (2, 2)
    assert caplog.messages == []


async def test_while_nobody_can_be_reached_either_records_wait_on_the_disk(
    postgres_url: str, spool_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        await ledger.open(opened("before"))
        sessions = processes(postgres_url)
        connect = Postgres.connect
        monkeypatch.setattr(Postgres, "connect", _refused)  # a frozen server would let us wait two seconds each time
        monkeypatch.setattr(Postgres, "reach", _refused)
        with frozen(sessions):
            async with asyncio.timeout(WITHIN_S):
                await ledger.open(opened("meanwhile"))
                await ledger.settle(settled("before"))
                await ledger.settle(settled("meanwhile"))
            assert ledger.spool is not None
            assert ledger.spool.is_away
            assert ledger.spool.records == 3
        monkeypatch.setattr(Postgres, "connect", connect)
        monkeypatch.setattr(Postgres, "reach", lambda database: None)
        await until_empty(ledger)
    assert counted(postgres_url) == (2, 2)


def _refused(_: Postgres) -> None:
    raise psycopg.OperationalError("nobody answers")


def test_what_may_take_long_is_not_given_up(postgres_url: str) -> None:
    database = Postgres(postgres_url, sync="normal", patience_s=0.05, takeover_s=3600)
    with database.connect() as connection:
        with unhurried(connection):
            connection.exec_driver_sql("SELECT pg_sleep(%s)" % (1.5 * SILENT_S))
        assert allow(connection, None) == SILENT_S
        connection.exec_driver_sql("SELECT pg_sleep(%s)" % (1.5 * SILENT_S))
        allow(connection, SILENT_S)
        with pytest.raises(database.failures, match=r"said nothing for 0\.2 s"):
            connection.exec_driver_sql("SELECT pg_sleep(5)")
        assert database.is_lost(connection)
        assert allow(connection, None) is None


def test_an_error_of_the_server_is_passed_on_as_it_is(postgres_url: str) -> None:
    database = Postgres(postgres_url, sync="normal", patience_s=0.05, takeover_s=3600)
    with database.connect() as connection:
        process = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with psycopg.connect(postgres_url, autocommit=True) as server:
            server.execute("SELECT pg_terminate_backend(%s)", (process,))
        with pytest.raises(database.failures, match="terminat"):
            connection.exec_driver_sql("SELECT 1")


def test_a_report_does_not_wait_for_ever_for_a_server_that_froze(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "_GRACE_S", 0.0)
    with pytest.raises(ReportTooSlow), one_view(postgres_url, SILENT_S) as connection:  # noqa: SIM117 - frozen inside
        with frozen(processes(postgres_url)):
            connection.exec_driver_sql("SELECT 1")


async def test_a_report_does_not_wait_for_ever_to_be_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(READING, "CONNECT_S", 1)  # the least that the driver knows is two
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with silent, asyncio.timeout(WITHIN_S):
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(LedgerUnavailable, match="cannot be read"):
            await asyncio.to_thread(_read_once, f"postgresql://somebody@127.0.0.1:{port}/ledger")


def test_who_reads_without_a_deadline_waits_as_long_as_it_takes(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READING, "CONNECT_S", 0.5)
    with one_view(postgres_url) as connection:
        assert connection.exec_driver_sql("SELECT pg_sleep(0.7)").one() == ("",)


def _read_once(where: str) -> None:
    with one_view(where):
        pass
