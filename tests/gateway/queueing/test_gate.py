"""The gate: places are given once, nobody waits beside a free endpoint, and nothing is left of whoever leaves."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from backends import EndpointFacts, EndpointId, EndpointSnapshot, InFlight, LoadSample
from gateway.errors import GatewayError, QueueFull, QueueTimeout, TenantQueueFull
from gateway.queue_metrics import QueueMetrics
from gateway.queueing import ClassRule, OrderRules, Ticket
from gateway.queueing.fullness import Bound
from gateway.queueing.gate import Gate, GateParts, GateRules, Turn
from gateway.queueing.places import Bounds, Places
from prefix_index import Load

CLASSES = (ClassRule("high", 30, 1000, 1 << 30, 0.1), ClassRule("low", 30, 3, 1000, 0.1))
LONG_S = 1e6


class World:
    """Endpoints with a bound, what is in flight there, and a gate in front. Time goes where it is set."""

    def __init__(self, names: str, bound: Bound | None = None, **rules: int) -> None:
        self.now_s = 0.0
        self.in_flight = Counter[str]()
        self.samples: dict[str, LoadSample] = {}
        self.up = set(names)
        self.names = names
        self.others: tuple[Mapping[str, Load], int] = ({}, 1)
        self.registry = CollectorRegistry()
        self.stopping = False
        self._snapshot: tuple[EndpointSnapshot, ...] | None = None
        places = Places(Bounds({}, bound or Bound(requests=1)), self, lambda: self.others, lambda: self.now_s)
        self.gate = Gate(
            GateRules(OrderRules(CLASSES), **rules),
            GateParts(places, QueueMetrics(self.registry), lambda: self.now_s, lambda: self.stopping),
        )
        self.gate.is_crowded()

    def snapshot(self) -> tuple[EndpointSnapshot, ...]:
        if self._snapshot is None:
            self._snapshot = tuple(
                EndpointSnapshot(EndpointId(name), name in self.up, 1, facts=FACTS, load=self.samples.get(name))
                for name in self.names
            )
        return self._snapshot

    def changed(self) -> None:
        """A poll: the gate hears of it with the next request, or the next tick."""
        self._snapshot = None
        self.gate.is_crowded()

    def load_of(self, endpoint_id: EndpointId) -> InFlight:
        return InFlight(self.in_flight[endpoint_id])

    def begin(self, name: str) -> None:
        self.in_flight[name] += 1
        self.gate.load_changed(name, self.load_of(EndpointId(name)))

    def end(self, name: str) -> None:
        self.in_flight[name] -= 1
        self.gate.load_changed(name, self.load_of(EndpointId(name)))

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    async def ask(
        self, tenant: str = "t", endpoints: str | None = None, until_s: float = LONG_S, rank: int = 0, **more: int
    ) -> Turn | None:
        able = dict.fromkeys(endpoints or self.names, 0)
        body_bytes = more.get("body_bytes", 0)
        ticket = Ticket(tenant, rank, more.get("tokens", 100), frozenset(able), able, body_bytes=body_bytes)
        return await self.gate.wait(ticket, until_s, lambda: {name: 0 for name in able if name in self.up})

    def take(self, turn: Turn) -> str:
        """As the pipeline does: first counted, then the promise is ended."""
        self.begin(turn.endpoint_id)
        turn.end()
        return turn.endpoint_id


FACTS = EndpointFacts("vllm")


async def until_waiting(world: World, requests: int) -> None:
    while len(world.gate) < requests:
        await asyncio.sleep(0)


async def test_who_waits_gets_the_place_that_becomes_free_and_nobody_else_does() -> None:
    world = World("a")
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.ask())
        second = group.create_task(world.ask())
        await until_waiting(world, 2)
        world.end("a")
        assert "a" in world.gate.full, "promised: nobody may come between"
        turn = await first
        assert turn is not None
        assert not second.done()
        world.take(turn)
        world.end("a")
        turn = await second
        assert turn is not None
        world.take(turn)
    assert world.value("prefixgate_queue_turns_total", **{"class": "high", "why": "in_order"}) == 2


async def test_a_client_that_leaves_in_the_moment_of_its_turn_hands_it_on() -> None:
    world = World("a")
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        leaves = group.create_task(world.ask())
        await until_waiting(world, 1)
        stays = group.create_task(world.ask())
        await until_waiting(world, 2)
        world.end("a")
        leaves.cancel()
        turn = await stays
    assert turn is not None
    assert world.value("prefixgate_queue_left_total", **{"class": "high"}) == 1


async def test_a_place_that_becomes_free_as_many_clients_leave_at_once_is_somebodys_who_stays() -> None:
    world = World("a")
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        leaving = [group.create_task(world.ask()) for _ in range(3)]
        stays = group.create_task(world.ask())
        await until_waiting(world, 4)
        for task in leaving:
            task.cancel()
        world.end("a")  # by another one that left: none of those above has heard of its end yet
        turn = await stays
    assert turn is not None
    assert world.gate.full == {"a"}, "by that one promise"
    turn.end()
    assert world.gate.full == frozenset()


async def test_a_turn_that_comes_to_nothing_is_the_next_ones() -> None:
    world = World("a")
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(world.ask()), group.create_task(world.ask())
        await until_waiting(world, 2)
        world.end("a")
        turn = await first
        assert turn is not None
        turn.end()
        turn.end()
        assert (await second) is not None


async def test_who_waits_too_long_is_told_and_its_place_is_free() -> None:
    world = World("a")
    world.begin("a")
    with pytest.raises(QueueTimeout):
        await world.ask(until_s=0.01)
    assert len(world.gate) == 0
    assert world.value("prefixgate_queue_shed_total", **{"class": "high", "reason": "expired"}) == 1


async def test_more_than_may_wait_are_refused_at_once_a_tenants_own_with_429() -> None:
    world = World("a", tenant_requests=2)
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.ask("greedy")) for _ in range(2)]
        await until_waiting(world, 2)
        with pytest.raises(TenantQueueFull) as greedy:
            await world.ask("greedy")
        tasks += [group.create_task(world.ask(f"t{at}", rank=1, body_bytes=400)) for at in range(2)]
        await until_waiting(world, 4)
        with pytest.raises(QueueFull):
            await world.ask("long", rank=1, body_bytes=400)
        tasks.append(group.create_task(world.ask("t2", rank=1)))
        await until_waiting(world, 5)
        with pytest.raises(QueueFull) as others:
            await world.ask("t3", rank=1)
        for task in tasks:
            task.cancel()
    assert (greedy.value.status, others.value.status) == (429, 503)
    reasons = ("tenant_full", "class_bytes", "class_full")
    counted = [
        sum(world.value("prefixgate_queue_shed_total", **{"class": name, "reason": reason}) for name in ("high", "low"))
        for reason in reasons
    ]
    assert counted == [1, 1, 1]


async def drained(world: World, requests: int, each_s: float) -> None:
    """So many requests are served, one after the other, while others wait."""
    for _ in range(requests):
        waits = asyncio.ensure_future(world.ask(tokens=100))
        await until_waiting(world, 1)
        world.now_s += each_s
        world.end("a")
        turn = await waits
        assert turn is not None
        world.take(turn)


async def test_who_would_wait_longer_than_its_client_does_is_told_at_once_when_to_come_again() -> None:
    world = World("a")
    world.begin("a")
    await drained(world, 50, each_s=1.0)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(world.ask("other")) for _ in range(20)]
        await until_waiting(world, 20)
        with pytest.raises(QueueTimeout) as hopeless:
            await world.ask("other", until_s=world.now_s + 5)
        mine = group.create_task(world.ask("mine", until_s=world.now_s + 5))  # of a tenant of which nobody waits
        await until_waiting(world, 21)
        for task in (*tasks, mine):
            task.cancel()
    assert 12 <= (hopeless.value.retry_after_s or 0) <= 18
    assert world.value("prefixgate_queue_shed_total", **{"class": "high", "reason": "hopeless"}) == 1


async def test_an_endpoint_that_comes_up_takes_what_waits_at_the_next_look() -> None:
    world = World("ab")
    world.up = {"a"}
    world.changed()
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(world.ask(endpoints="ab"))
        await until_waiting(world, 1)
        world.up = {"a", "b"}
        world.changed()
        turn = await waits
    assert turn is not None
    assert turn.endpoint_id == "b"


async def test_who_is_served_by_nobody_any_more_is_told_to_look_again() -> None:
    world = World("a")
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(world.ask())
        await until_waiting(world, 1)
        world.up = set()
        world.changed()
        assert (await waits) is None
    assert len(world.gate) == 0


async def test_what_another_replica_gives_back_is_somebodys_here() -> None:
    world = World("a", Bound(requests=4))
    world.others = {"a": Load(3)}, 2
    world.changed()
    world.begin("a")
    world.begin("a")  # half of four is ours, whatever the other has
    assert world.gate.full == {"a"}
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(world.ask())
        await until_waiting(world, 1)
        world.others = {"a": Load(1)}, 2
        world.gate.is_crowded()
        assert (await waits) is not None


async def test_an_engine_in_which_requests_wait_is_full_from_what_runs_there() -> None:
    world = World("a", Bound(learns=True))
    for _ in range(5):
        world.begin("a")
    assert not world.gate.is_crowded()
    world.samples["a"] = LoadSample(0.5, running=3, waiting=2)
    world.changed()
    assert world.gate.full == {"a"}
    world.now_s = 60.0
    assert world.gate.is_crowded()
    world.gate._hear(anyway=True)
    assert not world.gate.full, "a sample of a minute ago says nothing"


async def test_a_gateway_that_stops_serves_what_waits_as_long_as_there_is_time_and_tells_the_rest() -> None:
    world = World("a", drain_s=10)
    world.begin("a")
    async with asyncio.TaskGroup() as group:
        runs = group.create_task(world.gate.run())
        waits = [group.create_task(outcome(world)) for _ in range(2)]
        await until_waiting(world, 2)
        world.stopping = True
        await asyncio.sleep(0.25)  # two ticks, in which nothing may happen
        assert len(world.gate) == 2
        world.end("a")
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        world.now_s = 9.0
        told = [await one for one in waits]
        assert await outcome(world) == "queue_full"
        runs.cancel()
    assert sorted(told) == ["queue_full", "served"]


async def outcome(world: World, **asks: int) -> str:
    try:
        turn = await world.ask(**asks)  # type: ignore[arg-type]  # of keywords
    except GatewayError as error:
        return error.code
    return "again" if turn is None else "served"


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "come", "end", "end", "leave", "flap", "look"]),
        st.sampled_from("xyz"),
        st.integers(0, 1),
        st.sampled_from(["a", "b", "ab", "abc"]),
    ),
    max_size=60,
)


@given(events=EVENTS, seed=st.integers(0, 2**16))
def test_whatever_happens_no_endpoint_is_free_while_one_waits_that_it_may_serve_and_all_counts_end_at_zero(
    events: list[tuple[str, str, int, str]], seed: int
) -> None:
    asyncio.run(play(events, random.Random(seed)))


async def play(events: list[tuple[str, str, int, str]], rng: random.Random) -> None:
    world = World("abc", Bound(requests=2), tenant_requests=4)
    running: list[str] = []
    asking: dict[asyncio.Task[None], frozenset[str]] = {}

    async def serve(tenant: str, rank: int, endpoints: str) -> None:
        while True:
            able = [name for name in endpoints if name in world.up]
            roomy = [name for name in able if name not in world.gate.full]
            if not able:
                return
            if roomy:
                world.begin(roomy[0])
                running.append(roomy[0])
                return
            try:
                turn = await world.ask(tenant, endpoints, rank=rank, tokens=rng.randrange(1, 1000))
            except GatewayError:
                return
            if turn is not None:
                running.append(world.take(turn))
                return

    for what, tenant, rank, endpoints in events:
        if what == "come":
            asking[asyncio.ensure_future(serve(tenant, rank, endpoints))] = frozenset(endpoints)
        elif what == "end" and running:
            world.end(running.pop(rng.randrange(len(running))))
        elif what == "leave" and asking:
            rng.choice(list(asking)).cancel()
        elif what == "flap":
            world.up ^= {rng.choice("abc")}
            world.changed()
        elif what == "look":
            world.gate.is_crowded()
        for _ in range(4):
            await asyncio.sleep(0)
        asking = {task: group for task, group in asking.items() if not task.done()}
        for group in asking.values():
            assert group & world.up <= world.gate.full
        assert all(world.in_flight[name] <= 2 for name in "abc")
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    while running:
        world.end(running.pop())
    assert len(world.gate) == 0
    assert not world.gate.full
    assert not world.gate._tally.tenants
    assert all(count.requests == 0 and count.body_bytes == 0 for count in world.gate._tally.classes)
    assert all(one.promised == 0 and one.promised_tokens == 0 for one in world.gate._places.standings.values())
