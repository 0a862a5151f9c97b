"""Metrics of requests that wait while all endpoints are full."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges, histograms

_WAIT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class QueueMetrics:
    """Classes and endpoints are of the configuration, the rest our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.waiting = gauges(
            registry, "prefixgate_queue_requests", "Requests that wait while all endpoints are full.", ["class"]
        )
        self.waiting_bytes = gauges(registry, "prefixgate_queue_bytes", "Bytes of their bodies.", ["class"])
        self.oldest_s = gauges(
            registry, "prefixgate_queue_oldest_seconds", "How long the one has waited that came first.", ["class"]
        )
        self.wait_s = histograms(
            registry,
            "prefixgate_queue_seconds",
            "How long requests waited whose turn came, of those that had to wait.",
            ["class"],
            _WAIT_BUCKETS_S,
        )
        self.went = counters(
            registry,
            "prefixgate_queue_turns",
            "Turns of requests that waited, by why it was theirs: in_order, prefix, share.",
            ["class", "why"],
        )
        self.shed = counters(
            registry,
            "prefixgate_queue_shed",
            "Requests that might not wait, or not any longer, by reason: class_full, class_bytes, tenant_full, "
            "tenant_bytes, hopeless, expired, stopping.",
            ["class", "reason"],
        )
        self.left = counters(
            registry, "prefixgate_queue_left", "Requests whose client left while they waited.", ["class"]
        )
        self.full = gauges(
            registry, "prefixgate_endpoint_full", "1 while an endpoint with a bound is full.", ["endpoint"]
        )
        self.bound = gauges(
            registry,
            "prefixgate_endpoint_bound_requests",
            "Requests that an endpoint takes at a time, told or learned; 0 while that is not known.",
            ["endpoint"],
        )
