"""Metrics of the dashboard."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges


class UiMetrics:
    """Outcomes are our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.viewers = gauges(registry, "prefixgate_ui_viewers", "Open dashboards that are kept up to date.", ())()
        self.viewers_ended = counters(
            registry,
            "prefixgate_ui_viewers_ended",
            "Streams of open dashboards by why they ended: left, refused, too_slow, session_over, draining.",
            ["why"],
        )
        self.logins = counters(
            registry, "prefixgate_ui_logins", "Logins by outcome: let_in, wrong_token, too_many.", ["outcome"]
        )
        self.collecting_s = counters(
            registry, "prefixgate_ui_collecting_seconds", "Time spent on what open dashboards show.", ()
        )()
