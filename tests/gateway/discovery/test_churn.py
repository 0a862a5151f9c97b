"""Endpoints that come and go for long leave nothing behind: no task, no series, no entry in any table.

Others' routers grew by every pod and adapter that had ever been there, kept the entries of pods that were gone, and
raced removals against requests under way.
"""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import generate_latest

from backends import EndpointConfig, EndpointId, EndpointSnapshot, PollSettings, Registry, UpstreamClient
from backends.discovery import Found, Report
from gateway.config import load_config
from gateway.discovery.members import Discovering, Knowing
from gateway.event_feeds import EventFeedParts, EventFeeds
from gateway.fleet import Fleet, FleetOptions
from gateway.options import endpoint_of, prior_of
from gateway.perf_book import PerfBook
from gateway.receipts import Receipts
from gateway.telemetry import Telemetry
from prefix_index import Chain, Claim, SharedIndex
from tests.backends.engine_page import EnginePage
from tests.until import until

ROUNDS = 30
SELDOM = PollSettings(interval_s=60, deadline_s=10)


class Scripted:
    """A source that says what it is told to."""

    name = "scripted"

    def __init__(self) -> None:
        self.report: Report | None = None
        self.ready = asyncio.Event()

    async def run(self, report: Report) -> None:
        self.report = report
        self.ready.set()
        await asyncio.Event().wait()


class World:
    """The parts of a gateway that know endpoints by name, under a clock that is moved by hand."""

    def __init__(self, registry: Registry, client: UpstreamClient) -> None:
        self.now_s = 0.0
        self.telemetry = Telemetry()
        self.index = SharedIndex(None, pool="p", replica="r")
        receipts = Receipts(self.index, self.telemetry, self.clock)
        self.registry, self.source = registry, Scripted()
        self.fleet = Fleet(registry, self.index, receipts, FleetOptions({}, 16, 100, False, slow_start_s=30))
        self.perf = PerfBook({}, self.telemetry.speed, self.clock, self.fleet.set_speed)
        self.feeds = EventFeeds(EventFeedParts(self.fleet, self.index, client, None, "p", "r", ""), {})
        self.config = load_config(None, {}, {"discovery.grace_s": 10})
        for listener in (self.fleet.new_generation, self.perf.new_generation):
            registry.subscribe(listener)
        metrics = self.telemetry.discovery
        self.discovering = Discovering(self.config, registry, metrics, self.clock, [(self.source, {})])
        removed = [self.fleet.removed, self.perf.removed, self.feeds.removed, self.telemetry.forget_endpoint]
        made: Callable[[Any], EndpointConfig] = lambda backend: endpoint_of(backend, {})  # noqa: E731
        self.discovering.seed(Knowing(made, self.joins, self.fleet.slow_start.begin, removed, client.retire))

    def clock(self) -> float:
        return self.now_s

    def joins(self, backend: Any) -> None:
        speed = prior_of(backend, self.config.scheduling)
        self.fleet.join(backend.name, speed, backend.kv_events.ranks)
        self.perf.join(backend.name, speed)
        self.feeds.configure(backend.name, backend.kv_events)

    async def said(self, *found: Found) -> None:
        assert self.source.report is not None
        self.source.report.found(found)
        await self.discovering.follow()

    async def later(self, seconds: float) -> None:
        self.now_s += seconds
        await self.discovering.follow()

    def sizes(self) -> dict[str, int]:
        """Of every table in these objects that could know an endpoint."""
        objects = (self.fleet, self.perf, self.feeds, self.registry, self.discovering, self.fleet.slow_start)
        tables = {f"{type(one).__name__}.{name}": table for one in objects for name, table in vars(one).items()}
        tables |= {f"receipts.{name}": table for name, table in vars(self.fleet._receipts).items()}
        return {name: len(table) for name, table in tables.items() if isinstance(table, dict | list | set)}


@pytest.fixture
async def engine() -> Any:
    async with EnginePage.vllm() as page:
        yield page


def chain(number: int) -> Chain:
    return Chain(b"".join((number * 64 + at).to_bytes(8, "little") for at in range(1, 9)), 8 * 16, 16)


async def until_up(registry: Registry, endpoint_id: str) -> EndpointSnapshot:
    async with asyncio.timeout(10):
        while True:
            seen = next(one for one in registry.snapshot() if one.id == endpoint_id)
            if seen.healthy:
                return seen
            await asyncio.sleep(0.005)


