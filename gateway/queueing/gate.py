"""The gate in front of the endpoints: who has room, who waits, and whose turn it is. On one event loop, of one process.

    reserve, first token, release ──load_changed──> full? ──no──> next of the order ──> Turn: a place, promised
    poll of an engine, others' loads ──is_crowded, run──> the same for all
    wait ──> Turn                        │ ended once its request is sent, or comes to nothing: the next one's
         └─> None: look again            │

Invariants: an endpoint that somebody may go to who waits is full, or its place is promised; a promise counts as a
request in flight, so that a place is never given twice; whatever becomes of a request, it waits no longer and its
promise is given back.

Costs: 0.3 µs a request while nobody waits and nothing has changed; O(tenants that wait) for each turn.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from backends import InFlight
from gateway.errors import GatewayError, QueueFull, QueueTimeout, TenantQueueFull
from gateway.queue_metrics import QueueMetrics
from gateway.queueing.drain import wait_s
from gateway.queueing.fullness import Bound
from gateway.queueing.order import Order, OrderRules
from gateway.queueing.places import Places, Standing
from gateway.queueing.tally import Tally
from gateway.queueing.types import Pick, Ticket, WaitShed

TICK_S: Final = 0.1
"""How soon what other replicas did, and what engines say, is noticed while somebody waits."""
MOST_RETRY_S: Final = 600
_SERVED_WHILE_STOPPING: Final = 0.8
"""Of the time that a stopping gateway has; then those that still wait are told, while there is time to."""

Look = Callable[[], Mapping[str, int]]
"""Who may serve a request now, and how many tokens of its prompt each has."""


@dataclass(frozen=True, slots=True)
class GateRules:
    """Who goes next; most requests, and bytes of bodies, of one tenant that wait; how long a gateway that accepts
    nothing more goes on."""

    order: OrderRules
    tenant_requests: int = 256
    tenant_bytes: int = 1 << 27
    drain_s: float = 30.0


@dataclass(frozen=True, slots=True)
class GateParts:
    """What the gate looks at, and tells. `stopping`: the gateway accepts nothing more."""

    places: Places
    metrics: QueueMetrics
    monotonic: Callable[[], float]
    stopping: Callable[[], bool] = lambda: False


class Turn:
    """A place at an endpoint, promised. `end` it once the request is counted there, or does not go: idempotent."""

    __slots__ = ("_gate", "endpoint_id", "tokens", "waited_s")

    def __init__(self, gate: "Gate", endpoint_id: str, tokens: int, waited_s: float) -> None:
        self._gate: Gate | None = gate
        self.endpoint_id = endpoint_id
        self.tokens = tokens
        self.waited_s = waited_s

    def end(self) -> None:
        """The promise is kept, or not needed."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.promise(self.endpoint_id, -1, -self.tokens)


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: Ticket
    look: Look
    came_s: float
    place: "asyncio.Future[Turn | None]"


