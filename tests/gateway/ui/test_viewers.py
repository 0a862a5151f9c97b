"""Open dashboards: what each is sent, what becomes of those that do not read, and that nothing runs for nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.errors import TooManyViewers
from gateway.ui.viewers import QUEUED, Bounds, Viewers
from gateway.ui_metrics import UiMetrics
from gateway.wire import Message
from tests.until import until

WITHIN_S = 20.0


@dataclass
class World:
    """What is looked at: a number that rises each time it is looked at."""

    number: int = 0
    collected: asyncio.Event = field(default_factory=asyncio.Event)
    closing: bool = False
    fails: bool = False
    forgotten: int = 0

    async def collect(self) -> dict[str, Any]:
        """The view."""
        self.number += 1
        self.collected.set()
        if self.fails:
            raise RuntimeError("a part of it broke")
        return {"as_of": "", "live": {"number": self.number}, "endpoints": {}, "decisions": [], "health": {}}

    def forget(self) -> None:
        """Nobody looks."""
        self.forgotten += 1


@dataclass
class Client:
    """One viewer; it reads while `reads` is set."""

    viewers: Viewers
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    sent: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    over: bool = False
    complete: bool = False
    _buffer: bytes = b""

    async def receive(self) -> Message:
        """As an ASGI server: the client's leaving."""
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """As an ASGI server: waits while the client does not read."""
        await self.reads.wait()
        if message["type"] == "http.response.body":
            self.complete = not message["more_body"]
            self.sent.put_nowait(message["body"])

    async def run(self) -> None:
        """Until it has ended."""
        await self.viewers.serve({"type": "http"}, self.receive, self.send, lambda: self.over)

    async def event(self) -> tuple[str, Any]:
        """The next event with its data."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                while b"\n\n" not in self._buffer:
                    self._buffer += await self.sent.get()
                one, _, self._buffer = self._buffer.partition(b"\n\n")
                fields = dict(line.split(b": ", 1) for line in one.split(b"\n"))
                if b"event" in fields:
                    return fields[b"event"].decode(), msgspec.json.decode(fields[b"data"])


@asynccontextmanager
async def running(world: World, most: int = 4, patience_s: float = 30.0) -> AsyncIterator[Viewers]:
    metrics, bounds = UiMetrics(CollectorRegistry()), Bounds(most, 0.02, patience_s)
    viewers = Viewers(world.collect, world.forget, lambda: world.closing, metrics, bounds)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(viewers.run())
        yield viewers
        work.cancel()


@asynccontextmanager
async def looking(viewers: Viewers, *, reads: bool = True) -> AsyncIterator[Client]:
    client = Client(viewers)
    if reads:
        client.reads.set()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.run())
        yield client
        client.gone.set()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait([task])


async def test_a_viewer_gets_a_snapshot_and_then_what_changes() -> None:
    async with running(World()) as viewers, looking(viewers) as client:
        assert await client.event() == (
            "snapshot",
            {"as_of": "", "live": {"number": 1}, "endpoints": {}, "decisions": [], "health": {}},
        )
        assert await client.event() == ("delta", {"as_of": "", "live": {"number": 2}})


async def test_nothing_is_collected_while_nobody_looks() -> None:
    world = World()
    async with running(world) as viewers:
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.number == 0
        async with looking(viewers) as client:
            await client.event()
        assert (viewers.count, world.forgotten) == (0, 1)
        assert viewers._view is None


async def test_who_comes_later_gets_a_snapshot_of_the_same_view() -> None:
    async with running(World()) as viewers, looking(viewers) as first:
        await first.event()
        async with looking(viewers) as second:
            name, view = await second.event()
            assert name == "snapshot"
            assert (await second.event())[1]["live"]["number"] == view["live"]["number"] + 1


async def test_a_viewer_that_fell_behind_gets_a_snapshot_in_place_of_what_it_missed() -> None:
    world = World()
    async with running(world) as viewers, looking(viewers) as client:
        await client.event()
        client.reads.clear()
        (viewer,) = viewers._viewers
        await until(lambda: client._buffer or not client.sent.empty() or viewer.events, within_s=WITHIN_S)
        for number in range(QUEUED + 1):
            viewer.tell(b"event: delta\ndata: %d\n\n" % number)
        assert (len(viewer.events), viewer.missed) == (0, True)
        client.reads.set()
        names = [(await client.event())[0] for _ in range(2)]
        assert "snapshot" in names


async def test_a_viewer_that_never_reads_is_cut_and_others_go_on() -> None:
    async with running(World(), patience_s=0.2) as viewers, looking(viewers) as reader:
        async with looking(viewers, reads=False) as client:
            await until(lambda: viewers.count != 2, within_s=WITHIN_S)
            assert not client.complete
        await reader.event()
        assert (await reader.event())[0] == "delta"


async def test_one_more_than_may_look_is_told_why_not() -> None:
    async with running(World(), most=1) as viewers, looking(viewers) as client:
        await client.event()
        with pytest.raises(TooManyViewers, match=r"ui\.max_viewers"):
            await viewers.serve({"type": "http"}, client.receive, client.send, lambda: False)
        assert viewers.count == 1


@pytest.mark.parametrize("why", ["draining", "session_over"])
async def test_a_stream_ends_in_order(why: str) -> None:
    world = World()
    async with running(world) as viewers, looking(viewers) as client:
        await client.event()
        world.closing, client.over = why == "draining", why == "session_over"
        events = [await client.event()]
        while events[-1][0] != "end":
            events.append(await client.event())
        assert events[-1] == ("end", {"reason": why})
        await until(lambda: not viewers.count, within_s=WITHIN_S)
        assert client.complete


async def test_what_goes_wrong_ends_neither_the_gateway_nor_the_stream() -> None:
    world = World()
    async with running(world) as viewers, looking(viewers) as client:
        await client.event()
        world.fails = True
        world.collected.clear()
        async with asyncio.timeout(WITHIN_S):
            await world.collected.wait()
        world.fails = False
        assert (await client.event())[0] == "delta"
