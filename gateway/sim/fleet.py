"""The engines of a run, and each router's view of them.

happenings: engine 3 restarts at 60 s, engine 8 joins at 120 s
SimulatedEngine 0 .. n-1  --polled every poll_s-->  FleetView of each gateway replica
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from backends.simulated import EngineSpec, Role, SimulatedEngine
from gateway.sim.types import EndpointView
from prefix_index import Chain


class What(StrEnum):
    """What happens to an engine."""

    RESTART = "restart"
    JOIN = "join"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at_s` the engine of that number restarts, joins (it was not there before), or leaves for good."""

    at_s: float
    endpoint: int
    what: What


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The engines by number and what happens to them; `poll_s` between two looks at their metrics."""

    specs: Sequence[EngineSpec]
    happenings: Sequence[Happening] = ()
    poll_s: float = 1.0

    @classmethod
    def of(cls, count: int, spec: EngineSpec, **more: float) -> "FleetPlan":
        """So many equal engines."""
        return cls([spec] * count, **more)  # type: ignore[arg-type]  # only poll_s is a float


@dataclass(slots=True)
class FleetView:
    """What one gateway replica sees: a `View`. Metrics are as old as the last poll, which is made when they are asked
    for and `poll_s` have passed."""

    engines: Sequence[SimulatedEngine]
    poll_s: float
    now_s: float = 0.0
    _endpoints: list[EndpointView] = field(default_factory=list)
    _polled_s: float = float("-inf")
    _version: int = 0

    @property
    def endpoints(self) -> Sequence[EndpointView]:
        """All endpoints by number, polled anew if it is time."""
        if self.now_s - self._polled_s >= self.poll_s:
            self._polled_s = self.now_s
            self._version += 1
            for view, engine in zip(self._endpoints, self.engines, strict=True):
                sample = engine.sample(self.now_s)
                view.running, view.waiting, view.kv_use = sample.running or 0, sample.waiting or 0, sample.kv_use or 0.0
        return self._endpoints

    @property
    def version(self) -> int:
        """Another number whenever metrics were read anew, or an endpoint came or went."""
        return self._version

    @property
    def polled_s(self) -> float:
        """When the metrics were last read."""
        return self._polled_s

    def cached_blocks(self, endpoint: int, chain: Chain) -> int:
        """The leading run of `chain` at an endpoint, as if its KV events came at once."""
        return self.engines[endpoint].cached_blocks(chain.hashes)

    def live(self, endpoint: int, alive: bool) -> None:
        """An endpoint came or went; this replica knows at once."""
        self._endpoints[endpoint].alive = alive
        self._version += 1

    def counts(self, endpoint: int, requests: int) -> None:
        """This replica has so many more (or fewer) requests there."""
        self._endpoints[endpoint].in_flight += requests


def view_of(engines: Sequence[SimulatedEngine], plan: FleetPlan) -> FleetView:
    """A replica's view of a fleet before anything happened; endpoints that join later are not alive yet, and decode
    engines, which no policy chooses, never."""
    absent = {happening.endpoint for happening in plan.happenings if happening.what is What.JOIN}
    absent |= {number for number, spec in enumerate(plan.specs) if spec.role is Role.DECODE}
    endpoints = [
        EndpointView(
            number, f"e{number}", spec.capacity_blocks * spec.block_size, spec.block_size, number not in absent
        )
        for number, spec in enumerate(plan.specs)
    ]
    return FleetView(engines, plan.poll_s, _endpoints=endpoints)