async def test_pods_that_come_and_go_for_long_leave_nothing_behind(engine: EnginePage) -> None:
    async with Registry((), lambda: 0.0, settings=SELDOM) as registry, UpstreamClient() as client:
        world = World(registry, client)
        async with asyncio.TaskGroup() as group:
            works = [group.create_task(work()) for work in (registry.run, world.discovering.run)]
            await world.source.ready.wait()
            await world.discovering.looked(0)
            sizes, series, tasks, threads = (
                world.sizes(),
                lines_of(world),
                len(asyncio.all_tasks()),
                threading.active_count(),
            )
            for number in range(ROUNDS):
                name = f"pod-{number}"
                await world.said(Found(engine.url, name))
                await until_up(registry, name)
                world.fleet.snapshot()
                world.index.observe(world.fleet.holder_of(name), chain(number), Claim.CONFIRMED)
                with registry.reserve(EndpointId(name), 10, 1):
                    world.fleet.publish_load(EndpointId(name))
                    world.telemetry.attempts_failed(name).inc()
                    await world.said()
                    await world.later(20)
                    assert name in registry  # a request is under way
                    world.now_s += 20
                    await world.discovering.follow()
                    assert name in registry
                await world.later(6)
                assert name not in registry
                match = await world.index.match(chain(number))
                assert (match.blocks, match.loads) == ({}, {})
            await world.later(120)
            gc.collect()
            assert world.sizes() == sizes
            assert lines_of(world) == series
            await until(lambda: len(asyncio.all_tasks()) <= tasks)  # polls that were cancelled end in a turn or two
            assert threading.active_count() <= threads + 1
            for work in works:
                work.cancel()


async def test_an_id_at_another_address_holds_nothing_also_where_engines_do_not_say_when_they_began() -> None:
    async with EnginePage.vllm() as one, EnginePage.vllm() as two:
        for page in (one, two):
            del page.pages["/metrics"]
        async with Registry((), lambda: 0.0, settings=SELDOM) as registry, UpstreamClient() as client:
            world = World(registry, client)
            async with asyncio.TaskGroup() as group:
                works = [group.create_task(work()) for work in (registry.run, world.discovering.run)]
                await world.source.ready.wait()
                await world.said(Found(one.url, "pod"))
                await until_up(registry, "pod")
                world.fleet.snapshot()
                world.index.observe(world.fleet.holder_of("pod"), chain(1), Claim.CONFIRMED)
                await world.said(Found(one.url, "pod", settings={"prefill_tokens_per_s": 100}))
                assert (await world.index.match(chain(1))).blocks == {"pod@0": 8}  # it is reached in another way
                assert world.perf.speed_of("pod").prefill_tokens_per_s == 100
                await world.said(Found(two.url, "pod"))
                assert (await world.index.match(chain(1))).blocks == {}
                await until_up(registry, "pod")
                for work in works:
                    work.cancel()


async def test_a_source_that_breaks_in_a_way_of_its_own_is_heard_again(
    engine: EnginePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health checker that had stopped was noticed by nobody."""
    monkeypatch.setattr("gateway.discovery.members.AGAIN_S", 0.01)
    async with Registry((), lambda: 0.0, settings=SELDOM) as registry, UpstreamClient() as client:
        world = World(registry, client)
        broken = [True]
        run = world.source.run

        async def breaks_once(report: Report) -> None:
            if broken.pop():
                broken.append(False)
                raise ArithmeticError("secret")
            await run(report)

        monkeypatch.setattr(world.source, "run", breaks_once)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.discovering.run())
            await world.source.ready.wait()
            assert world.discovering.problems() == ["scripted: it cannot be read (ArithmeticError)"]
            await world.said(Found(engine.url, "pod"), Found("http://[::1", "odd"))
            assert "pod" in registry
            assert world.discovering.problems() == [
                "odd: endpoint odd: the URL cannot be parsed; check its host and port"
            ]
            running.cancel()


def lines_of(world: World) -> list[str]:
    """The series that name an endpoint."""
    world.discovering.show()
    return [line for line in generate_latest(world.telemetry.registry).decode().splitlines() if 'endpoint="' in line]
