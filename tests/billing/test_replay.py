"""What the ledger keeps of prompts, and what a period's requests were, read back from real files."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from billing import (
    Group,
    KeptChain,
    LedgerPeriod,
    LedgerUnavailable,
    OpenedRequest,
    PastRequest,
    PeriodInvalid,
    PriceBook,
    Settlement,
    SettlementState,
    Usage,
    UsageFlag,
    groups_of,
    measured_work,
    open_ledger,
    past_requests,
    recorded,
    report,
)
from billing.archive import archive_month
from billing.schema import REVISION
from tests.billing.conftest import Rows
from tests.billing.samples import NOON, attempt, book, opened, price, settled

DAY = (NOON.replace(hour=0), NOON.replace(hour=0) + timedelta(days=1))
LATER = NOON + timedelta(days=400)


def hashes(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "little") for number in numbers)


def kept(request_id: str, *numbers: int, tokens: int = 256, at: datetime = NOON, tenant: str = "acme") -> OpenedRequest:
    return structs.replace(opened(request_id, at=at, tenant=tenant), chain=KeptChain(tokens, hashes(*numbers)))


async def write(path: Path, *records: OpenedRequest | Settlement, prices: PriceBook | None = None) -> None:
    async with open_ledger(path, prices or book()) as ledger:
        await asyncio.gather(
            *(ledger.open(record) if isinstance(record, OpenedRequest) else ledger.settle(record) for record in records)
        )


def period(*paths: Path, as_of: datetime = LATER, tenant: str | None = None) -> LedgerPeriod:
    return LedgerPeriod(paths, *DAY, as_of, tenant)


def by_state(groups: tuple[Group, ...]) -> dict[tuple[str, int | None, bool], int]:
    return {(group.state, group.block_tokens, group.measured): group.tally.requests for group in groups}


async def test_a_chain_is_kept_beside_its_request_and_none_where_none_is_given(ledger_path: Path, rows: Rows) -> None:
    await write(ledger_path, kept("a", 1, 2), opened("b"), kept("c"))
    assert rows("chains") == [
        {"request_id": "a", "block_tokens": 256, "hashes": hashes(1, 2)},
        {"request_id": "c", "block_tokens": 256, "hashes": b""},
    ]
    assert [row["request_id"] for row in rows("requests")] == ["a", "b", "c"]


async def test_a_request_that_is_refused_leaves_no_chain(ledger_path: Path, rows: Rows) -> None:
    async with open_ledger(ledger_path, book()) as ledger:
        await ledger.open(kept("a", 1))
        with pytest.raises(LedgerUnavailable):
            await ledger.open(kept("a", 2))
    assert [row["hashes"] for row in rows("chains")] == [hashes(1)]


async def test_chains_may_be_forgotten_and_bills_stay(ledger_path: Path) -> None:
    await write(ledger_path, kept("a", 1), settled("a"))
    before = report(ledger_path, *DAY)
    with closing(sqlite3.connect(ledger_path)) as connection, connection:
        connection.execute("DELETE FROM chains")
    assert report(ledger_path, *DAY) == before
    assert by_state(groups_of(period(ledger_path))) == {("complete", None, True): 1}


def forget_the_table(path: Path) -> None:
    """The file as gateways before chains have left it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE chains")


