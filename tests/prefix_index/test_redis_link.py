"""The calls of a pool's functions: what their failures say about Redis, and what does not speak to us at all."""

import asyncio

import pytest
from redis.asyncio import Redis

from prefix_index.errors import IndexUnavailable
from prefix_index.redis_clients import connect_one
from prefix_index.redis_link import RedisLink, unavailable
from prefix_index.redis_radix import RedisRadix
from prefix_index.redis_wire import call_of, pool_keys
from prefix_index.types import DegradedReason
from tests.prefix_index.door import Door

COUNT = call_of("count", "nobody", "c", read_only=True)


async def test_each_caller_gets_its_own_reply_or_error(client: Redis, pool: str) -> None:
    link, wrong = RedisLink(client, pool_keys(pool)), call_of("evict", 1000, "nobody", "not a number")
    found = await asyncio.gather(link.call(COUNT), link.call(wrong), link.call(COUNT), return_exceptions=True)
    assert found[0] == found[2] == 0
    assert isinstance(found[1], IndexUnavailable)
    assert found[1].reason is DegradedReason.REFUSED


async def test_all_callers_hear_that_the_server_is_away(door: Door) -> None:
    await door.choose_port()
    async with connect_one(door.url) as client:
        link = RedisLink(client, pool_keys("p"))
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
    async with connect_one(server_url) as client:
        link = RedisLink(client, pool_keys("p"))
        monkeypatch.setattr(link, "_code", "#!lua name=broken\nthis is no lua")
        monkeypatch.setattr(link, "_library", "prefixgate_unknown")
        with pytest.raises(IndexUnavailable) as refusal:
            await link.call(COUNT)
        assert refusal.value.reason is DegradedReason.REFUSED


def test_failures_are_sorted_by_what_they_say_about_the_server() -> None:
    assert unavailable(TimeoutError()).reason is DegradedReason.TIMEOUT
    assert unavailable(TimeoutError()).why == "no answer in time"  # asyncio's own has no words
    assert unavailable(ConnectionResetError()).reason is DegradedReason.UNREACHABLE
    assert unavailable(ValueError("x")).reason is DegradedReason.BAD_ANSWER
    known = IndexUnavailable("x", DegradedReason.REFUSED)
    assert unavailable(known) is known
