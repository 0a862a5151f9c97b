"""The way to Redis: calls of one tick travel together, and nobody waits for a carrier who left."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_clients import connect_one
from prefix_index.redis_link import RedisLink, unavailable
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import Call, pool_keys
from prefix_index.types import DegradedReason
from tests.prefix_index.door import Door, eventually

COUNT = Call("count", ("nobody",), read_only=True)


class CountingLink(RedisLink):
    """Remembers how many calls each pipeline had, and can hold pipelines back."""

    def __init__(self, url: str) -> None:
        self.client = connect_one(url)
        super().__init__(self.client, pool_keys("link"))
        self.sizes: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, calls: Sequence[Call]) -> list[object]:
        self.sizes.append(len(calls))
        await self.gate.wait()
        return await super().send(calls)


@pytest.fixture
async def link(server_url: str) -> AsyncIterator[CountingLink]:
    link = CountingLink(server_url)
    async with link.client:
        yield link


async def test_calls_of_one_tick_share_a_pipeline(link: CountingLink) -> None:
    assert await asyncio.gather(*(link.call(COUNT) for _ in range(20))) == [0] * 20
    assert link.sizes == [20]
    assert await link.call(COUNT) == 0
    assert link.sizes == [20, 1]


async def test_each_caller_gets_its_own_reply_or_error(link: CountingLink) -> None:
    wrong = Call("evict", (1000, "nobody", "not a number"))
    found = await asyncio.gather(link.call(COUNT), link.call(wrong), link.call(COUNT), return_exceptions=True)
    assert found[0] == found[2] == 0
    assert isinstance(found[1], IndexUnavailable | int)


async def test_when_the_carrier_is_cancelled_the_others_start_again(link: CountingLink) -> None:
    link.gate.clear()
    async with asyncio.TaskGroup() as group:
        carrier = group.create_task(link.call(COUNT))
        others = [group.create_task(link.call(COUNT)) for _ in range(5)]
        await eventually(lambda: link.sizes)
        carrier.cancel()
        link.gate.set()
    assert [other.result() for other in others] == [0] * 5
    assert link.sizes == [6, 5]


async def test_a_carrier_cancelled_before_it_left_strands_nobody(link: CountingLink) -> None:
    async with asyncio.TaskGroup() as group:
        carrier = group.create_task(link.call(COUNT))
        other = group.create_task(link.call(COUNT))
        carrier.cancel()
    assert other.result() == 0


async def test_a_passenger_that_is_cancelled_disturbs_nobody(link: CountingLink) -> None:
    link.gate.clear()
    async with asyncio.TaskGroup() as group:
        carrier = group.create_task(link.call(COUNT))
        passenger = group.create_task(link.call(COUNT))
        await eventually(lambda: link.sizes)
        passenger.cancel()
        link.gate.set()
    assert carrier.result() == 0


async def test_all_callers_hear_that_the_server_is_away(door: Door) -> None:
    await door.choose_port()
    link = CountingLink(door.url)
    async with link.client:
        found = await asyncio.gather(*(link.call(COUNT) for _ in range(3)), return_exceptions=True)
    assert [getattr(failure, "reason", None) for failure in found] == [DegradedReason.UNREACHABLE] * 3


@pytest.mark.parametrize(
    "nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n+OK\r\n+OK\r\n", b"\x00\xff\r\n", b"$-9\r\n"]
)
async def test_what_does_not_speak_our_protocol_is_not_believed(door: Door, nonsense: bytes) -> None:
    await door.babble(nonsense)
    async with connect_one(door.url) as client, asyncio.timeout(5):
        with pytest.raises(IndexUnavailable) as failure:
            await RedisRadix(client, "p").blocks_of("a")
    assert failure.value.reason in (DegradedReason.BAD_ANSWER, DegradedReason.UNREACHABLE)


async def test_a_server_without_functions_refuses(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    link = CountingLink(server_url)
    monkeypatch.setattr(link, "_code", "#!lua name=broken\nthis is no lua")
    monkeypatch.setattr(link, "_library", "prefixgate_unknown")
    async with link.client:
        with pytest.raises(IndexUnavailable) as refusal:
            await link.call(COUNT)
    assert refusal.value.reason is DegradedReason.REFUSED


def test_failures_are_sorted_by_what_they_say_about_the_server() -> None:
    assert unavailable(TimeoutError()).reason is DegradedReason.TIMEOUT
    assert unavailable(ConnectionResetError()).reason is DegradedReason.UNREACHABLE
    assert unavailable(ValueError("x")).reason is DegradedReason.BAD_ANSWER
    known = IndexUnavailable("x", DegradedReason.REFUSED)
    assert unavailable(known) is known