async def test_a_ledger_of_an_older_gateway_is_read_as_it_is_and_gets_the_table_when_opened(
    ledger_path: Path, rows: Rows
) -> None:
    await write(ledger_path, opened("old"), settled("old"))
    forget_the_table(ledger_path)
    assert by_state(groups_of(period(ledger_path))) == {("complete", None, True): 1}
    assert list(past_requests(period(ledger_path), "llama", [256])) == []

    await write(ledger_path, kept("new", 1), settled("new"))
    assert [row["request_id"] for row in rows("chains")] == ["new"]
    assert by_state(groups_of(period(ledger_path))) == {("complete", None, True): 1, ("complete", 256, True): 1}
    with closing(sqlite3.connect(ledger_path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (int(REVISION),)
        with pytest.raises(sqlite3.IntegrityError, match="immutable"):
            connection.execute("DELETE FROM requests")


async def test_requests_come_back_in_the_order_in_which_they_were_opened(ledger_path: Path) -> None:
    second, first = kept("a", 7, tenant="globex", at=NOON + timedelta(seconds=1)), kept("b", 7, 8)
    await write(ledger_path, second, first, settled("a", Usage(300, 0, 5)), settled("b", Usage(600, 256, 9)))
    found = list(past_requests(period(ledger_path), "llama", [256]))
    noon_us = int(NOON.timestamp()) * 1_000_000
    assert found == [
        PastRequest(noon_us, "acme", 600, 9, KeptChain(256, hashes(7, 8))),
        PastRequest(noon_us + 1_000_000, "globex", 300, 5, KeptChain(256, hashes(7))),
    ]
    only = period(ledger_path, tenant="globex")
    assert list(past_requests(only, "llama", [256])) == found[1:]


async def test_groups_say_of_every_request_whether_it_can_be_replayed(ledger_path: Path) -> None:
    await write(
        ledger_path,
        *(kept(name, 1) for name in ("whole", "cut", "failed", "refused", "counts unknown", "in flight")),
        kept("coarser", 1, tokens=512),
        opened("no chain"),
        settled("whole"),
        settled("cut", state=SettlementState.PARTIAL),
        settled("failed", state=SettlementState.FAILED),
        settled("refused", None, state=SettlementState.REJECTED),
        settled("counts unknown", Usage(1000, None, None)),
        settled("coarser", flags=[UsageFlag.CLAMPED]),
        settled("no chain"),
    )
    assert by_state(groups_of(period(ledger_path))) == {
        ("complete", 256, True): 1,
        ("partial", 256, True): 1,
        ("failed", 256, True): 1,
        ("rejected", 256, False): 1,
        ("complete", 256, False): 1,
        ("in_flight", 256, False): 1,
        ("complete", 512, True): 1,
        ("complete", None, True): 1,
    }
    assert {group.state for group in groups_of(period(ledger_path)) if group.billable} == {"complete", "partial"}
    assert len(list(past_requests(period(ledger_path), "llama", [256]))) == 2
    assert len(list(past_requests(period(ledger_path), "llama", [256, 512]))) == 3
    assert list(past_requests(period(ledger_path), "other", [256])) == []


async def test_a_prompt_that_the_engine_did_not_count_has_the_gateways_count(ledger_path: Path) -> None:
    await write(ledger_path, kept("a", 1), settled("a", Usage(None, None, 4)))
    assert [past.prompt_tokens for past in past_requests(period(ledger_path), "llama", [256])] == [1000]


async def test_what_is_settled_later_is_in_flight_for_every_reading(ledger_path: Path) -> None:
    await write(ledger_path, kept("a", 1), kept("b", 2), settled("a", at=NOON), settled("b"))
    then = period(ledger_path, as_of=NOON + timedelta(seconds=1))
    assert by_state(groups_of(then)) == {("complete", 256, True): 1, ("in_flight", 256, False): 1}
    assert len(list(past_requests(then, "llama", [256]))) == 1


async def test_the_ledgers_of_all_replicas_are_one_period(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.db" for n in range(3)]
    for n, path in enumerate(paths):
        names = [f"{n}-{call}" for call in range(4)]
        requests = [kept(name, n, call, at=NOON + timedelta(seconds=3 * call + n)) for call, name in enumerate(names)]
        await write(path, *requests, *(structs.replace(settled(name), ttft_s=n + 1.0) for name in names))
    together = period(*paths)
    found = list(past_requests(together, "llama", [256]))
    assert [past.chain.hashes for past in found] == [hashes(n, call) for call in range(4) for n in range(3)]
    (group,) = groups_of(together)
    assert (group.tally.requests, group.first_us) == (12, int(NOON.timestamp()) * 1_000_000)
    measured = recorded(together, "llama", [group])
    assert measured is not None
    assert (measured.requests, measured.streamed, measured.ttft_p50_s, measured.ttft_p99_s) == (12, 12, 2.0, 3.0)
    assert measured.charged_pico == sum(report(path, *DAY).totals["USD"].charged_pico or 0 for path in paths)


async def test_groups_that_differ_in_flags_alone_are_one(ledger_path: Path) -> None:
    early = NOON - timedelta(hours=1)
    await write(
        ledger_path, kept("a", 1), kept("b", 1, at=early), settled("a"), settled("b", flags=[UsageFlag.ESTIMATED])
    )
    (group,) = groups_of(period(ledger_path))
    assert group.tally.requests == 2
    assert group.first_us == int(early.timestamp()) * 1_000_000


async def test_what_was_recorded_is_of_the_same_requests(ledger_path: Path) -> None:
    records: list[OpenedRequest | Settlement] = []
    for n in range(1, 101):
        name = f"r{n:03d}"
        records += [kept(name, n), structs.replace(settled(name, Usage(1000, 900, 100)), ttft_s=n / 100)]
    whole = structs.replace(kept("whole"), stream=False)
    await write(
        ledger_path, *records, whole, settled("whole", Usage(1000, 0, 100)), opened("no chain"), settled("no chain")
    )
    groups = [group for group in groups_of(period(ledger_path)) if group.block_tokens]
    found = recorded(period(ledger_path), "llama", groups)
    assert found is not None
    assert (found.requests, found.prompt_tokens, found.output_tokens) == (101, 101_000, 10_100)
    assert found.hit_share == 90_000 / 101_000
    assert (found.streamed, found.ttft_p50_s, found.ttft_p90_s, found.ttft_p99_s) == (100, 0.5, 0.9, 0.99)
    total = report(ledger_path, *DAY).totals["USD"]
    assert found.currency == "USD"
    assert found.full_pico is not None
    assert total.full_pico is not None
    assert found.full_pico * 102 == total.full_pico * 101
    assert recorded(period(ledger_path), "other", groups) is None


async def test_what_was_not_measured_is_unknown_and_not_zero(ledger_path: Path) -> None:
    unpriced = price(model="other")
    await write(
        ledger_path,
        kept("a", 1),
        structs.replace(settled("a", Usage(1000, None, 10), attempts=(attempt("a"),)), ttft_s=None),
        prices=book(unpriced),
    )
    found = recorded(period(ledger_path), "llama", groups_of(period(ledger_path)))
    assert found is not None
    assert (found.hit_share, found.ttft_p50_s, found.ttft_p99_s, found.streamed) == (None, None, None, 0)
    assert (found.currency, found.full_pico, found.charged_pico) == (None, None, None)


async def test_amounts_of_two_currencies_are_not_added(ledger_path: Path) -> None:
    await write(ledger_path, kept("a", 1), settled("a"))
    euro = PriceBook("EUR", (replace(price(), currency="EUR"),))
    await write(ledger_path, kept("b", 1), settled("b"), prices=euro)
    found = recorded(period(ledger_path), "llama", groups_of(period(ledger_path)))
    assert found is not None
    assert (found.requests, found.currency, found.charged_pico) == (2, None, None)


def test_a_ledger_that_is_not_there_and_a_period_that_is_none_are_named(ledger_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="there is no ledger"):
        groups_of(period(ledger_path))
    backwards = replace(period(ledger_path), end=DAY[0])
    with pytest.raises(PeriodInvalid, match="after the beginning"):
        groups_of(backwards)
    ledger_path.write_bytes(b"certainly no database" * 100)
    with pytest.raises(LedgerUnavailable, match="cannot be read"):
        next(past_requests(period(ledger_path), "llama", [256]))


async def test_rows_of_an_archived_month_are_replayed_from_its_file_and_refused_without(
    ledger_path: Path, tmp_path: Path
) -> None:
    await write(ledger_path, kept("1", 1), settled("1"))
    before = groups_of(period(ledger_path))
    file = archive_month(ledger_path, "2026-11", tmp_path / "archive", lambda: LATER).file
    alone = period(ledger_path)
    for ask in (
        lambda: groups_of(alone),
        lambda: list(past_requests(alone, "llama", [256])),
        lambda: recorded(alone, "llama", before),
        lambda: list(measured_work(alone, "llama")),
    ):
        with pytest.raises(PeriodInvalid, match="2026-11': its rows were archived"):
            ask()
    together = period(ledger_path, file)
    assert groups_of(together) == before
    assert len(list(past_requests(together, "llama", [256]))) == 1
