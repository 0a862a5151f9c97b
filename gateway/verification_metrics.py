"""Metrics of what engines report, held against what was expected and against their own counters."""

from prometheus_client import CollectorRegistry

from gateway.metrics import counters, gauges


class VerificationMetrics:
    """Labels are endpoints and our own enumerations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.verdicts = counters(
            registry,
            "prefixgate_verdicts",
            "Answers by what the index says of their cached tokens: verified, engine_higher, engine_lower, unreported.",
            ["endpoint", "verdict"],
        )
        self.misses = counters(
            registry,
            "prefixgate_misses",
            "Answers that could have had more of their prompt cached, by reason.",
            ["endpoint", "reason"],
        )
        self.lost_tokens = counters(
            registry,
            "prefixgate_lost_tokens",
            "Prompt tokens that would have been cached but for the reason of the miss.",
            ["endpoint", "reason"],
        )
        self.changes = counters(
            registry,
            "prefixgate_prompt_changes",
            "Prompts that part from the closest earlier one of their key and model, by the part in which they do.",
            ["part"],
        )
        self.split_prefill_suspected = gauges(
            registry,
            "prefixgate_split_prefill_suspected",
            "1 while an endpoint's reports look like those of a decode engine that was never asked what was cached.",
            ["endpoint"],
        )
        self.engine_tokens = counters(
            registry,
            "prefixgate_engine_prefix_tokens",
            "Prompt tokens as the engine's own counters have them: queries, hits; whoever sent them.",
            ["endpoint", "kind"],
        )
        self.credits = counters(
            registry, "prefixgate_own_miss_credits", "Credits written for misses that our own routing caused.", ()
        )()
