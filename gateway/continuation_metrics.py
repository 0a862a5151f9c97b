"""Metrics of streams whose endpoint died."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters


class ContinuationMetrics:
    """Reasons and kinds are our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.died = counters(
            registry,
            "prefixgate_continuations",
            "Streams whose endpoint died after its first byte, by what became of them: continued, ended (only the end "
            "was missing), or why nobody went on.",
            ["outcome"],
        )
        self.tokens = counters(
            registry,
            "prefixgate_continuation_tokens",
            "Tokens of prompts and texts that were sent to another endpoint to go on with, by kind: relayed (of the "
            "text), again (of both, what it expected to compute once more; no tenant pays for it).",
            ["kind"],
        )
