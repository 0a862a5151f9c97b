"""While the ledger is away records go to the local disk, and from there into the ledger, each exactly once."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from billing import (
    Correction,
    CorrectionKind,
    LedgerUnavailable,
    RowRefused,
    Usage,
    open_ledger,
    reading,
)
from billing import spool as spool_module
from billing import spooled_store as spooled_store_module
from billing.spool import Spool, read_segment
from billing.types import KeptChain, UsageFlag
from billing.writer import Record
from tests.billing.conftest import Rows
from tests.billing.outages import away, sums_equal_rows, until_empty, with_spool
from tests.billing.samples import NOON, attempt, book, opened, settled
from tests.until import until

pytestmark = pytest.mark.usefixtures("impatient")

CREDIT = Correction("c1", NOON, "1", "acme", None, "llama", CorrectionKind.CREDIT, "goodwill", "USD", 0, -5)


async def test_an_outage_is_told_in_the_log_when_it_begins_and_when_it_ends(
    postgres_url: str, spool_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        with away(postgres_url):
            for number in range(3):
                await ledger.open(opened(f"{number}"))
        await until_empty(ledger)
    begins, ends = [record.message for record in caplog.records if record.name == "billing"]
    assert begins.startswith("the ledger is away: ")
    assert "not currently accepting connections" in begins
    assert ends == "the ledger is back"


async def test_an_outage_loses_nothing_and_doubles_nothing(postgres_url: str, rows: Rows, spool_folder: Path) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        await ledger.open(opened("across"))
        with away(postgres_url):
            for number in range(50):
                await ledger.open(opened(f"{number}"))
                await ledger.settle(settled(f"{number}", attempts=(attempt(f"{number}"),)))
            await ledger.settle(settled("across"))
            await ledger.correct(CREDIT)
            assert ledger.healthy
            assert ledger.spool is not None
            assert ledger.spool.is_away
            assert ledger.spool.records == 102
        await until_empty(ledger)
        await ledger.open(opened("after"))
        await ledger.settle(settled("after"))
    assert len(rows("requests")) == len(rows("settlements")) == 52
    assert len(rows("attempts")) == 50
    assert len(rows("corrections")) == 1
    assert sums_equal_rows(postgres_url)
    assert all(owner["ended_at_us"] for owner in rows("owners"))
    assert list(spool_folder.glob("*.spool")) == []


async def test_records_that_come_while_the_spool_is_handed_in_keep_their_order(
    postgres_url: str, rows: Rows, spool_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooled_store_module, "MOST_IN_BATCH", 7)
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 2000)
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        with away(postgres_url):
            await asyncio.gather(*(ledger.open(opened(f"{number}")) for number in range(200)))
        futures = [ledger.settle(settled(f"{number}")) for number in range(200)]
        await asyncio.gather(*futures)
        await until_empty(ledger)
        assert ledger.spool is not None
        assert ledger.spool.refused == 0
    assert len(rows("settlements")) == 200
    assert sums_equal_rows(postgres_url)


async def test_what_a_dead_gateway_spooled_is_handed_in_at_the_next_start(
    postgres_url: str, rows: Rows, spool_folder: Path
) -> None:
    script = f"""
import asyncio, os, sys
from pathlib import Path
from billing import open_ledger
from tests.billing.samples import book, opened, settled
from tests.billing.outages import away, with_spool

async def main():
    async with open_ledger({postgres_url!r}, book(), options=with_spool(Path({str(spool_folder)!r}))) as ledger:
        await ledger.open(opened("settled in the spool"))
        with away({postgres_url!r}):
            await ledger.settle(settled("settled in the spool"))
            await ledger.open(opened("opened in the spool"))
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    command = [sys.executable, "-c", script]
    died = await asyncio.to_thread(lambda: subprocess.run(command, capture_output=True, text=True, timeout=60))
    assert died.returncode == -9, died.stderr
    options = replace(with_spool(spool_folder), takeover_s=0.05)
    async with open_ledger(postgres_url, book(), options=options) as ledger:
        await until(lambda: len(rows("settlements")) >= 2)
        assert ledger.interrupted == 1
    states = {row["request_id"]: row["state"] for row in rows("settlements")}
    assert states == {"settled in the spool": "complete", "opened in the spool": "interrupted"}
    assert rows("corrections") == []
    assert sums_equal_rows(postgres_url)


async def test_in_a_file_what_was_spooled_comes_before_what_is_closed_as_interrupted(
    ledger_path: Path, spool_folder: Path
) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(opened("1"))
    spool = Spool(spool_folder, sync="disk", most_bytes=1 << 20)
    spool.start()
    spool.append([settled("1"), opened("2")], "aa" * 8)
    spool.close()
    async with open_ledger(ledger_path, book(), options=with_spool(spool_folder)) as ledger:
        assert ledger.interrupted == 1
    with reading(ledger_path) as connection:
        states = connection.exec_driver_sql("SELECT request_id, state FROM settlements").all()
    found: dict[str, str] = {row[0]: row[1] for row in states}
    assert found == {"1": "complete", "2": "interrupted"}
    assert sums_equal_rows(ledger_path)


