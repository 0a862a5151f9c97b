"""Metrics of the endpoint picker (gateway/epp): streams of the gateway in front, and what it does not let us see."""

from prometheus_client import CollectorRegistry, Gauge

from gateway.metrics import counters


class EppMetrics:
    """Labels are our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.streams = counters(
            registry,
            "prefixgate_epp_streams",
            "Requests of the gateway in front by how they ended: answered, ours, left, cut, broken, unseen.",
            ["outcome"],
        )
        self.unbilled = counters(
            registry,
            "prefixgate_epp_unbilled",
            "Requests whose answer the gateway in front does not show, so that nobody is billed for them.",
            [],
        )
        self.served_elsewhere = counters(
            registry,
            "prefixgate_epp_served_elsewhere",
            "Answers that came from another endpoint than the first that was named: a fallback, or one unknown here.",
            ["by"],
        )
        self.open = Gauge(
            "prefixgate_epp_open_streams", "Requests of the gateway in front under way.", registry=registry
        )
