"""The benchmark of the ledger: it counts what it wrote, and its reports are over what it says."""

from pathlib import Path

import pytest

from bench.ledger import CLIENTS, Written, goals_of, measured
from bench.ledger_report import END, START, report_times
from billing import reading, report
from billing.schema import attempts, requests, settlements
from tests.billing.conftest import Where, where

__all__ = ["where"]


@pytest.fixture
def ledger_path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.parametrize("per_s", [None, 2000])
def test_each_row_is_opened_attempted_and_settled(where: Where, per_s: int | None) -> None:
    run = measured("a database", where, per_s, 2 * CLIENTS)
    assert run.rows == 2 * CLIENTS
    assert 0 < run.end_p50_ms <= run.end_p99_ms
    assert 0 < run.writer_us <= run.cpu_us
    with reading(where) as connection:
        counts = [
            connection.exec_driver_sql(f"SELECT count(*) FROM {table.name}").scalar_one()
            for table in (requests, attempts, settlements)
        ]
    assert counts == [2 * CLIENTS] * 3


def test_reports_are_over_so_many_requests_whose_sums_are_theirs(where: Where) -> None:
    times = report_times("a database", where, rows=3000, tenants=4)
    found = report(where, START, END)
    assert sum(line.tally.requests for line in found.lines) == 3000
    assert [one.what.partition(" ")[0] for one in times] == ["report", "report", "from", "sums"]
    assert [one.has_goal for one in times] == [True, True, False, False]


def test_goals_are_rows_a_second_and_the_wait_at_the_end() -> None:
    slow = Written("SQLite", "as fast as it goes", 10, 4999, 1.0, 10.1, 50.0, 30.0)
    assert [goal.met for goal in goals_of([slow], [])] == [False, False]
    paced = Written("SQLite", "5000 rows/s", 10, 4999, 1.0, 9.9, 50.0, 30.0)
    assert [goal.met for goal in goals_of([paced], [])] == [True]
