"""The traffic of the last hours: each span read once when it is over, the latest again, none waited for long."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing import ReportTooSlow, Usage
from billing.reports.traffic import Traffic, traffic_of
from gateway.errors import Unavailable
from gateway.ui.asked import Asked
from gateway.ui.traffic import RANGES, TrafficBook
from tests.billing.invoicing.office import Written, write
from tests.billing.samples import book, opened, price, settled

NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)


class World:
    """A ledger with one request a minute, and clocks that are set."""

    def __init__(self, where: Path, minutes: int = 200) -> None:
        self.now, self.monotonic_s, self.where = NOW, 0.0, where
        self.add([NOW - timedelta(minutes=minute) for minute in range(minutes)])
        self.takes_s, self.breaks_off_after = 0.0, 10**6
        self.reads: list[tuple[int, int]] = []
        """How many spans each reading was of, and how many minutes each had."""
        self.traffic = TrafficBook(where, lambda: self.now, lambda: self.monotonic_s, self.read)

    def read(
        self, where: Path | str, start_us: int, end_us: int, step_us: int, deadline_s: float
    ) -> dict[int, Traffic]:
        if len(self.reads) == self.breaks_off_after:
            raise ReportTooSlow(deadline_s)
        self.monotonic_s += self.takes_s
        self.reads.append(((end_us - start_us) // step_us, step_us // 60_000_000))
        return traffic_of(where, start_us, end_us, step_us, deadline_s)

    def add(self, times: list[datetime]) -> None:
        records: list[Written] = []
        for at in times:
            name = f"{at:%d%H%M%S}"
            records += [opened(name, at=at), settled(name, Usage(1000, 500, 10), at=at)]
        write(self.where, book(price()), *records)

    async def page(self, range_: str) -> Any:
        query = f"range={range_}".encode()
        return await self.traffic.pages["traffic"].make(Asked(query, frozenset({"range"})))


async def test_spans_that_are_over_are_read_once(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db")
    page = await world.page("1h")
    assert [point["requests"] for point in page["points"]] == [1] * 60
    assert (page["total"]["hit_share"], page["total"]["read"]) == (0.5, True)
    assert sum(spans for spans, _ in world.reads) == 60
    world.reads.clear()
    await world.page("1h")
    assert world.reads == []
    world.monotonic_s, world.now = 10.0, NOW + timedelta(minutes=1)
    await asyncio.to_thread(world.add, [world.now])
    assert [point["requests"] for point in (await world.page("1h"))["points"]] == [1] * 60
    assert sum(spans for spans, _ in world.reads) == 12
    world.reads.clear()
    assert (await world.page("15m"))["total"]["requests"] == 15
    assert sum(spans for spans, _ in world.reads) == 11
    assert len(world.traffic._spans) == 61


async def test_a_day_is_of_quarters_of_an_hour(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db")
    page = await world.page("24h")
    assert (page["step_s"], len(page["points"]), page["total"]["requests"]) == (900, 96, 200)
    assert page["points"][-1]["at"] == "2026-11-15T12:00:00+00:00"
    assert {length for _, length in world.reads} == {15}


async def test_what_is_not_read_in_time_is_unknown_and_read_the_next_time(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db")
    world.takes_s = 5.0
    page = await world.page("1h")
    assert [point["read"] for point in page["points"]] == [False] * 30 + [True] * 30
    assert page["points"][0]["requests"] is None
    assert (page["total"]["requests"], page["total"]["read"]) == (30, False)
    world.takes_s = 0.0
    assert (await world.page("1h"))["total"]["read"] is False
    world.monotonic_s += 1000.0
    assert (await world.page("1h"))["total"]["read"] is True


async def test_a_statement_past_its_deadline_leaves_the_rest_unread(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db")
    world.breaks_off_after = 1
    page = await world.page("1h")
    assert [point["read"] for point in page["points"]] == [False] * 45 + [True] * 15


async def test_a_ledger_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    nothing = TrafficBook(tmp_path / "gone" / "ledger.db", lambda: NOW)
    with pytest.raises(Unavailable, match="the ledger cannot be read"):
        await nothing.pages["traffic"].make(Asked(b"", frozenset({"range"})))


async def test_spans_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db", 1)
    for range_ in RANGES:
        await world.page(range_)
    world.now, world.monotonic_s = NOW + timedelta(days=3), 1e6
    await world.page("15m")
    assert len(world.traffic._spans) == 15


async def test_what_was_read_while_the_clock_was_wrong_is_read_anew(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db", 1)
    world.now = NOW + timedelta(hours=2)
    await world.page("3h")
    world.now, world.monotonic_s = NOW + timedelta(minutes=30), 1800.0
    await asyncio.to_thread(world.add, [NOW + timedelta(minutes=20)])
    assert (await world.page("1h"))["total"]["requests"] == 2


async def test_of_a_period_of_which_nothing_was_read_nothing_is_said(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db", 1)
    world.breaks_off_after = 0
    total = (await world.page("1h"))["total"]
    assert total.pop("read") is False
    assert set(total.values()) == {None}


async def test_what_no_engine_reported_is_unknown_and_not_zero(tmp_path: Path) -> None:
    world = await asyncio.to_thread(World, tmp_path / "ledger.db", 0)
    await asyncio.to_thread(
        write, world.where, book(price()), opened("silent", at=NOW), settled("silent", Usage(1000, None, 10), at=NOW)
    )
    total = (await world.page("15m"))["total"]
    assert (total["prompt_tokens"], total["reported_prompt_tokens"], total["cached_tokens"]) == (1000, 0, None)
    assert (await world.page("15m"))["points"][0]["cached_tokens"] == 0  # nothing was asked then: that is known
