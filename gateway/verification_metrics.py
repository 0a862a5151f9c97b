"""Metrics of what engines report, held against what was expected and against their own counters."""

from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Gauge


class VerificationMetrics:
    """Children are looked up once and kept. Labels are endpoints and our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        verdicts = Counter(
            "prefixgate_verdicts",
            "Answers by what the index says of their cached tokens: verified, engine_higher, engine_lower, unreported.",
            ["endpoint", "verdict"],
            registry=registry,
        )
        misses = Counter(
            "prefixgate_misses",
            "Answers that could have had more of their prompt cached, by reason.",
            ["endpoint", "reason"],
            registry=registry,
        )
        suspected = Gauge(
            "prefixgate_split_prefill_suspected",
            "1 while an endpoint's reports look like those of a decode engine that was never asked what was cached.",
            ["endpoint"],
            registry=registry,
        )
        engine_tokens = Counter(
            "prefixgate_engine_prefix_tokens",
            "Prompt tokens as the engine's own counters have them: queries, hits; whoever sent them.",
            ["endpoint", "kind"],
            registry=registry,
        )
        self.credits = Counter(
            "prefixgate_own_miss_credits", "Credits written for misses that our own routing caused.", registry=registry
        )
        self.verdicts = lru_cache(maxsize=8192)(verdicts.labels)
        self.misses = lru_cache(maxsize=8192)(misses.labels)
        self.split_prefill_suspected = lru_cache(maxsize=8192)(suspected.labels)
        self.engine_tokens = lru_cache(maxsize=8192)(engine_tokens.labels)
