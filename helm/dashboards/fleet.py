"""Endpoints: how they stand, what they do, how fast they are."""

from typing import Final

from helm.dashboards.grafana import Dashboard, Panel, Query, Row, Variable
from helm.dashboards.overview import TOKENS, TTFT
from helm.dashboards.promql import by, of, quantile, rate, ratio

ENDPOINT: Final = Variable(
    "endpoint", "Endpoint", 'label_values(prefixgate_endpoint_healthy{namespace=~"$namespace"}, endpoint)'
)
CHOSEN: Final = "~$endpoint"
LEFT_OUT: Final = "~down|open|half_open|stalled|ejected"
REPORTED: Final = by("endpoint", rate(TOKENS, endpoint=CHOSEN, kind="prompt_reported"))
CACHED: Final = by("endpoint", rate(TOKENS, endpoint=CHOSEN, kind="cached"))
ENGINES: Final = "prefixgate_engine_prefix_tokens_total"


def each(title: str, says: str, expr: str, unit: str, legend: str = "{{endpoint}}", stacked: bool = False) -> Panel:
    """A line for each endpoint."""
    return Panel(title, says, (Query(expr, legend),), unit, stacked=stacked)


def faults(title: str, says: str, metric: str, label: str) -> Panel:
    """A counter's rate by endpoint and another label."""
    return each(
        title, says, by(f"endpoint, {label}", rate(metric, endpoint=CHOSEN)), "ops", f"{{{{endpoint}}}} {{{{{label}}}}}"
    )


STANDING: Final = Row(
    "How they stand",
    (
        Panel(
            "Takes requests",
            "1 while an endpoint does.",
            (Query(f"min by (endpoint) ({of('prefixgate_endpoint_healthy', endpoint=CHOSEN)})", "{{endpoint}}"),),
            "none",
            kind="state-timeline",
            width=12,
            warn_at=1,
            bad_at=0.5,
        ),
        Panel(
            "State",
            "1 while it is so; up is left out.",
            (
                Query(
                    f"max by (endpoint, state) ({of('prefixgate_endpoint_state', endpoint=CHOSEN, state=LEFT_OUT)})",
                    "{{endpoint}} {{state}}",
                ),
            ),
            "none",
            kind="state-timeline",
            width=12,
            warn_at=1,
            bad_at=2,
        ),
        faults(
            "Faults", "Requests that an endpoint failed by its own fault.", "prefixgate_endpoint_faults_total", "kind"
        ),
        faults("Set aside", "Times that new requests were kept from it.", "prefixgate_endpoint_set_aside_total", "why"),
        each(
            "Breaker opened",
            "How often its breaker has opened, a second.",
            by("endpoint", rate("prefixgate_breaker_opened_total", endpoint=CHOSEN)),
            "ops",
        ),
    ),
)
WORK: Final = Row(
    "What they do",
    (
        each(
            "Decisions",
            "Attempts that went there.",
            by("endpoint", rate("prefixgate_decisions_total", endpoint=CHOSEN)),
            "reqps",
            stacked=True,
        ),
        each(
            "Computed tokens",
            "Prompt tokens that were not cached, of answers that say how many were.",
            f"{REPORTED} - {CACHED}",
            "short",
            stacked=True,
        ),
        each(
            "Cached tokens",
            "As the engine reports them.",
            by("endpoint", rate(TOKENS, endpoint=CHOSEN, kind="cached")),
            "short",
            stacked=True,
        ),
        each(
            "Output tokens",
            "Tokens of answers.",
            by("endpoint", rate(TOKENS, endpoint=CHOSEN, kind="output")),
            "short",
            stacked=True,
        ),
        each(
            "First token, p90",
            "From a request's arrival to the first bytes of its answer.",
            quantile(0.9, TTFT, "endpoint", endpoint=CHOSEN),
            "s",
        ),
        each(
            "Attempts that failed",
            "Before the first byte.",
            by("endpoint", rate("prefixgate_attempts_failed_total", endpoint=CHOSEN)),
            "reqps",
        ),
        each(
            "Hits by the engine's own counters",
            "Share of the prompt tokens, whoever sent them.",
            ratio(
                "endpoint", rate(ENGINES, endpoint=CHOSEN, kind="hits"), rate(ENGINES, endpoint=CHOSEN, kind="queries")
            ),
            "percentunit",
        ),
    ),
)
SPEED: Final = Row(
    "How fast they are, as fitted from answers",
    (
        Panel(
            "Prefill rate",
            "Uncached prompt tokens a second, attention apart; of ranks each.",
            (Query(f"avg by (endpoint) ({of('prefixgate_perf_prefill_tokens_per_second')})", "{{endpoint}}"),),
            "short",
        ),
        Panel(
            "Fixed time of a prefill",
            "Seconds that any prompt takes.",
            (Query(f"avg by (endpoint) ({of('prefixgate_perf_base_seconds')})", "{{endpoint}}"),),
            "s",
        ),
        Panel(
            "Between tokens",
            "Seconds from one token of an answer to the next, as served.",
            (Query(f"avg by (endpoint) ({of('prefixgate_perf_itl_seconds')})", "{{endpoint}}"),),
            "s",
        ),
    ),
)
EVENTS: Final = Row(
    "KV events and discovery",
    (
        Panel(
            "Feeds",
            "1 for the state in which an endpoint's feed is.",
            (
                Query(
                    f"max by (endpoint, rank, state) ({of('prefixgate_kv_feed_state', endpoint=CHOSEN)}) == 1",
                    "{{endpoint}}/{{rank}} {{state}}",
                ),
            ),
            "none",
            kind="state-timeline",
            warn_at=1,
            bad_at=2,
        ),
        Panel(
            "Age of KV events",
            "When they were applied.",
            (
                Query(
                    f"max by (endpoint, rank) ({of('prefixgate_kv_feed_lag_seconds', endpoint=CHOSEN)})",
                    "{{endpoint}}/{{rank}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Blocks followed",
            "The engine's blocks that are known by its events.",
            (
                Query(
                    f"max by (endpoint, rank) ({of('prefixgate_kv_feed_blocks', endpoint=CHOSEN)})",
                    "{{endpoint}}/{{rank}}",
                ),
            ),
            "short",
        ),
        Panel(
            "Endpoints by source",
            "Who names them, and how they are.",
            (Query(f"max by (source, state) ({of('prefixgate_discovered_endpoints')})", "{{source}} {{state}}"),),
            "none",
        ),
        Panel(
            "Requests for adapters",
            "By whether the adapter was loaded where they went.",
            (
                Query(
                    by("endpoint, residency", rate("prefixgate_adapter_requests_total", endpoint=CHOSEN)),
                    "{{endpoint}} {{residency}}",
                ),
            ),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Splits",
            "Prompts computed for another endpoint, by what came of it.",
            (
                Query(
                    by("endpoint, outcome", rate("prefixgate_prefill_legs_total", endpoint=CHOSEN)),
                    "{{endpoint}} {{outcome}}",
                ),
            ),
            "reqps",
            stacked=True,
        ),
    ),
)

FLEET: Final = Dashboard(
    "prefixgate-fleet",
    "prefixgate / Endpoints",
    "How each endpoint stands, what it does and how fast it is.",
    (STANDING, WORK, SPEED, EVENTS),
    (ENDPOINT,),
)
