"""Months that older gateways archived are never upgraded: everything that reads rows reads them as they are."""

import sqlite3
from contextlib import closing
from dataclasses import replace as with_fields
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from billing import open_ledger, reading
from billing.archive import archive_month
from billing.economics.rows import ledgers
from billing.older import column_in, columns_in
from billing.reports.fix_arms import fix_arms
from billing.reports.report import report_of
from billing.schema import metadata
from billing.verification.losses import losses
from billing.verification.report import verification
from tests.billing.samples import NOON, attempt, book, opened, settled
from tests.billing.test_schema_upgrade import ALL, as_version_2, as_version_3


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_what_reads_rows_reads_a_month_that_an_older_gateway_archived(
    ledger_path: Path, tmp_path: Path, version: int
) -> None:
    at = NOON - timedelta(days=31)
    missed = replace(settled("r1"), miss_reason="evicted", prefill_s=0.2, decode_s=1.0, attempts=(attempt(),))
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("r1", at=at))
        await ledger.settle(missed)
    file = archive_month(ledger_path, "2026-10", tmp_path / "archive", lambda: NOON).file
    if version < 4:
        as_version_3(file)
    if version < 3:
        as_version_2(file)
    start_us, end_us = ALL.start_us, ALL.end_us
    with reading(file) as connection:
        (check,) = verification(connection, ALL.start, ALL.end).endpoints
        (loss,) = losses(connection, start_us, end_us)
        assert list(fix_arms(connection, ALL)) == []
    (miss,) = report_of(file, with_fields(ALL, with_misses=True)).misses or ()
    with ledgers([file]) as found:
        calls = {
            endpoint_id: [call.who.model for call in calls] for endpoint_id, calls in found.calls(start_us, end_us)
        }
    assert (check.endpoint_id, sum(tally.requests for tally in check.misses.values())) == (missed.endpoint_id, 1)
    assert (loss.reason, loss.lost_tokens, miss.reason, miss.lost_tokens) == ("evicted", 0, "evicted", 0)
    assert calls == {attempt().endpoint_id: ["llama"]}


async def test_a_column_that_is_not_there_is_null_whoever_asks(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()):
        pass
    as_version_3(ledger_path)
    with closing(sqlite3.connect(ledger_path)) as plain, reading(ledger_path) as connection:
        for table in metadata.tables.values():
            there = {name for (name,) in plain.execute(f"SELECT name FROM pragma_table_info('{table.name}')")}
            all_of_it = {
                column.name: one for column, one in zip(table.columns, columns_in(connection, table), strict=True)
            }
            for column in table.columns:
                assert (column_in(connection, column) is column) == (column.name in there)
                assert (all_of_it[column.name] is column) == (column.name in there)
