"""What is shown of caches: put together from the index's report, and never waited for where it takes long."""

import asyncio
import json
from typing import Any

from gateway.ui.caches import NO_CACHE, OLD_S, Caches, caches_of
from gateway.ui.inside import Inside
from gateway.wire import Receive, Scope, Send

WINDOW = {"answers": 10, "reported_share": 0.5, "expected_share": 0.6, "mean_absolute_error_percent": 10.0}


def holder(endpoint: str, blocks: int, **changed: Any) -> dict[str, Any]:
    row = {"endpoint": endpoint, "claim": "confirmed", "is_present": True, "blocks": blocks, "capacity_blocks": 100}
    return row | changed


def report(**changed: Any) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(("store", "degraded", "unreadable", "max_bytes", "total"))
    found |= {"queued_writes": 0, "dropped_writes": 0, "holders": [], "feeds": [], "reliability": {"endpoints": []}}
    return found | changed


def test_an_endpoint_is_covered_by_what_its_engine_has_confirmed() -> None:
    rows = [
        holder("e0", 40),
        holder("e0", 30, claim="speculative"),
        holder("e0", 9, is_present=False),
        holder("e1", 5, capacity_blocks=None),
    ]
    found = caches_of(report(holders=rows))["endpoints"]
    assert found["e0"]["coverage"] == {"blocks": 40, "capacity_blocks": 100, "share": 0.4}
    assert "e1" not in found


def test_ranks_of_an_endpoint_are_added() -> None:
    found = caches_of(report(holders=[holder("e0", 40), holder("e0", 20)]))["endpoints"]
    assert found["e0"]["coverage"] == {"blocks": 60, "capacity_blocks": 200, "share": 0.3}


def test_shares_are_those_of_the_mode_that_is_in_use() -> None:
    rows = [
        {"endpoint": "e0", "mode": "events", "window": WINDOW},
        {"endpoint": "e0", "mode": "receipts", "window": {**WINDOW, "answers": 3, "reported_share": 0.1}},
    ]
    found = caches_of(report(reliability={"endpoints": rows}))["endpoints"]["e0"]
    assert (found["answers"], found["hit_share"], found["expected_share"], found["error_percent"]) == (10, 0.5, 0.6, 10)


def test_a_feed_is_as_who_reads_it_says() -> None:
    feeds = [{"endpoint_id": "e0", "state": state} for state in ("not_consumer", "live", "not_consumer")]
    assert caches_of(report(feeds=feeds))["endpoints"]["e0"] == {**NO_CACHE, "kv_events": "live"}


def test_an_index_that_cannot_be_read_is_unknown_and_not_empty() -> None:
    found = caches_of(report(unreadable="timeout"))["index"]
    assert (found["unreadable"], found["nodes"], found["blocks"], found["estimated_bytes"]) == ("timeout", *[None] * 3)


class Index:
    """Says what it holds once it answers; counts how often it was asked."""

    def __init__(self) -> None:
        self.answers, self.asked = asyncio.Event(), 0

    async def __call__(self, _: Scope, _receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.answers.wait()
        body = json.dumps(report(holders=[holder("e0", 40)])).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def test_what_happens_does_not_wait_for_an_index_that_is_silent() -> None:
    index = Index()
    caches = Caches(Inside(index, None))
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        work = group.create_task(caches.run())
        assert (await caches.latest())["endpoints"] == {}
        assert (await caches.fresh(0.01))["endpoints"] == {}
        index.answers.set()
        assert (await caches.fresh())["endpoints"]["e0"]["coverage"]["blocks"] == 40
        assert (await caches.latest())["endpoints"]["e0"]["coverage"]["blocks"] == 40
        work.cancel()


async def test_what_was_counted_long_ago_is_not_shown() -> None:
    index, now_s = Index(), [0.0]
    index.answers.set()
    caches = Caches(Inside(index, None), lambda: now_s[0])
    await caches.get()
    now_s[0] = OLD_S
    assert (await caches.latest())["endpoints"] != {}
    assert index.asked == 1
    now_s[0] = OLD_S + 1
    assert (await caches.latest())["endpoints"] == {}
    await caches.get()
    assert (await caches.latest())["endpoints"] != {}
    assert index.asked == 2


async def test_an_index_that_cannot_be_counted_ends_nothing() -> None:
    async def broken(_: Scope, _receive: Receive, _send: Send) -> None:
        raise RuntimeError("a part of it broke")

    caches = Caches(Inside(broken, None))
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        work = group.create_task(caches.run())
        assert (await caches.latest())["endpoints"] == {}
        assert not work.done()
        work.cancel()
