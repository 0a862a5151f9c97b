"""What one looks at first."""

from typing import Final

from helm.dashboards.grafana import Dashboard, Panel, Query, Row, quantiles, stat
from helm.dashboards.promql import by, of, quantile, rate, total

TTFT: Final = "prefixgate_time_to_first_token_seconds"
DURATION: Final = "prefixgate_request_duration_seconds"
TOKENS: Final = "prefixgate_tokens_total"
CACHED: Final = total(TOKENS, kind="cached")
HIT_SHARE: Final = f"{CACHED} / {total(TOKENS, kind='prompt_reported')}"
ALL: Final = total("prefixgate_requests_total")
FAILED_SHARE: Final = f"({total('prefixgate_requests_total', state='failed')} or 0 * {ALL}) / {ALL}"
SAVED: Final = 'sum(namespace:prefixgate_prefill_saved_seconds:rate5m{namespace=~"$namespace"})'

NOW: Final = Row(
    "Now",
    (
        stat("Requests", "Client requests that ended, a second.", total("prefixgate_requests_total"), "reqps"),
        stat("Failed", "Share of the requests that failed.", FAILED_SHARE, "percentunit", 0.01, 0.05),
        stat(
            "Cached",
            "Share of the prompt tokens that engines had cached, of answers that say it.",
            HIT_SHARE,
            "percentunit",
        ),
        stat("First token, p90", "Nine of ten requests have their first bytes by then.", quantile(0.9, TTFT), "s"),
        stat(
            "Prefill saved",
            "Seconds of prefill that caches spare each second: so many engines more would be busy.",
            SAVED,
            "none",
        ),
        stat(
            "Alerts",
            "Alerts of the chart that fire.",
            'count(ALERTS{alertname=~"Prefixgate.*",alertstate="firing"}) or vector(0)',
            "none",
            1,
            2,
        ),
        stat(
            "Endpoints",
            "Endpoints that take requests.",
            f"sum(min by (endpoint) ({of('prefixgate_endpoint_healthy')}))",
            "none",
            1.0,
            0.5,
        ),
        stat("In flight", "Requests being served.", f"sum({of('prefixgate_in_flight_requests')})", "none"),
        stat(
            "Reduced parts",
            "Parts that work in a reduced way; /health says why.",
            f"sum(max by (part) ({of('prefixgate_degraded')}))",
            "none",
            1,
            2,
        ),
        stat(
            "Refused when full",
            "Requests a second that were answered 503, since there was no place.",
            f"{total('prefixgate_shed_requests_total')} or vector(0)",
            "reqps",
            0.001,
            1,
        ),
        stat(
            "Wait for the ledger",
            "Records on a pod's disk that the ledger has not got.",
            f"max({of('prefixgate_ledger_spool_records')})",
            "none",
            1,
            1000,
        ),
        stat(
            "Gateway, p90",
            "What the gateway takes before it sends a request.",
            quantile(0.9, "prefixgate_decision_seconds"),
            "s",
            0.01,
            0.025,
        ),
    ),
)
REQUESTS: Final = Row(
    "Requests",
    (
        Panel(
            "Requests by how they ended",
            "Complete, partial (the client left, or the answer broke off), failed, rejected.",
            (Query(by("state", rate("prefixgate_requests_total")), "{{state}}"),),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Time to the first token",
            "From a request's arrival to the first bytes of its answer.",
            quantiles(TTFT),
            "s",
            exemplars=True,
        ),
        Panel(
            "Whole requests",
            "From a request's arrival to the end of its answer.",
            quantiles(DURATION),
            "s",
            exemplars=True,
        ),
        Panel(
            "By route",
            "Client requests by the route that they came to.",
            (Query(by("route", rate("prefixgate_requests_total")), "{{route}}"),),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Attempts that failed",
            "Before the first byte; the request goes to another endpoint.",
            (Query(by("endpoint", rate("prefixgate_attempts_failed_total")), "{{endpoint}}"),),
            "reqps",
        ),
        Panel(
            "Failed requests",
            "Share of all; the line is where the alert begins.",
            (Query(FAILED_SHARE, "failed"),),
            "percentunit",
            warn_at=0.01,
            bad_at=0.05,
        ),
    ),
)
TOKENS_ROW: Final = Row(
    "Tokens",
    (
        Panel(
            "Tokens",
            "Prompt tokens that were computed, those that were cached, and tokens of answers.",
            (
                Query(f"{total(TOKENS, kind='prompt')} - {CACHED}", "computed"),
                Query(CACHED, "cached"),
                Query(total(TOKENS, kind="output"), "output"),
            ),
            "short",
            stacked=True,
        ),
        Panel(
            "Share cached",
            "Of the prompt tokens of answers that say how many were cached.",
            (
                Query(HIT_SHARE, "reported"),
                Query(f"{total(TOKENS, kind='cached_expected')} / {total(TOKENS, kind='prompt')}", "expected, of all"),
            ),
            "percentunit",
            most=1,
        ),
        Panel(
            "Parts that work in a reduced way",
            "1 while a part does; /health says why.",
            (Query(f"max by (part) ({of('prefixgate_degraded')})", "{{part}}"),),
            "none",
            kind="state-timeline",
            warn_at=1,
            bad_at=2,
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    "prefixgate-overview",
    "prefixgate / Overview",
    "Whether requests are served, how fast, and what caches spare.",
    (NOW, REQUESTS, TOKENS_ROW),
)
