"""Metrics of what clients take from the gateway, and of what was refused to them."""

from prometheus_client import CollectorRegistry, Gauge

from gateway.metrics import counters


class PressureMetrics:
    """Labels are our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shed = counters(
            registry,
            "prefixgate_shed_requests",
            "Requests and connections beyond what the gateway takes on: queue_full, queue_deadline, body_bytes, "
            "connections.",
            ["reason"],
        )
        self.cut = counters(
            registry,
            "prefixgate_cut_clients",
            "Connections that were ended since the client was too slow, or the gateway stopped: head, body, unread, "
            "drain.",
            ["reason"],
        )
        self.connections = Gauge("prefixgate_client_connections", "Open connections of clients.", registry=registry)
        self.queued = Gauge("prefixgate_queued_requests", "Requests that wait to be let in.", registry=registry)
        self.admitted = Gauge("prefixgate_admitted_requests", "Requests that were let in.", registry=registry)
        self.body_bytes = Gauge("prefixgate_held_body_bytes", "Bytes of request bodies in memory.", registry=registry)
