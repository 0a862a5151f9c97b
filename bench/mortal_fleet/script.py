"""What is done to a fleet while it works: one fault a phase, and what is looked at meanwhile.

    warm up     all of the work once: caches and index are filled
    all well    what is usual
    replica     kill -9 (the consumer of KV events, where there is one), and started again
    engine      kill -9, and started again on the same port, its cache empty
    index       kill -9, and started again on the same port, empty
    flushed     FLUSHALL

A fault's phase lasts until what was killed is back and well, then for as long again as all was well, and on until
affinity is back, within reason.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx

from bench.accuracy_causes import accuracy_of
from bench.mortal_fleet.client import Client
from bench.mortal_fleet.fleet import Fleet, Replica, followed, well
from bench.mortal_fleet.timeline import Fault, Health, Phase, affinity_back_s
from gateway.demo.types import DemoFailed

DOWN_S: Final = 2.0
"""How long what was killed stays away."""
LOOK_EVERY_S: Final = 0.2
BACK_WITHIN_S: Final = 60.0
AFFINITY_WITHIN_S: Final = 20.0
"""After the calm of a phase."""
WARM_WITHIN_S: Final = 120.0
_ASK_AGAIN_S: Final = 0.05

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long all is left in peace, in each phase, and how often everything is killed."""

    calm_s: float = 8.0
    rounds: int = 1


@dataclass(slots=True)
class Played:
    """What happened. `said` are lines with their times; `recovered_s` by what came back, None where it did not.
    `epoch_s` is when the client began."""

    epoch_s: float
    phases: list[Phase] = field(default_factory=list)
    health: list[Health] = field(default_factory=list)
    said: list[tuple[float, str]] = field(default_factory=list)
    recovered_s: dict[str, float | None] = field(default_factory=dict)


