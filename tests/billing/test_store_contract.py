"""What every store promises, over a SQLite file and over a PostgreSQL server."""

import asyncio
import sqlite3
from datetime import timedelta

import psycopg
import pytest
from msgspec.structs import replace
from sqlalchemy.exc import SQLAlchemyError

from billing import (
    Correction,
    CorrectionKind,
    Ledger,
    LedgerUnavailable,
    RowRefused,
    Usage,
    UsageFlag,
    open_ledger,
    reading,
)
from billing import store as store_module
from billing.money import joined_pico
from billing.rollup_sql import differences
from tests.billing.conftest import Execute, Rows, Where
from tests.billing.samples import NOON, attempt, book, opened, price, settled

CREDIT = CorrectionKind.CREDIT


def healthy(ledger: Ledger) -> bool:
    """Asked through a function, since a type checker takes a property for a constant."""
    return ledger.healthy


async def test_a_request_is_opened_and_settled_with_its_bill(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        assert healthy(ledger)
        await ledger.open(opened())
        await ledger.settle(
            settled(attempts=(attempt(outcome="ConnectFailed", status=None), attempt(ordinal=1)), usage_json=b'{"a":1}')
        )
    (request,) = rows("requests")
    assert request["tenant_id"] == "acme"
    assert request["stream"] == 1
    (row,) = rows("settlements")
    assert row["state"] == "complete"
    assert row["usage_json"] == '{"a":1}'
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (1000, 900, 100)
    assert joined_pico(row["full_units"], row["full_pico"]) == 1000 * 1_250_000 + 100 * 10_000_000
    assert joined_pico(row["charged_units"], row["charged_pico"]) == 100 * 1_250_000 + 900 * 125_000 + 100 * 10_000_000
    assert (row["currency"], row["price_id"], row["input_pico"]) == ("USD", "p1", 1_250_000)
    assert [(row["ordinal"], row["status"]) for row in rows("attempts")] == [(0, None), (1, 200)]


async def test_two_hundred_clients_at_once_lose_nothing(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:

        async def client(number: int) -> None:
            for call in range(10):
                request_id = f"{number:03d}-{call}"
                await ledger.open(opened(request_id))
                await ledger.settle(settled(request_id, attempts=(attempt(request_id),)))

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(client(number))
    assert len(rows("requests")) == len(rows("settlements")) == len(rows("attempts")) == 2000


async def test_a_second_settlement_is_ignored_and_counted(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened())
        await asyncio.gather(ledger.settle(settled()), ledger.settle(settled(usage=Usage(5, 0, 5))))
        await ledger.settle(settled(usage=Usage(6, 0, 6), attempts=(attempt(),)))
        assert ledger.settled_twice == 2
    (row,) = rows("settlements")
    assert row["prompt_tokens"] == 1000
    assert rows("attempts") == []


async def test_a_settlement_of_a_request_never_opened_is_refused(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        with pytest.raises(RowRefused, match="never opened"):
            await ledger.settle(settled("ghost"))
        assert healthy(ledger)
    assert rows("settlements") == []


async def test_one_bad_row_is_refused_alone(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened("twice"))
        futures = [ledger.open(opened(f"{n:02d}")) for n in range(20)]
        futures.append(ledger.open(opened("twice")))
        futures.append(ledger.open(opened("surrogate", tenant="\ud800")))
        futures.append(ledger.open(opened("too big", prompt_tokens_expected=2**70)))
        futures += [ledger.open(opened(f"{n:02d}")) for n in range(20, 40)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert healthy(ledger)
    refused = [outcome for outcome in outcomes if outcome is not None]
    assert [type(outcome) for outcome in refused] == [RowRefused] * 3
    assert [row["request_id"] for row in rows("requests")] == [*(f"{n:02d}" for n in range(40)), "twice"]


async def test_facts_that_are_not_remembered_are_read_back(
    where: Where, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "MOST_FACTS", 2)
    async with open_ledger(where, book()) as ledger:
        for n in range(6):
            await ledger.open(opened(f"{n}"))
        for n in range(6):
            await ledger.settle(settled(f"{n}"))
    assert {row["price_id"] for row in rows("settlements")} == {"p1"}


async def test_an_orderly_end_leaves_nothing_to_recover(where: Where, rows: Rows) -> None:
    for n in range(3):
        async with open_ledger(where, book()) as ledger:
            assert ledger.interrupted == 0
            await ledger.open(opened(f"{n}"))
            await ledger.settle(settled(f"{n}"))
    assert all(owner["ended_at_us"] for owner in rows("owners"))
    assert {row["state"] for row in rows("settlements")} == {"complete"}


async def test_usage_that_contradicts_itself_is_clamped_here_too(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(usage=Usage(100, 250, -4), flags={UsageFlag.ESTIMATED}))
    (row,) = rows("settlements")
    assert (row["prompt_tokens"], row["cached_tokens"], row["output_tokens"]) == (100, 100, 0)
    assert row["flags"] == "clamped,estimated"
    assert joined_pico(row["charged_units"], row["charged_pico"]) == 100 * 125_000


async def test_the_price_is_that_of_the_opening(where: Where, rows: Rows) -> None:
    midnight = NOON + timedelta(hours=12)
    prices = book(price("1", id_="before", valid_to=midnight), price("2", id_="after", valid_from=midnight))
    async with open_ledger(where, prices) as ledger:
        await ledger.open(opened("1", at=midnight - timedelta(microseconds=1)))
        await ledger.open(opened("2", at=midnight))
        await ledger.settle(settled("1", at=midnight + timedelta(hours=1)))
        await ledger.settle(settled("2", at=midnight + timedelta(hours=1)))
    assert [row["price_id"] for row in rows("settlements")] == ["before", "after"]


async def test_errors_of_the_database_hold_no_values(where: Where) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened("twice", tenant="a-secret-tenant"))
        with pytest.raises(RowRefused) as caught:
            await ledger.open(opened("twice", tenant="a-secret-tenant"))
    assert "a-secret-tenant" not in str(caught.value)
    assert not isinstance(caught.value, SQLAlchemyError)


async def test_cancelling_the_opening_leaves_no_thread_and_no_lock(where: Where) -> None:
    async def open_for_ever() -> None:
        async with open_ledger(where, book()):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(open_for_ever())
        await asyncio.sleep(0)
        task.cancel()
    async with open_ledger(where, book()):
        pass


async def test_sums_by_quarter_equal_the_rows_in_every_database(where: Where) -> None:
    async with open_ledger(where, book()) as ledger:
        futures = []
        for number in range(300):
            at = NOON + number * timedelta(minutes=1)
            futures.append(ledger.open(opened(f"{number}", at=at, tenant=f"tenant {number % 7}")))
            if number % 3:
                usage = Usage(2**31, number if number % 2 else None, 7)
                futures.append(ledger.settle(settled(f"{number}", usage)))
        await asyncio.gather(*futures)
    with reading(where) as connection:
        assert list(differences(connection)) == []


async def test_rows_cannot_be_changed_or_removed_by_a_mistake(where: Where, execute: Execute) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(opened())
        await ledger.settle(settled(attempts=(attempt(),)))
        await ledger.correct(Correction("c1", NOON, None, "acme", None, None, CREDIT, "goodwill", "USD", 0, -5))
    for table in ("requests", "settlements", "attempts", "corrections"):
        for statement in (f"UPDATE {table} SET request_id = 'x'", f"DELETE FROM {table}"):
            with pytest.raises((sqlite3.Error, psycopg.Error), match="immutable"):
                execute(statement)


async def test_a_ledger_of_a_newer_program_is_left_alone(where: Where, execute: Execute) -> None:
    async with open_ledger(where, book()):
        pass
    execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(LedgerUnavailable, match="tables are of version 99"):
        async with open_ledger(where, book()):
            pass


async def test_a_word_of_any_length_and_kind_is_kept_or_refused(where: Where, rows: Rows) -> None:
    async with open_ledger(where, book()) as ledger:
        await ledger.open(replace(opened("東京"), tags={"note": "x" * 9000, "quote": "'\"; --"}))
        outcomes = await asyncio.gather(
            ledger.open(opened("nul", tenant="a\0b")), ledger.settle(settled("東京")), return_exceptions=True
        )
        assert outcomes[0] is None or isinstance(outcomes[0], RowRefused)
        assert outcomes[1] is None
        assert healthy(ledger)
    assert "東京" in {row["request_id"] for row in rows("settlements")}