async def test_a_gateway_starts_while_its_server_is_away(postgres_url: str, rows: Rows, spool_folder: Path) -> None:
    with away(postgres_url):
        with pytest.raises(LedgerUnavailable):
            async with open_ledger(postgres_url, book()):
                pass
        context = open_ledger(postgres_url, book(), options=with_spool(spool_folder))
        ledger = await context.__aenter__()
        await ledger.open(opened())
    await ledger.settle(settled())
    await until_empty(ledger)
    await context.__aexit__(None, None, None)
    assert [row["state"] for row in rows("settlements")] == ["complete"]
    assert all(owner["ended_at_us"] for owner in rows("owners"))


async def test_a_server_that_does_not_know_us_is_a_mistake_and_no_outage(postgres_url: str, spool_folder: Path) -> None:
    nobody = postgres_url.replace("prefixgate@", "nobody-we-know:a-secret@")
    with pytest.raises(LedgerUnavailable, match="does not exist") as caught:
        async with open_ledger(nobody, book(), options=with_spool(spool_folder)):
            pass
    assert "a-secret" not in str(caught.value)


async def test_what_no_ledger_takes_is_refused_at_once_or_set_aside(
    postgres_url: str, rows: Rows, spool_folder: Path
) -> None:
    async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
        with away(postgres_url):
            await ledger.open(opened("1"))
            results = await asyncio.gather(
                ledger.open(opened("surrogate", tenant="\ud800")),
                ledger.open(opened("too big", prompt_tokens_expected=2**70)),
                ledger.open(opened("nul", tenant="a\0b")),
                ledger.settle(settled("never opened")),
                return_exceptions=True,
            )
            assert [isinstance(result, RowRefused) for result in results] == [True, True, False, False]
        await until_empty(ledger)
        assert ledger.spool is not None
        assert ledger.spool.refused == 2
    assert [row["request_id"] for row in rows("requests")] == ["1"]
    assert (spool_folder / "refused").stat().st_size > 0


def test_a_spool_has_one_owner(spool_folder: Path) -> None:
    first = Spool(spool_folder, sync="normal", most_bytes=1)
    first.start()
    with pytest.raises(LedgerUnavailable, match=r"give each its own `ledger\.spool`"):
        Spool(spool_folder, sync="normal", most_bytes=1).start()
    first.close()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(name=texts, tags=st.none() | st.dictionaries(texts, texts), cut=st.integers(1, 200), data=st.binary(max_size=9))
def test_what_is_read_back_is_what_was_written_up_to_where_a_crash_cut_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, tags: dict[str, str] | None, cut: int, data: bytes
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), sync="normal", most_bytes=1 << 20)
    spool.start()
    records: list[Record] = [
        structs.replace(opened(name), tags=tags, chain=KeptChain(16, data)),
        settled(name, Usage(1, None, 2), flags=[UsageFlag.ESTIMATED], attempts=(attempt(name),), usage_json=data),
        CREDIT,
    ]
    for record in records:
        spool.append([record], "owner")
    segment = spool.oldest()
    assert list(segment.records) == records
    assert (segment.owner_id, segment.damaged) == ("owner", False)
    content = segment.path.read_bytes()
    segment.path.write_bytes(content[:-cut])
    whole = read_segment(segment.path)
    assert list(whole.records) == records[: len(whole.records)]
    assert len(whole.records) < 3
    assert not whole.damaged
    spool.close()


def test_a_file_with_a_wrong_byte_is_kept_for_an_operator(spool_folder: Path) -> None:
    spool = Spool(spool_folder, sync="normal", most_bytes=1 << 20)
    spool.start()
    spool.append([opened("1")], "owner")
    spool.append([opened("2"), opened("3")], "owner")
    path = next(spool_folder.glob("*.spool"))
    content = bytearray(path.read_bytes())
    content[-300] ^= 1
    path.write_bytes(content)
    segment = spool.oldest()
    assert segment.damaged
    spool.forget(segment)
    assert spool.is_empty
    assert [path.suffix for path in spool_folder.glob("0*")] == [".damaged"]
    spool.close()


def test_a_second_damaged_file_leaves_the_first_one_where_it_is(spool_folder: Path) -> None:
    for name in ("first", "second"):
        spool = Spool(spool_folder, sync="normal", most_bytes=1 << 20)
        spool.start()
        spool.append([opened(name), opened("other")], "owner")
        path = next(spool_folder.glob("*.spool"))
        content = bytearray(path.read_bytes())
        content[-10] ^= 1
        path.write_bytes(content)
        spool.forget(spool.oldest())
        assert spool.size_bytes == 0
        spool.close()
    kept = [path.read_bytes() for path in sorted(spool_folder.glob("*.damaged"))]
    assert [name in content for content, name in zip(kept, (b"second", b"first"), strict=True)] == [True, True]


async def test_a_spool_that_somebody_removed_does_not_keep_the_ledger_shut(
    ledger_path: Path, spool_folder: Path
) -> None:
    async with open_ledger(ledger_path, book(), options=with_spool(spool_folder)) as ledger:
        with closing(sqlite3.connect(ledger_path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await ledger.open(opened("lost"))
            shutil.rmtree(spool_folder)
            await ledger.open(opened("kept"))
            other.execute("COMMIT")
        await until_empty(ledger)
        await ledger.open(opened("after"))
    with reading(ledger_path) as connection:
        found = connection.exec_driver_sql("SELECT request_id FROM requests ORDER BY 1").scalars().all()
    assert found == ["after", "kept"]
