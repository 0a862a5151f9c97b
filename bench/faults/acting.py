"""Each fault, done for as long as a block lasts, and undone."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from bench.faults.engines import slowed
from bench.faults.fleet import LEDGER, VALKEY, Fleet
from bench.faults.links import Link
from bench.faults.types import Acted, Fault, Kind

FLAP_S: Final = 1.0
AGAIN_S: Final = 0.4
"""Between two resets, or cuts."""
SLOW_S: Final = {VALKEY: 0.06, LEDGER: 0.1}
"""What each piece of bytes of a slow server waits: a hundred times as long as it takes."""
SLOWER: Final = 10.0
"""Times, for an engine: it says how slow it is by itself."""
JUMP_S: Final = 3600.0
"""Of a wall clock, there and back."""


class Impossible(Exception):
    """A fault that cannot be done here; says why."""


@asynccontextmanager
async def done(fault: Fault, fleet: Fleet, acted: list[Acted]) -> AsyncIterator[None]:
    """Do a fault for as long as the block lasts, and note when that was. Raises `Impossible`."""
    from_s = time.monotonic()
    async with _ACTS[fault.kind](fault, fleet):
        try:
            yield
        finally:
            until_s = time.monotonic()
    acted.append(Acted(fault, from_s, until_s))


@asynccontextmanager
async def _killed(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    part = fleet.parts[fault.part]
    await fleet.remember(fault.part)
    await part.kill()
    links = fleet.links_to(fault.part)
    for link in links:  # a dead process refuses
        await link.refuse()
    try:
        yield
    finally:
        await fleet.start(fault.part)
        for link in links:
            await link.start()


@asynccontextmanager
async def _restarted(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    links = fleet.links_to(fault.part)
    await fleet.remember(fault.part)
    for link in links:
        await link.close_door()
    await fleet.parts[fault.part].stop()
    await fleet.start(fault.part)
    for link in links:
        await link.start()
    yield


@asynccontextmanager
async def _frozen(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    part = fleet.parts[fault.part]
    part.freeze()
    try:
        yield
    finally:
        part.thaw()


def _to_its_links(work: Callable[[Link], object]) -> "_Act":
    """Do it to each link of a part, again and again."""

    @asynccontextmanager
    async def act(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
        async def once() -> None:
            for link in fleet.links_to(fault.part):
                work(link)

        async with _again(once, AGAIN_S):
            yield

    return act


@asynccontextmanager
async def _slow(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    delay_s = SLOW_S.get(fault.part)
    if delay_s is None:
        await slowed(fleet.controls[fault.part], SLOWER)
    for link in fleet.links_to(fault.part):
        link.delay_s = delay_s or 0.0
    try:
        yield
    finally:
        if delay_s is None:
            await slowed(fleet.controls[fault.part], 1.0)
        for link in fleet.links_to(fault.part):
            link.delay_s = 0.0


@asynccontextmanager
async def _flapping(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    links = fleet.links_to(fault.part)

    async def once() -> None:
        for link in links:
            await link.refuse()
        await asyncio.sleep(FLAP_S)
        for link in links:
            await link.start()

    try:
        async with _again(once, FLAP_S):
            yield
    finally:
        for link in links:
            await link.start()


@asynccontextmanager
async def _parted(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    links = fleet.links_to(fault.part, fault.gateway)
    for link in links:
        space = fleet.gateways[link.gateway].namespace
        if space is None:
            link.stall()
        else:
            space.lose(fault.part)
    try:
        yield
    finally:
        for link in links:
            space = fleet.gateways[link.gateway].namespace
            if space is None:
                link.heal()
            else:
                space.find(fault.part)


@asynccontextmanager
async def _shifted(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    clock = fleet.gateways[fault.part].clock
    if clock is None:
        raise Impossible("no C compiler: the wall clock of a process cannot be moved")

    directions = [-JUMP_S, JUMP_S]

    async def once() -> None:
        clock.move(directions[0])
        directions.reverse()

    try:
        async with _again(once, 2 * FLAP_S):
            yield
    finally:
        clock.move(0.0)


@asynccontextmanager
async def _full(fault: Fault, fleet: Fleet) -> AsyncIterator[None]:
    if fleet.disk is not None:
        if not fleet.disk.is_small:
            raise Impossible("the disk of PostgreSQL can only be full where root can mount one")
        fleet.disk.fill(None)
    for gateway in fleet.gateways.values():
        if gateway.disk is not None and not gateway.disk.fill(gateway.part.pid):
            raise Impossible("neither a small file system nor a bound on another process's files can be had")
    try:
        yield
    finally:
        for gateway in fleet.gateways.values():
            if gateway.disk is not None:
                gateway.disk.empty(gateway.part.pid)
        if fleet.disk is not None:
            fleet.disk.empty()
            if not await asyncio.to_thread(fleet.readies[LEDGER]):  # it gave up: its log could not be written
                await fleet.parts[LEDGER].kill()
                await fleet.start(LEDGER)


@asynccontextmanager
async def _again(work: Callable[[], Awaitable[None]], every_s: float) -> AsyncIterator[None]:
    """Do it now, and again each `every_s`, as long as the block lasts."""

    async def run() -> None:
        while True:
            await work()
            await asyncio.sleep(every_s)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        try:
            yield
        finally:
            running.cancel()


_Act = Callable[[Fault, Fleet], AbstractAsyncContextManager[None]]
_ACTS: Final[Mapping[Kind, _Act]] = {
    Kind.KILL: _killed,
    Kind.RESTART: _restarted,
    Kind.FREEZE: _frozen,
    Kind.RESET: _to_its_links(Link.reset),
    Kind.SLOW: _slow,
    Kind.FLAP: _flapping,
    Kind.PARTITION: _parted,
    Kind.CUT: _to_its_links(Link.cut),
    Kind.CLOCK: _shifted,
    Kind.DISK_FULL: _full,
}
