"""Fixtures of the billing tests."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from prefix_index import EmbeddedServer

Rows = Callable[[str], list[dict[str, Any]]]
Where = Path | str
Execute = Callable[[str], None]


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Where a test keeps its ledger; nothing is there yet."""
    return tmp_path / "ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest) -> Where:
    """A place for a ledger in each database; nothing is there yet."""
    fixture = "ledger_path" if request.param == "sqlite" else "postgres_url"
    place: Where = request.getfixturevalue(fixture)
    return place


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> Rows:
    """All rows of a table of the test's ledger, read past the code under test."""
    places = ("where", "postgres_url", "ledger_path")
    place = request.getfixturevalue(next(name for name in places if name in request.fixturenames))

    def read(table: str) -> list[dict[str, Any]]:
        query = f"SELECT * FROM {table} ORDER BY 1, 2"
        if isinstance(place, str):
            with psycopg.connect(place, row_factory=dict_row) as server:
                return server.execute(query.encode()).fetchall()
        with closing(sqlite3.connect(place)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]

    return read


@pytest.fixture
def execute(where: Where) -> Execute:
    """Run a statement in the test's ledger, past the code under test."""

    def run(statement: str) -> None:
        if isinstance(where, str):
            with psycopg.connect(where) as server:
                server.execute(statement.encode())
            return
        with closing(sqlite3.connect(where)) as connection, connection:
            connection.execute(statement)

    return run


@pytest.fixture
def spool_folder(tmp_path: Path) -> Path:
    """Where a test's ledger keeps what waits; nothing is there yet."""
    return tmp_path / "spool"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that is away, or refuses, is asked a hundred times a second."""
    monkeypatch.setattr("billing.spooled_store.ASK_S", 0.01)
    monkeypatch.setattr("billing.writer.PROBE_S", 0.01)


@pytest.fixture(scope="session")
def quota_url() -> Iterator[str]:
    """A real server for counters; each test uses a pool of its own."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer()
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())
