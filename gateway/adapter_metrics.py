"""Metrics of LoRA adapters. No series carries an adapter's name: there may be thousands, and they come and go."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges


class AdapterMetrics:
    """By endpoint, and by rank where the gateway chooses ranks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = counters(
            registry,
            "prefixgate_adapter_requests",
            "Requests for an adapter, by whether it was loaded: the engine said so, it was sent there lately, or not.",
            ["endpoint", "residency"],
        )
        self.evictions = counters(
            registry,
            "prefixgate_adapter_evictions",
            "Requests whose adapter took the place of another one, as far as is known.",
            ["endpoint"],
        )
        self.load_s = gauges(
            registry,
            "prefixgate_adapter_load_seconds",
            "Seconds that loading an adapter takes, as learned from first uses; the configured ones until then.",
            ["endpoint"],
        )
