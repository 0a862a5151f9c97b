"""A ledger of an older version becomes one of this version when it is opened, and loses nothing."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from sqlalchemy import select

from billing import Correction, CorrectionKind, RowRefused, Verdict, open_ledger, reading, report
from billing.archive import archive_month, restore_month
from billing.money import split_pico
from billing.reports.query import Query
from billing.reports.rows import usage_rows
from billing.rollup_sql import differences
from billing.schema import REVISION, attempts, metadata
from billing.spool import framed, read_segment
from tests.billing.conftest import Rows, Where
from tests.billing.samples import NOON, attempt, book, opened, settled

VERSION_1 = Path(__file__).with_name("version_1.sql")
ALL = Query(NOON - timedelta(days=365), NOON + timedelta(days=365))
NEW_IN_3 = {"layout_fixes": "to", "changed_segment": "system", "lost_tokens": 800}
ROUTED: dict[str, Any] = {"model_asked": "fast", "route_rule": "split:canary"}
SHARED: dict[str, Any] = {
    "continuations": 1,
    "prefill_endpoint_id": "p1",
    "prefill_cached_tokens": 640,
    "decode_cached_tokens": 999,
}
OF_ATTEMPTS: dict[str, Any] = {"prompt_tokens": 1200, "cached_tokens": 16, "output_tokens": 100}
NEW_IN_4 = {"requests": ROUTED, "settlements": SHARED, "attempts": OF_ATTEMPTS}


@pytest.fixture
def old_ledger(ledger_path: Path) -> Path:
    with closing(sqlite3.connect(ledger_path)) as connection:
        connection.executescript(VERSION_1.read_text("utf-8"))
    return ledger_path


async def test_an_old_ledger_keeps_its_rows_and_gets_the_new_columns(old_ledger: Path, rows: Rows) -> None:
    before = {row["request_id"]: row for row in rows("settlements")}
    async with open_ledger(old_ledger, book()) as ledger:
        assert ledger.interrupted == 1
    after = {row["request_id"]: row for row in rows("settlements")}
    for request_id, row in before.items():
        assert {name: after[request_id][name] for name in row} == row
    whole, failed, left_open = (after[name] for name in ("whole", "failed", "open"))
    assert (whole["list_units"], whole["list_pico"], whole["discounted_tokens"]) == (0, 1_237_500_000, 900)
    assert (failed["list_pico"], failed["discounted_tokens"]) == (0, 0)
    assert (left_open["state"], left_open["list_pico"], left_open["discounted_tokens"]) == ("interrupted", None, None)
    assert {row["job_id"] for row in rows("requests")} == {None}
    with reading(old_ledger) as connection:
        assert list(differences(connection)) == []
    assert sum(row["requests"] for row in rows("usage_quarters") if row["state"] == "opened") == 3


async def test_an_upgraded_ledger_has_the_tables_of_a_new_one(old_ledger: Path, tmp_path: Path, rows: Rows) -> None:
    new = tmp_path / "new.db"
    for path in (old_ledger, new):
        async with open_ledger(path, book()):
            pass
    shapes = []
    for path in (old_ledger, new):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (int(REVISION),)
            tables = {
                table: sorted(connection.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall())
                for table in metadata.tables
            }
            others = "SELECT type, name FROM sqlite_master WHERE type IN ('index', 'trigger') ORDER BY 1, 2"
            shapes.append((tables, connection.execute(others).fetchall()))
    assert shapes[0] == shapes[1]


async def test_old_and_new_rows_are_reported_together_and_stay_immutable(old_ledger: Path) -> None:
    async with open_ledger(old_ledger, book()) as ledger:
        await ledger.open(opened("new"))
        await ledger.settle(settled("new"))
    found = report(old_ledger, NOON - timedelta(days=365), NOON + timedelta(days=365))
    assert sum(line.tally.requests for line in found.lines) == 4
    with closing(sqlite3.connect(old_ledger)) as connection:
        for statement in ("UPDATE settlements SET list_pico = 1", "DELETE FROM requests"):
            with pytest.raises(sqlite3.IntegrityError, match="immutable"):
                connection.execute(statement)


async def test_new_facts_of_a_request_are_kept(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(replace(opened(), job_id="run 7", end_user="ab12", tags={"team": "東京", "app": "chat"}))
        await ledger.settle(replace(settled(), verdict=Verdict.ENGINE_HIGHER, miss_reason="evicted"))
    (request,) = rows("requests")
    assert (request["job_id"], request["end_user"]) == ("run 7", "ab12")
    assert request["tags"] == '{"app":"chat","team":"東京"}'
    (row,) = rows("settlements")
    assert (row["verdict"], row["miss_reason"], row["discounted_tokens"]) == ("engine_higher", "evicted", 900)
    assert (row["list_units"], row["list_pico"]) == (row["charged_units"], row["charged_pico"])


async def test_a_correction_is_signed_written_once_and_immutable(ledger_path: Path, rows: Rows) -> None:
    credit = Correction(
        "c1", NOON, "r1", "acme", None, "llama", CorrectionKind.CREDIT, "routed elsewhere", "USD", 0, -1_125_000
    )
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.correct(credit)
        with pytest.raises(RowRefused, match="c1"):
            await ledger.correct(credit)
    (row,) = rows("corrections")
    assert (row["charged_units"], row["charged_pico"]) == split_pico(-1_125_000) == (-1, 999_998_875_000)
    assert (row["kind"], row["request_id"], row["key_id"]) == ("credit", "r1", None)
    with closing(sqlite3.connect(ledger_path)) as connection, pytest.raises(sqlite3.IntegrityError, match="immutable"):
        connection.execute("DELETE FROM corrections")


def as_version_2(path: Path) -> None:
    """What a gateway before version 3 would have left."""
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as connection:
        for name in NEW_IN_3:
            connection.execute(f"ALTER TABLE settlements DROP COLUMN {name}")
        connection.execute("UPDATE alembic_version SET version_num = '0002'")
        connection.execute("PRAGMA user_version = 2")
        connection.commit()


async def test_what_was_changed_in_a_prompt_is_kept_and_is_in_its_row(ledger_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(replace(settled(), layout_fixes="to", changed_segment="system", lost_tokens=800))
        await ledger.open(opened("untouched"))
        await ledger.settle(settled("untouched"))
    with reading(ledger_path) as connection:
        touched, untouched = (row for _, row in usage_rows(connection, ALL))
    assert {name: touched[name] for name in NEW_IN_3} == NEW_IN_3
    assert {untouched[name] for name in NEW_IN_3} == {None}


async def test_months_that_version_2_archived_keep_their_sums_and_come_back(ledger_path: Path, tmp_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        for name, at in (("october", NOON - timedelta(days=31)), ("november", NOON)):
            await ledger.open(opened(name, at=at))
            await ledger.settle(settled(name))
    before = report(ledger_path, ALL.start, ALL.end)
    file = archive_month(ledger_path, "2026-10", tmp_path / "archive", lambda: NOON).file
    for path in (ledger_path, file):
        as_version_3(path)
        as_version_2(path)
    with closing(sqlite3.connect(ledger_path)) as connection:
        connection.execute("UPDATE archives SET sha256 = ?", (sha256(file.read_bytes()).hexdigest(),))
        connection.commit()
    with reading(file) as source:
        (row,) = (row for _, row in usage_rows(source, ALL))
    assert (row["id"], row["layout_fixes"], row["cached_tokens"]) == ("october", None, 900)
    async with open_ledger(ledger_path, book()):
        pass
    assert report(ledger_path, ALL.start, ALL.end) == before, "sums whose rows are elsewhere"
    assert restore_month(ledger_path, "2026-10", file.parent) == 1
    with reading(ledger_path) as connection:
        assert [row["id"] for _, row in usage_rows(connection, ALL)] == ["october", "november"]


def as_version_3(path: Path) -> None:
    """What a gateway before version 4 would have left."""
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in NEW_IN_4.items():
            for name in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
        connection.execute("UPDATE alembic_version SET version_num = '0003'")
        connection.execute("PRAGMA user_version = 3")
        connection.commit()


async def test_which_name_led_to_a_model_and_who_shared_the_work_are_kept(where: Where) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(replace(opened(), **ROUTED))
        await ledger.settle(replace(settled(), **SHARED))
        await ledger.open(opened("r2 plain"))
        await ledger.settle(settled("r2 plain"))
    with reading(where) as connection:
        routed, plain = (row for _, row in usage_rows(connection, ALL, internal=True))
        for_tenants = [row for _, row in usage_rows(connection, ALL)]
    new = ROUTED | SHARED
    assert {name: routed[name] for name in new} == new
    assert {plain[name] for name in new} == {None}
    seen_by_tenants = {"model_asked", "route_rule", "continuations"}
    assert [{name for name in new if name in row} for row in for_tenants] == [seen_by_tenants] * 2


async def test_what_each_of_several_attempts_computed_is_kept(where: Where) -> None:
    died, went_on = attempt(outcome="broke_off"), replace(attempt(ordinal=1), **OF_ATTEMPTS)
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(attempts=(died, went_on)))
    with reading(where) as connection:
        rows = connection.execute(select(attempts).order_by(attempts.c.ordinal)).mappings().all()
    assert [{name: row[name] for name in OF_ATTEMPTS} for row in rows] == [dict.fromkeys(OF_ATTEMPTS), OF_ATTEMPTS]


async def test_a_ledger_of_version_3_and_a_month_that_it_archived_get_the_new_columns(
    ledger_path: Path, tmp_path: Path, rows: Rows
) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        for name, at in (("october", NOON - timedelta(days=31)), ("november", NOON)):
            await ledger.open(opened(name, at=at))
            await ledger.settle(settled(name))
    before = report(ledger_path, ALL.start, ALL.end)
    file = archive_month(ledger_path, "2026-10", tmp_path / "archive", lambda: NOON).file
    for path in (ledger_path, file):
        as_version_3(path)
    with closing(sqlite3.connect(ledger_path)) as connection:
        connection.execute("UPDATE archives SET sha256 = ?", (sha256(file.read_bytes()).hexdigest(),))
        connection.commit()
    with reading(file) as source:
        (row,) = (row for _, row in usage_rows(source, ALL, internal=True))
    assert (row["id"], row["model_asked"], row["prefill_cached_tokens"]) == ("october", None, None)
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(replace(opened("new"), **ROUTED))
        await ledger.settle(replace(settled("new"), **SHARED))
    assert restore_month(ledger_path, "2026-10", file.parent) == 1
    kept = {row["request_id"]: row for row in rows("requests")}
    assert {name: (row["model_asked"], row["route_rule"]) for name, row in kept.items()} == {
        "october": (None, None),
        "november": (None, None),
        "new": ("fast", "split:canary"),
    }
    assert sum(line.tally.requests for line in before.lines) == 2
    found = report(ledger_path, ALL.start, ALL.end)
    assert sum(line.tally.requests for line in found.lines) == 3


async def test_what_version_4_keeps_survives_an_archive_and_its_return(ledger_path: Path, tmp_path: Path) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(replace(opened(at=NOON - timedelta(days=31)), **ROUTED))
        await ledger.settle(replace(settled(), **SHARED))
    with reading(ledger_path) as connection:
        before = list(usage_rows(connection, ALL, internal=True))
    file = archive_month(ledger_path, "2026-10", tmp_path / "archive", lambda: NOON).file
    with reading(file) as source:
        assert list(usage_rows(source, ALL, internal=True)) == before
    restore_month(ledger_path, "2026-10", file.parent)
    with reading(ledger_path) as connection:
        assert list(usage_rows(connection, ALL, internal=True)) == before


def test_files_that_version_3_spooled_are_read(tmp_path: Path) -> None:
    path = tmp_path / "00000001.spool"
    records = (opened(), settled())
    frames = [framed("owner", "before")]
    for name, record, table in zip(("opened", "settled"), records, (ROUTED, SHARED), strict=True):
        fields = {key: value for key, value in to_builtins(record).items() if key not in table}
        frames.append(framed(name, fields))
    path.write_bytes(b"".join(frames))
    segment = read_segment(path)
    assert (segment.records, segment.damaged) == (records, False)
    path.write_bytes(framed("opened", replace(opened(), **ROUTED)) + framed("settled", replace(settled(), **SHARED)))
    assert read_segment(path).records == (replace(opened(), **ROUTED), replace(settled(), **SHARED))