class Gate:
    """See above. `full` are the endpoints that nothing more is sent to now."""

    def __init__(self, rules: GateRules, parts: GateParts) -> None:
        self.full = parts.places.full
        self._rules = rules
        self._parts = parts
        self._places = parts.places
        self._able = parts.places.able
        self._order = Order(rules.order)
        self._tally = Tally(rules.order.classes, rules.tenant_requests, rules.tenant_bytes)
        self._waiters: dict[Ticket, _Waiter] = {}
        self._stops_at_s: float | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def is_crowded(self) -> bool:
        """Whether some endpoint is full, or somebody waits: else there is nothing to look at."""
        self._hear()
        return bool(self.full or self._waiters)

    def bind(self, endpoint_id: str, bound: Bound) -> None:
        """An endpoint has this bound from now on."""
        self._places.bind(endpoint_id, bound)
        self.load_changed(endpoint_id)

    def unbind(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._places.unbind(endpoint_id)

    def load_changed(self, endpoint_id: str, load: InFlight | None = None) -> None:
        """What this process has in flight at an endpoint has changed. O(1) while nobody waits."""
        standing = self._places.of(endpoint_id)
        if self._places.has_room(endpoint_id, standing, load) and self._waiters:
            self._serve(endpoint_id, standing)

    def promise(self, endpoint_id: str, requests: int, tokens: int) -> None:
        """A place is promised, or not any more; only a turn calls this."""
        standing = self._places.of(endpoint_id)
        standing.promised += requests
        standing.promised_tokens += tokens
        assert standing.promised >= 0, "a turn was ended twice"
        self.load_changed(endpoint_id)

    async def wait(self, ticket: Ticket, until_s: float, look: Look) -> Turn | None:
        """A place at one of the endpoints of a request that finds all of them full; None: look again who may serve it.

        `until_s` is how long it may wait. Raises `QueueFull`, `TenantQueueFull` or `QueueTimeout`; at once only for one
        that has not had its turn yet.
        """
        now_s = self._parts.monotonic()
        why = None if ticket.again else self._refusal(ticket, now_s, until_s)
        if why is not None:
            raise self._shed(ticket, why, until_s - now_s)
        waiter = _Waiter(ticket, look, now_s, asyncio.get_running_loop().create_future())
        self._enter(waiter)
        try:
            async with asyncio.timeout(until_s - now_s):
                return await waiter.place
        except TimeoutError:
            self._leave(waiter)
            self._give_up(waiter)
            raise self._shed(ticket, WaitShed.EXPIRED, until_s - now_s) from None
        except asyncio.CancelledError:
            self._give_up(waiter)
            self._parts.metrics.left(self._name(ticket)).inc()
            raise
        finally:
            self._leave(waiter)

    async def run(self) -> None:
        """Notice what nobody tells: loads of other replicas, samples of engines, the end; until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            if self._waiters or self.full:
                self._hear(anyway=True)
            if self._parts.stopping():
                self._stop()

    def show(self) -> None:
        """Bring the metrics up to date."""
        self._hear()
        metrics, now_s = self._parts.metrics, self._parts.monotonic()
        oldest_s = [0.0] * len(self._tally.classes)
        for waiter in self._waiters.values():
            rank = waiter.ticket.rank
            oldest_s[rank] = max(oldest_s[rank], now_s - waiter.came_s)
        for rank, count in enumerate(self._tally.classes):
            name = self._rules.order.classes[rank].name
            metrics.waiting(name).set(count.requests)
            metrics.waiting_bytes(name).set(count.body_bytes)
            metrics.oldest_s(name).set(oldest_s[rank])
        for name, standing in self._places.standings.items():
            if not standing.bound.is_none:
                metrics.full(name).set(name in self.full)
                metrics.bound(name).set(standing.requests or 0)

    def report(self) -> dict[str, object]:
        """What `/health` tells: how many of each class wait, who is full, and which bounds there are."""
        self._hear()
        classes = {rule.name: self._tally.classes[rank].requests for rank, rule in enumerate(self._rules.order.classes)}
        standings = self._places.standings.items()
        bounds = {name: standing.requests for name, standing in standings if not standing.bound.is_none}
        return {"waiting": classes, "full": sorted(self.full), "bound_requests": bounds}

    def _hear(self, *, anyway: bool = False) -> None:
        """Take in what others do and engines say, and serve where that has made room."""
        places = self._places
        if not places.hear(anyway=anyway) or not self._waiters:
            return
        if places.able is not self._able:
            self._able = places.able
            self._regroup()
        for name in places.able:
            standing = places.of(name)
            if name not in self.full:
                self._serve(name, standing)
            elif not self._order.waits_for(name):
                standing.rate.rests(self._parts.monotonic())

    def _regroup(self) -> None:
        """Who may serve what waits has changed; who is served by nobody any more is told so."""

        for ticket, waiter in self._waiters.items():
            ticket.cached = waiter.look()
        self._order.regroup(lambda ticket: frozenset(ticket.cached))
        for waiter in [one for one in self._waiters.values() if not one.ticket.endpoints]:
            self._leave(waiter)
            if not waiter.place.done():
                waiter.place.set_result(None)

    def _serve(self, endpoint_id: str, standing: Standing) -> None:
        """Give the places of an endpoint with room to those whose turn it is."""
        while self._waiters and endpoint_id not in self.full and endpoint_id in self._places.able:
            pick = self._order.next_for(endpoint_id)
            now_s = self._parts.monotonic()
            if pick is None:
                standing.rate.rests(now_s)
                return
            self._give(pick, standing, now_s)

    def _give(self, pick: Pick, standing: Standing, now_s: float) -> None:
        waiter, name = self._waiters[pick.ticket], self._name(pick.ticket)
        self._leave(waiter)
        if waiter.place.done():  # its client has left in this very moment, and its task has not heard of it yet
            return
        tokens = pick.cost_tokens - max(pick.ticket.output_tokens, 1)
        standing.promised += 1
        standing.promised_tokens += tokens
        self._places.has_room(pick.endpoint_id, standing)
        turn = Turn(self, pick.endpoint_id, tokens, now_s - waiter.came_s)
        standing.rate.served(pick.cost_tokens, now_s)
        self._parts.metrics.went(name, pick.went.value).inc()
        self._parts.metrics.wait_s(name).observe(turn.waited_s)
        waiter.place.set_result(turn)

    def _enter(self, waiter: _Waiter) -> None:
        ticket = waiter.ticket
        self._waiters[ticket] = waiter
        self._tally.add(ticket)
        self._order.put(ticket)
        for name in ticket.endpoints:
            self._places.of(name).rate.waits(waiter.came_s)

    def _leave(self, waiter: _Waiter) -> None:
        """It waits no longer; more often is harmless."""
        if self._waiters.pop(waiter.ticket, None) is None:
            return
        self._order.remove(waiter.ticket)
        self._tally.take(waiter.ticket)
        if not self._waiters:
            now_s = self._parts.monotonic()
            for standing in self._places.standings.values():
                standing.rate.rests(now_s)

    def _give_up(self, waiter: _Waiter) -> None:
        """A place that was given in this very moment goes to the next."""
        place = waiter.place
        if place.done() and not place.cancelled() and not place.exception():
            turn = place.result()
            if turn is not None:
                turn.end()

    def _refusal(self, ticket: Ticket, now_s: float, until_s: float) -> WaitShed | None:
        if self._stops_at_s is not None and now_s >= self._stops_at_s:
            return WaitShed.STOPPING
        why = self._tally.refusal(ticket)
        if why is not None:
            return why
        foretold_s = self._foretold_s(ticket, now_s)
        return WaitShed.HOPELESS if foretold_s is not None and now_s + foretold_s > until_s else None

    def _foretold_s(self, ticket: Ticket, now_s: float) -> float | None:
        """How long it would wait if it came now; None where too little was served to say."""
        rates = [self._places.of(name).rate.tokens_per_s(now_s) for name in ticket.endpoints]
        return wait_s(self._order.ahead_of(ticket), rates)

    def _shed(self, ticket: Ticket, why: WaitShed, patience_s: float) -> GatewayError:
        name = self._name(ticket)
        self._parts.metrics.shed(name, why.value).inc()
        foretold_s = self._foretold_s(ticket, self._parts.monotonic()) or 0.0
        # When it would be in time; else when half of what is before it will have gone.
        retry_s = foretold_s - patience_s if why is WaitShed.HOPELESS else foretold_s / 2
        retry_after_s = int(min(max(math.ceil(retry_s), 1), MOST_RETRY_S))
        if why.is_tenants_own:
            return TenantQueueFull(
                f"as many requests of tenant {ticket.tenant} wait as may; try again in {retry_after_s} s", retry_after_s
            )
        if why in (WaitShed.HOPELESS, WaitShed.EXPIRED):
            return QueueTimeout(
                f"all endpoints are full, and it was not this request's turn in time; try again in {retry_after_s} s",
                retry_after_s,
            )
        return QueueFull(
            f"all endpoints are full, and as many requests wait as may; try again in {retry_after_s} s", retry_after_s
        )

    def _stop(self) -> None:
        """The gateway was told to stop: what waits is served as long as there is time, and told then."""
        now_s = self._parts.monotonic()
        if self._stops_at_s is None:
            self._stops_at_s = now_s + self._rules.drain_s * _SERVED_WHILE_STOPPING
        if now_s >= self._stops_at_s:
            for waiter in list(self._waiters.values()):
                self._leave(waiter)
                if not waiter.place.done():
                    waiter.place.set_exception(self._shed(waiter.ticket, WaitShed.STOPPING, 0.0))

    def _name(self, ticket: Ticket) -> str:
        return self._rules.order.classes[ticket.rank].name
