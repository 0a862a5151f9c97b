"""Where endpoints come from, and whether those who know them can be asked."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges


class DiscoveryMetrics:
    """By source, whose names come from the configuration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.endpoints = gauges(
            registry,
            "prefixgate_discovered_endpoints",
            "Endpoints by the source that names them and their state: up, down, held, leaving, refused.",
            ["source", "state"],
        )
        self.errors = counters(
            registry,
            "prefixgate_discovery_errors",
            "Times that a source could not be asked, or said nothing that can be used.",
            ["source"],
        )
        self.success_age_s = gauges(
            registry,
            "prefixgate_discovery_last_success_age_seconds",
            "Seconds since a source last said what there is.",
            ["source"],
        )
