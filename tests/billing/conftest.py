"""Fixtures of the billing tests."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prefix_index import EmbeddedServer

Rows = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    """Where a test keeps its ledger; nothing is there yet."""
    return tmp_path / "ledger.db"


@pytest.fixture
def rows(ledger_path: Path) -> Rows:
    """All rows of a table of the ledger, read past the code under test."""

    def read(table: str) -> list[dict[str, Any]]:
        connection = sqlite3.connect(ledger_path)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")]
        finally:
            connection.close()

    return read


@pytest.fixture(scope="session")
def quota_url() -> Iterator[str]:
    """A real server for counters; each test uses a pool of its own."""
    with asyncio.Runner() as runner:
        server = EmbeddedServer()
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())
