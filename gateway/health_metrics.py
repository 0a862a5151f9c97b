"""How endpoints stand, in metrics."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from backends import Condition, EndpointState
from gateway.metrics import counters


class HealthMetrics:
    """By endpoint; states, kinds and reasons are our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.given_up = counters(
            registry,
            "prefixgate_first_byte_given_up",
            "Attempts that were taken elsewhere since their endpoint was silent for far longer than its speed says.",
            ["endpoint"],
        )
        self.set_aside = counters(
            registry,
            "prefixgate_endpoint_set_aside",
            "Times that new requests were kept from an endpoint, by why: stalled, fails, slow_prefill, slow_decode.",
            ["endpoint", "why"],
        )
        self._state = Gauge(
            "prefixgate_endpoint_state",
            "1 for the state in which an endpoint is.",
            ["endpoint", "state"],
            registry=registry,
        )
        self._opened = counters(
            registry, "prefixgate_breaker_opened", "How often an endpoint's breaker has opened.", ["endpoint"]
        )
        self._faults = counters(
            registry,
            "prefixgate_endpoint_faults",
            "Requests that an endpoint failed by its own fault, by kind.",
            ["endpoint", "kind"],
        )

    def show(self, endpoint_id: str, condition: Condition, faults: Mapping[str, int]) -> None:
        """How an endpoint stands now."""
        for state in EndpointState:
            self._state.labels(endpoint_id, state.value).set(condition.state is state)
        self._opened(endpoint_id).stands_at(condition.opened)
        for kind, count in faults.items():
            self._faults(endpoint_id, kind).stands_at(count)
