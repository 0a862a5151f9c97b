"""What requests took is read back, of those that say so, in order, from any number of ledgers."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from billing import LedgerPeriod, MeasuredWork, Settlement, SettlementState, Usage, measured_work, open_ledger
from billing.when import to_us
from tests.billing.samples import NOON, book, opened, price, settled


def took(name: str, prefill_s: float | None, decode_s: float | None, usage: Usage = Usage(100, 30, 7)) -> Settlement:  # noqa: B008 - frozen
    return replace(settled(name), usage=usage, prefill_s=prefill_s, decode_s=decode_s)


async def write(path: Path, *rows: Settlement, model: str = "m", from_s: float = 0.0) -> None:
    """Opened a second apart, in order."""
    opening = [
        replace(opened(row.request_id, at=NOON + timedelta(seconds=from_s + second)), model=model)
        for second, row in enumerate(rows)
    ]
    async with open_ledger(path, book(price())) as ledger:
        await asyncio.gather(*map(ledger.open, opening))
        await asyncio.gather(*map(ledger.settle, rows))


def period(*paths: Path) -> LedgerPeriod:
    return LedgerPeriod(paths, NOON, NOON + timedelta(days=1), NOON + timedelta(days=400))


def seconds(*paths: Path, model: str = "m") -> list[tuple[float | None, float | None]]:
    return [(one.prefill_s, one.decode_s) for one in measured_work(period(*paths), model)]


async def test_what_a_request_took_comes_back_with_its_tokens(ledger_path: Path) -> None:
    await write(ledger_path, took("a", 0.5, 0.25))
    assert list(measured_work(period(ledger_path), "m")) == [MeasuredWork(to_us(NOON), 100, 70, 7, 0.5, 0.25)]


async def test_either_may_be_unknown_and_who_knows_nothing_is_left_out(ledger_path: Path) -> None:
    await write(
        *(ledger_path, took("a", 0.5, None), took("b", None, 0.25), took("c", None, None)),
        took("d", 1.0, 1.0, Usage(100, None, 7)),
        replace(took("e", 1.0, 1.0), state=SettlementState.FAILED),
        took("f", 2.0, 2.0),
    )
    assert seconds(ledger_path) == [(0.5, None), (None, 0.25), (2.0, 2.0)]
    assert seconds(ledger_path, model="another") == []


async def test_ledgers_are_read_one_after_the_other(tmp_path: Path) -> None:
    one, two = tmp_path / "one.db", tmp_path / "two.db"
    await write(one, took("a", 1.0, None), took("b", 2.0, None))
    await write(two, took("c", 3.0, None))
    assert seconds(two, one) == [(3.0, None), (1.0, None), (2.0, None)]


async def test_a_file_that_only_older_gateways_had_says_nothing(ledger_path: Path) -> None:
    await write(ledger_path, took("a", 1.0, 1.0))
    with closing(sqlite3.connect(ledger_path)) as connection:
        connection.execute("ALTER TABLE settlements DROP COLUMN decode_s")
        connection.commit()
    assert seconds(ledger_path) == []
