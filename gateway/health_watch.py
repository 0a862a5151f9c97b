"""The look at all endpoints, once a second: who is silent (`attempts.py`), and now and then who does far worse than its
peers (`backends/outliers.py`) and is left out for a while.

    registry: answers, faults ─┐                      ┌─> registry.set_aside(EJECTED)
    perf book: fitted speeds  ─┴─ a group a model ──> Ejector ─> taken back, little by little (`slow_start.py`)

What counts for a failure is what blames the endpoint: a client's mistake and a client that left are none. Rates are of
about the last minute: at each look what was before counts for less.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backends import EndpointId, EndpointSnapshot, EndpointState, Registry
from backends.outliers import Ejector, Measured, Odd, Oddity
from gateway.attempts import Attempts
from gateway.config import Config
from gateway.health_config import Outliers
from gateway.health_metrics import HealthMetrics
from gateway.perf_book import PerfBook
from gateway.slow_start import SlowStart

Clock = Callable[[], float]
MEMORY_S: Final = 60.0
"""What was seen counts for so long, fading."""
_WHAT: Final = {
    Oddity.FAILS: "it fails {value:.0%} of its requests, its peers {usual:.1%}",
    Oddity.SLOW_PREFILL: "a prompt takes it {value:.1f} times what it is configured with, its peers {usual:.1f} times",
    Oddity.SLOW_DECODE: "a token takes it {value:.1f} times what it is configured with, its peers {usual:.1f} times",
}


@dataclass(slots=True)
class _Tally:
    """What is counted of an endpoint: totals as last seen, and what of them is of late."""

    answered: int
    failed: int
    requests: float = 0.0
    faults: float = 0.0
    samples_from: int = 0
    """Measurements before that are not of this stay."""


@dataclass(frozen=True, slots=True)
class WatchParts:
    """The objects that the look is at. `clock` is the registry's."""

    registry: Registry
    attempts: Attempts
    perf: PerfBook
    slow_start: SlowStart
    metrics: HealthMetrics
    clock: Clock


class HealthWatch:
    """Of one process: replicas see for themselves."""

    def __init__(self, parts: WatchParts, outliers: Outliers) -> None:
        self.attempts = parts.attempts
        self._parts = parts
        self._outliers = outliers
        self._ejector = Ejector(outliers.rules)
        self._tallies: dict[EndpointId, _Tally] = {}
        self._next_s = -math.inf

    def show(self) -> None:
        """Bring the metrics up to date."""
        for endpoint in self._parts.registry.snapshot():
            member = self._parts.registry.member(endpoint.id)
            self._parts.metrics.show(endpoint.id, endpoint.condition, {} if member is None else member.faults)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._ejector.removed(endpoint_id)
        self._tallies.pop(EndpointId(endpoint_id), None)
        self._parts.attempts.removed(endpoint_id)

    def new_generation(self, endpoint_id: EndpointId, generation: int) -> None:
        """The engine is another one now: nothing of this is held against it."""
        self._ejector.removed(endpoint_id)
        self._tallies.pop(endpoint_id, None)
        self._parts.attempts.new_generation(endpoint_id, generation)

    async def run(self) -> None:
        """Look, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self.attempts.look_s)

    def look(self) -> None:
        """Once: O(endpoints), and at times as much again for comparing them."""
        self._parts.attempts.look()
        now_s = self._parts.clock()
        if self._outliers.is_on and now_s >= self._next_s:
            self._next_s = now_s + self._outliers.interval_s
            self._compare(now_s)

    def _compare(self, now_s: float) -> None:
        parts, groups = self._parts, dict[frozenset[str], list[Measured]]()
        endpoints = [one for one in parts.registry.snapshot() if one.facts is not None and not one.leaving]
        for endpoint in endpoints:
            groups.setdefault(_models(endpoint), []).append(self._measured(endpoint))
        went, back = self._ejector.look(list(groups.values()), now_s)
        for odd in went:
            self._eject(odd)
        for endpoint_id in map(EndpointId, back):
            if endpoint_id in parts.registry and parts.registry.take_back(endpoint_id, EndpointState.EJECTED):
                parts.slow_start.begin(endpoint_id, self._outliers.return_s)
            self._begin_anew(endpoint_id)

    def _eject(self, odd: Odd) -> None:
        endpoint_id = EndpointId(odd.endpoint_id)
        why = _WHAT[odd.oddity].format(value=odd.value, usual=odd.usual)
        self._parts.registry.set_aside(endpoint_id, EndpointState.EJECTED, why)
        self._parts.metrics.set_aside(endpoint_id, odd.oddity.value).inc()

    def _measured(self, endpoint: EndpointSnapshot) -> Measured:
        parts, member = self._parts, self._parts.registry.member(endpoint.id)
        kept = max(1 - self._outliers.interval_s / MEMORY_S, 0.0)
        assert member is not None, "it is of the registry's own snapshot"
        answered, failed = member.answered_requests, member.faults.total()
        tally = self._tallies.get(endpoint.id)
        if tally is None:
            tally = self._tallies[endpoint.id] = _Tally(answered, failed)
        faults = failed - tally.failed
        tally.requests = tally.requests * kept + (answered - tally.answered) + faults
        tally.faults = tally.faults * kept + faults
        tally.answered, tally.failed = answered, failed
        prefill, decode, samples = parts.perf.against_prior(endpoint.id)
        samples = max(samples - tally.samples_from, 0)
        return Measured(
            endpoint.id,
            requests=tally.requests,
            faults=tally.faults,
            prefill_ratio=prefill,
            decode_ratio=decode,
            prefill_samples=samples,
            decode_samples=samples,
            available=endpoint.healthy and not endpoint.draining and EndpointState.STALLED not in member.asides,
        )

    def _begin_anew(self, endpoint_id: EndpointId) -> None:
        """What it did before it was left out is not held against it a second time."""
        tally = self._tallies.get(endpoint_id)
        if tally is not None:
            tally.requests = tally.faults = 0.0
            tally.samples_from = self._parts.perf.against_prior(endpoint_id)[2]


def watch_of(
    config: Config, registry: Registry, slow_start: SlowStart, perf: PerfBook, metrics: HealthMetrics, clock: Clock
) -> HealthWatch:
    """As configured."""
    attempts = Attempts(registry, perf.known_speed, config.health, config.limits.first_byte_s, metrics, clock)
    registry.last_token_s = attempts.last_token_s
    return HealthWatch(WatchParts(registry, attempts, perf, slow_start, metrics, clock), config.outliers)


def _models(endpoint: EndpointSnapshot) -> frozenset[str]:
    """What should be alike among its peers: the models that they serve, adapters apart."""
    models: Sequence[str] = [] if endpoint.facts is None else [m.id for m in endpoint.facts.models if m.parent is None]
    return frozenset(models)
