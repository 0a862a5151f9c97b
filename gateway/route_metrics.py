"""Metrics of names that clients use for models: where they led, who stood in, which arm is stopped."""

from prometheus_client import CollectorRegistry, Gauge

from gateway.metrics import counters


class RouteMetrics:
    """Labels are names of the configuration and our own enumerations, never what a client wrote."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = counters(
            registry,
            "prefixgate_model_route_requests",
            "Requests under a configured name of a model, by the arm or fallback that they were sent to first or next.",
            ["route", "rule"],
        )
        self.fallbacks = counters(
            registry,
            "prefixgate_model_fallbacks",
            "Requests that another model was asked for in place of the one before, by why that did not answer.",
            ["route", "why"],
        )
        self.stopped = Gauge(
            "prefixgate_model_arm_stopped",
            "1 while an arm of a name gets no requests because it did worse, or an operator said so.",
            ["route", "arm"],
            registry=registry,
        )
        self.failed_share = Gauge(
            "prefixgate_model_canary_failed_ratio",
            "Share of the latest requests that failed, of the watched arm and of the others of its name.",
            ["route", "side"],
            registry=registry,
        )
        self.ttft_s = Gauge(
            "prefixgate_model_canary_ttft_seconds",
            "Median time to the first token of the latest requests, of the watched arm and of the others of its name.",
            ["route", "side"],
            registry=registry,
        )
