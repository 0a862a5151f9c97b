"""What each endpoint has in flight, held against its bound: `full` are those that nothing more is sent to now.

    this process   reserve, first token, release, promises     told at once
    others         their loads, as they come with a match      ┐ looked at where they are news
    engines        samples of their metrics, who is up         ┘

Costs: 0.3 µs for a change while there is room, O(endpoints) for news.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from backends import EndpointFacts, EndpointId, EndpointSnapshot, InFlight
from gateway.queueing.drain import DrainRate
from gateway.queueing.fullness import Bound, Work, is_full, learned
from prefix_index import Load

NOTHING = InFlight()
_NO_LOAD = Load()


class Endpoints(Protocol):
    """The registry."""

    def snapshot(self) -> tuple[EndpointSnapshot, ...]:
        """All endpoints; the same object while nothing has changed."""

    def load_of(self, endpoint_id: EndpointId) -> InFlight:
        """What this process has in flight there."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """By endpoint; `others` is that of endpoints that have none. Samples older than `stale_s` say nothing."""

    of: Mapping[str, Bound]
    others: Bound
    stale_s: float = 10.0


@dataclass(slots=True)
class Standing:
    """One endpoint: its bound, of `requests` as it is now; what others have there; what is promised; how fast it takes
    what waits."""

    bound: Bound
    requests: int | None
    only_requests: bool
    others: Load = _NO_LOAD
    sampled_at_s: float = -math.inf
    kv_use: float | None = None
    promised: int = 0
    promised_tokens: int = 0
    rate: DrainRate = field(default_factory=DrainRate)

    def has_plenty(self, own_requests: int) -> bool:
        """Whether there is room, as can be said without looking at more than requests."""
        if not self.only_requests:
            return False
        return self.requests is None or own_requests + self.promised + self.others.requests < self.requests


class Places:
    """All endpoints, of one process. `others` gives the loads of the other replicas, the same object while they are the
    same, and how many replicas there are with this one."""

    def __init__(
        self,
        bounds: Bounds,
        endpoints: Endpoints,
        others: Callable[[], tuple[Mapping[str, Load], int]],
        monotonic: Callable[[], float],
    ) -> None:
        self.full: set[str] = set()
        self.able: Mapping[str, EndpointFacts | None] = {}
        """Those that are up and take requests, with what they say of themselves."""
        self.standings = {name: _standing(bound) for name, bound in bounds.of.items()}
        self._bounds = dict(bounds.of)
        self._others_bound, self._stale_s = bounds.others, bounds.stale_s
        self._endpoints = endpoints
        self._others = others
        self._monotonic = monotonic
        self._snapshot: tuple[EndpointSnapshot, ...] = ()
        self._known: frozenset[str] = frozenset()
        self._loads: Mapping[str, Load] = {}
        self._replicas = 1

    def of(self, endpoint_id: str) -> Standing:
        """What is known of an endpoint."""
        standing = self.standings.get(endpoint_id)
        if standing is None:
            bound = self._bounds.get(endpoint_id, self._others_bound)
            standing = self.standings[endpoint_id] = _standing(bound)
        return standing

    def bind(self, endpoint_id: str, bound: Bound) -> None:
        """An endpoint has this bound from now on; what is promised and known of it stays."""
        self._bounds[endpoint_id] = bound
        standing = self.standings.get(endpoint_id)
        if standing is not None and standing.bound != bound:
            new = _standing(bound)
            standing.bound, standing.requests, standing.only_requests = bound, new.requests, new.only_requests

    def unbind(self, endpoint_id: str) -> None:
        """An endpoint has no bound of its own any more."""
        self._bounds.pop(endpoint_id, None)

    def has_room(self, endpoint_id: str, standing: Standing, load: InFlight | None = None) -> bool:
        """Whether more may be sent to an endpoint; `full` says so too from now on. `load` is what is in flight there,
        where it is at hand."""
        if load is not None and standing.has_plenty(load.requests):
            if endpoint_id in self.full:
                self.full.remove(endpoint_id)
            return True
        if load is None:
            load = self._endpoints.load_of(EndpointId(endpoint_id)) if endpoint_id in self._known else NOTHING
        others = standing.others
        requests, tokens = load.requests + standing.promised, load.uncached_tokens + standing.promised_tokens
        work = Work(requests, requests + others.requests, tokens, tokens + others.uncached_tokens)
        bound, kv_use = standing.requests, standing.kv_use
        if self._monotonic() - standing.sampled_at_s > self._stale_s:
            kv_use = None
            bound = None if standing.bound.learns else bound
        if is_full(standing.bound, bound, work, kv_use, self._replicas):
            self.full.add(endpoint_id)
            return False
        self.full.discard(endpoint_id)
        return True

    def hear(self, *, anyway: bool = False) -> bool:
        """Look at what others do and engines say, where that is news, or `anyway` as samples grow old. Whether it was
        looked at."""
        loads, replicas = self._others()
        snapshot = self._endpoints.snapshot()
        if loads is self._loads and snapshot is self._snapshot and replicas == self._replicas and not anyway:
            return False
        self._loads, self._replicas = loads, replicas
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._read(snapshot)
        for name, standing in self.standings.items():
            standing.others = loads.get(name, _NO_LOAD)
            self.has_room(name, standing)
        return True

    def _read(self, snapshot: tuple[EndpointSnapshot, ...]) -> None:
        self._known = frozenset(endpoint.id for endpoint in snapshot)
        for endpoint in snapshot:
            standing, load = self.of(endpoint.id), endpoint.load
            if load is not None and load.fetched_at_s != standing.sampled_at_s:
                standing.sampled_at_s, standing.kv_use = load.fetched_at_s, load.kv_use
                if standing.bound.learns:
                    standing.requests = learned(standing.requests, load)
        able: dict[str, EndpointFacts | None] = {
            one.id: one.facts for one in snapshot if (one.healthy or one.last_resort) and not one.draining
        }
        if able != self.able:
            self.able = able
            gone = [name for name, one in self.standings.items() if name not in self._known and not one.promised]
            for name in gone:
                del self.standings[name]
                self.full.discard(name)


def _standing(bound: Bound) -> Standing:
    only_requests = bound.queued_tokens is None and bound.kv_use is None and not bound.learns
    return Standing(bound, None if bound.learns else bound.requests, only_requests)
