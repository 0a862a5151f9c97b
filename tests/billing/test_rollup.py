"""The sums by quarter of an hour equal the rows, however requests came, ended, or were left open."""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from billing import OpenedRequest, Settlement, SettlementState, Usage, UsageFlag, Verdict, open_ledger, reading
from billing.money import PICO, joined_pico
from billing.rollup_sql import differences, rebuild
from tests.billing.conftest import Rows
from tests.billing.samples import NOON, book, opened, price, settled

counts = st.one_of(st.none(), st.integers(0, 2**31))
endings = st.sampled_from([state for state in SettlementState if state is not SettlementState.INTERRUPTED])


@st.composite
def pasts(draw: st.DrawFn) -> list[tuple[OpenedRequest, Settlement | None]]:
    """Requests of few keys at times around the ends of quarters, most of them settled."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        at = NOON + draw(st.integers(-2, 2)) * timedelta(minutes=15) + timedelta(microseconds=draw(st.integers(-1, 1)))
        request = replace(
            opened(
                f"{number}",
                at=at,
                tenant=draw(st.sampled_from(["acme", "globex"])),
                model=draw(st.sampled_from(["llama", "unpriced"])),
            ),
            tags=draw(st.sampled_from([None, {"team": "a"}, {"team": "b"}])),
        )
        settlement = replace(
            settled(
                f"{number}",
                Usage(draw(counts), draw(counts), draw(counts), draw(counts), draw(counts)),
                state=draw(endings),
                flags=draw(st.sets(st.sampled_from([UsageFlag.ESTIMATED, UsageFlag.INVALID]))),
                expected_cached_tokens=draw(counts),
            ),
            verdict=draw(st.sampled_from([None, *Verdict])),
            prefill_s=draw(st.sampled_from([None, 0.1, 0.25])),
            decode_s=draw(st.sampled_from([None, 1.7])),
        )
        found.append((request, settlement if draw(st.booleans()) or draw(st.booleans()) else None))
    return found


async def _live(path: Path, past: list[tuple[OpenedRequest, Settlement | None]], at_once: int) -> None:
    """Write it in batches of any size, die, and come back."""
    async with open_ledger(path, book(price("1000000", "0.7", "3"))) as ledger:
        for first in range(0, len(past), at_once):
            some = past[first : first + at_once]
            futures = [ledger.open(request) for request, _ in some]
            futures += [ledger.settle(settlement) for _, settlement in some if settlement is not None]
            await asyncio.gather(*futures)
    async with open_ledger(path, book()):
        pass


@given(past=pasts(), at_once=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_sums_by_quarter_equal_the_rows(past: list[tuple[OpenedRequest, Settlement | None]], at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        asyncio.run(_live(path, past, at_once))
        with reading(path) as connection:
            assert list(differences(connection)) == []
        with closing(sqlite3.connect(path)) as connection_to_file:
            openings, endings = connection_to_file.execute(
                "SELECT SUM(requests * (state = 'opened')), SUM(requests * (state <> 'opened')) FROM usage_quarters"
            ).fetchone()
        assert openings == endings == len(past)


def _rebuilt(path: Path) -> int:
    engine = create_engine(f"sqlite+pysqlite:///{path}", poolclass=NullPool)
    with engine.begin() as connection:
        return rebuild(connection)


@given(past=pasts())
@settings(max_examples=20, deadline=None)
def test_sums_that_were_lost_are_made_again_from_the_rows(past: list[tuple[OpenedRequest, Settlement | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        asyncio.run(_live(path, past, 3))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE usage_quarters SET requests = requests + 1, full_units = 7")
        with reading(path) as read:
            assert list(differences(read))
        assert _rebuilt(path) > 0
        with reading(path) as read:
            assert list(differences(read)) == []


async def test_ten_billion_units_do_not_overflow(ledger_path: Path, rows: Rows) -> None:
    dear = book(price("1000000000", "1000000000", "1000000000"))
    usage = Usage(2**31, 0, 2**31)
    async with open_ledger(ledger_path, dear) as ledger:
        for number in range(3):
            await ledger.open(opened(f"{number}"))
            await ledger.settle(settled(f"{number}", usage))
    (row,) = [row for row in rows("usage_quarters") if row["state"] == "complete"]
    assert joined_pico(row["charged_units"], row["charged_pico"]) == 3 * 2**32 * 1000 * PICO > 10**10 * PICO
    with reading(ledger_path) as connection:
        assert list(differences(connection)) == []


async def test_what_is_refused_adds_nothing(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        futures = [ledger.open(opened("one")), ledger.open(opened("one")), ledger.settle(settled("one"))]
        futures.append(ledger.settle(settled("one")))
        await asyncio.gather(*futures, return_exceptions=True)
    assert {row["state"]: row["requests"] for row in rows("usage_quarters")} == {"opened": 1, "complete": 1}
    with reading(ledger_path) as connection:
        assert list(differences(connection)) == []


async def test_an_interrupted_request_is_summed_with_an_unknown_amount(ledger_path: Path, rows: Rows) -> None:
    for _ in range(2):
        async with open_ledger(ledger_path, book()) as ledger:
            await ledger.open(opened(f"left open {ledger.interrupted}"))
    found = {(row["state"], row["requests"], row["unknown_amounts"], row["currency"]) for row in rows("usage_quarters")}
    assert found == {("opened", 1, 0, ""), ("interrupted", 1, 1, "USD")}


@pytest.mark.parametrize("tags", [{"note": "x" * 5000}, {"note": "\u0000;'\"東京"}])
async def test_tags_of_any_length_are_summed(ledger_path: Path, rows: Rows, tags: dict[str, str]) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(replace(opened(), tags=tags))
        await ledger.settle(settled())
    assert {row["state"]: row["requests"] for row in rows("usage_quarters")} == {"opened": 1, "complete": 1}
    with reading(ledger_path) as connection:
        assert list(differences(connection)) == []