class Play:
    """Acts on `fleet` while `client` drives; all is warm once it has seen `requests` answers."""

    def __init__(self, fleet: Fleet, client: Client, requests: int, pace: Pace, say: Say) -> None:
        self._fleet = fleet
        self._client = client
        self._requests = requests
        self._pace = pace
        self._say = say
        self._usual_share = 0.0
        self.played = Played(time.monotonic())

    async def run(self) -> None:
        """All phases, in order. Raises `DemoFailed` where what was killed cannot be started again."""
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            await self._phase("warm up", self._warm_up)
            await self._phase("all well", self._all_is_well)
            for _ in range(self._pace.rounds):
                await self._phase("replica killed", self._kill_replica)
                await self._phase("engine killed", self._kill_engine)
                await self._phase("index killed", self._kill_index)
                await self._phase("index flushed", self._flush_index)
            looking.cancel()

    async def _phase(self, name: str, act: Callable[[], Awaitable[Fault | None]]) -> None:
        from_s = time.monotonic()
        fault = await act()
        if fault is not None:
            await self._affinity_back(fault)
        self.played.phases.append(Phase(name, from_s, time.monotonic(), fault))

    async def _affinity_back(self, fault: Fault) -> None:
        """Until requests find as much as usual again, and no longer than is worth waiting for."""
        until_s = time.monotonic() + AFFINITY_WITHIN_S
        while time.monotonic() < until_s:
            if affinity_back_s(self._client.seen, fault.at_s, until_s, self._usual_share) is not None:
                return
            await asyncio.sleep(LOOK_EVERY_S)

    async def _warm_up(self) -> None:
        try:
            async with asyncio.timeout(WARM_WITHIN_S):
                while len(self._client.seen) < self._requests:  # noqa: ASYNC110 - it grows elsewhere
                    await asyncio.sleep(_ASK_AGAIN_S)
        except TimeoutError:
            raise DemoFailed(
                f"{len(self._client.seen)} answers in {WARM_WITHIN_S:g} s: the machine is too slow"
            ) from None

    async def _all_is_well(self) -> None:
        """What is usual is measured here, by what the next phases are held against."""
        before = len(self._client.seen)
        await self._calm()
        self._usual_share = accuracy_of(self._client.seen[before:]).cached_share

    async def _calm(self) -> None:
        await asyncio.sleep(self._pace.calm_s)

    async def _kill_replica(self) -> Fault:
        victim = await self._consumer() if self._fleet.plan.events else self._fleet.replicas[-1]
        fault = Fault(victim.name, time.monotonic())
        self._tell(f"kill -9 {victim.name}")
        await victim.process.kill()
        if self._fleet.plan.events:
            await self._timed("another replica consumes the KV events", self._handed_over(victim), fault.at_s)
        await self._away_since(fault.at_s)
        await victim.process.start()
        await self._timed(f"{victim.name} is well", well(victim, BACK_WITHIN_S), time.monotonic())
        await self._calm()
        return fault

    async def _kill_engine(self) -> Fault:
        victim = self._fleet.engines[-1]
        fault = Fault(victim.id, time.monotonic())
        self._tell(f"kill -9 {victim.id}")
        await victim.process.kill()
        await self._away_since(fault.at_s)
        await victim.process.start()
        await self._timed(f"{victim.id} is used again by all", self._all_well(), time.monotonic())
        await self._in_step("a new engine", time.monotonic())
        await self._calm()
        return fault

    async def _kill_index(self) -> Fault:
        index = self._fleet.index
        assert index is not None
        fault = Fault("index", time.monotonic())
        self._tell("kill -9 the server of the index")
        await index.process.kill()
        await self._away_since(fault.at_s)
        await index.start()
        back_s = time.monotonic()
        self._tell("it is back, empty")
        await self._timed("the index is used again by all", self._all_well(), back_s)
        await self._in_step("a new index", back_s)
        await self._calm()
        return fault

    async def _flush_index(self) -> Fault:
        index = self._fleet.index
        assert index is not None
        fault = Fault("index", time.monotonic())
        self._tell("FLUSHALL")
        await index.flush()
        await self._in_step("a flushed index", fault.at_s)
        await self._calm()
        return fault

    async def _consumer(self) -> Replica:
        """The replica that consumes the events of most engines."""
        assert self._fleet.index is not None
        holders = list((await self._fleet.index.consumers()).values())
        return max(self._fleet.replicas, key=lambda one: holders.count(one.process.pid or 0))

    async def _handed_over(self, victim: Replica) -> None:
        """Until replicas that live hold all leases; who was killed has no process id any more."""
        assert self._fleet.index is not None
        alive = {one.process.pid for one in self._fleet.replicas if one is not victim}
        async with asyncio.timeout(BACK_WITHIN_S):
            while True:
                consumers = await self._fleet.index.consumers()
                if all(consumers.get(engine.id) in alive for engine in self._fleet.engines):
                    return
                await asyncio.sleep(_ASK_AGAIN_S)

    async def _in_step(self, what: str, from_s: float) -> None:
        if self._fleet.plan.events:
            await self._timed(f"KV events are in step with {what}", followed(self._fleet, BACK_WITHIN_S), from_s)

    async def _all_well(self) -> None:
        for replica in self._fleet.replicas:
            await well(replica, BACK_WITHIN_S)

    async def _away_since(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s + DOWN_S - time.monotonic()))

    async def _timed(self, what: str, work: Awaitable[None], from_s: float) -> None:
        """Note how long `work` took from `from_s`; that it never came to its end is noted too."""
        try:
            await work
        except (DemoFailed, TimeoutError) as failure:
            self.played.recovered_s[what] = None
            self._tell(f"NOT in {BACK_WITHIN_S:g} s: {what} ({failure})")
        else:
            took_s = time.monotonic() - from_s
            self.played.recovered_s[what] = took_s
            self._tell(f"{what}, after {took_s:.1f} s")

    def _tell(self, what: str) -> None:
        at_s = time.monotonic() - self.played.epoch_s
        self.played.said.append((at_s, what))
        self._say(f"{at_s:6.1f} s  {what}")

    async def _look(self) -> None:
        """At the health of every replica, again and again, until cancelled."""
        async with httpx.AsyncClient(timeout=2.0) as http, asyncio.TaskGroup() as group:
            for replica in self._fleet.replicas:
                group.create_task(self._look_at(http, replica))

    async def _look_at(self, http: httpx.AsyncClient, replica: Replica) -> None:
        while True:
            degraded: frozenset[str] | None = None
            with suppress(httpx.HTTPError):
                degraded = frozenset((await http.get(f"{replica.url}/health")).raise_for_status().json()["degraded"])
            self.played.health.append(Health(time.monotonic(), replica.name, degraded))
            await asyncio.sleep(LOOK_EVERY_S)
