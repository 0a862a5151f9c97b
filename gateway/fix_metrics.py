"""Metrics of requests that are changed on their way."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters


class FixMetrics:
    """Labels are our own enumerations, never tenants: `/admin/fixes` and the ledger have those."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = counters(
            registry,
            "prefixgate_fixes",
            "Requests by fix: changed by it (on), or left as they came to compare with (off).",
            ["fix", "arm"],
        )
        self.tokens = counters(
            registry,
            "prefixgate_fix_tokens",
            "Tokens of settled requests that had something to fix, by the fixes and the side of the comparison.",
            ["fixes", "arm", "kind"],
        )
        self.answers = counters(
            registry,
            "prefixgate_fix_answers",
            "Answers to requests that had something to fix, by why they ended.",
            ["arm", "finish"],
        )
        self.shadow = counters(
            registry,
            "prefixgate_fix_shadow",
            "Requests that only a shadow was fixed of: measured, unfixed (nothing to do), dropped (too many waited).",
            ["outcome"],
        )
        self.shadow_tokens = counters(
            registry,
            "prefixgate_fix_shadow_tokens",
            "Prompt tokens of those measured: all, cached as they came, cached as they would be fixed.",
            ["fixes", "kind"],
        )
