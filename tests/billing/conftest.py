"""Fixtures of the billing tests."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
