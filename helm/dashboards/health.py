"""The gateway itself: what it takes, who waits, what it could not do."""

from typing import Final

from helm.dashboards.grafana import Dashboard, Panel, Query, Row, counted, quantiles
from helm.dashboards.promql import by, of, quantile, rate, total

STEP: Final = "prefixgate_step_seconds"
TIME: Final = Row(
    "Time",
    (
        Panel(
            "Before a request is sent",
            "Parsing, tokens, index and decision.",
            quantiles("prefixgate_decision_seconds"),
            "s",
            exemplars=True,
            bad_at=0.025,
        ),
        Panel(
            "Where the time goes",
            "Mean seconds of each step of a request.",
            (Query(f"{by('step', rate(f'{STEP}_sum'))} / {by('step', rate(f'{STEP}_count'))}", "{{step}}"),),
            "s",
            width=16,
        ),
        Panel(
            "Limits, p90",
            "What requests under limits wait to be let in or refused.",
            (Query(quantile(0.9, "prefixgate_limit_seconds"), "p90"),),
            "s",
        ),
        Panel(
            "Steps of the gateway, p90",
            "Those that no engine and no client has a part in.",
            (Query(quantile(0.9, STEP, "step", step="~edge|render|tokens|chain|match|decide|settle"), "{{step}}"),),
            "s",
            width=16,
        ),
    ),
)
LOAD: Final = Row(
    "Load",
    (
        Panel(
            "Requests",
            "In flight; let in, those whose bodies are coming too; waiting to be let in.",
            (
                Query(f"sum({of('prefixgate_in_flight_requests')})", "in flight"),
                Query(f"sum({of('prefixgate_admitted_requests')})", "let in"),
                Query(f"sum({of('prefixgate_queued_requests')})", "waiting"),
            ),
            "short",
        ),
        Panel(
            "Connections",
            "Open ones of clients.",
            (Query(f"sum({of('prefixgate_client_connections')})", "open"),),
            "short",
        ),
        Panel(
            "Bodies in memory",
            "Bytes of request bodies.",
            (Query(f"sum({of('prefixgate_held_body_bytes')})", "held"),),
            "bytes",
        ),
        counted(
            "Refused when full",
            "Answered 503, by what there was too much of.",
            "prefixgate_shed_requests_total",
            "reason",
        ),
        counted(
            "Cut clients",
            "Too slow with head or body, answers unread, or the gateway stopped.",
            "prefixgate_cut_clients_total",
            "reason",
            "ops",
        ),
        counted(
            "Streams continued",
            "Streams whose endpoint died after its first byte.",
            "prefixgate_continuations_total",
            "outcome",
        ),
    ),
)
QUEUE: Final = Row(
    "Queue, while all endpoints are full",
    (
        Panel(
            "Waiting",
            "Requests by class.",
            (Query(by("class", of("prefixgate_queue_requests")), "{{class}}"),),
            "short",
            stacked=True,
        ),
        Panel(
            "Wait, p90",
            "Of those whose turn came.",
            (Query(quantile(0.9, "prefixgate_queue_seconds", "class"), "{{class}}"),),
            "s",
        ),
        Panel(
            "Lost",
            "Requests that might not wait, or not any longer.",
            (Query(by("class, reason", rate("prefixgate_queue_shed_total")), "{{class}} {{reason}}"),),
            "reqps",
            stacked=True,
        ),
    ),
)
PROCESS: Final = Row(
    "Processes",
    (
        Panel(
            "Versions",
            "Replicas by the version that they run.",
            (Query(f"count by (version) ({of('prefixgate_build_info')})", "{{version}}"),),
            "none",
            stacked=True,
        ),
        Panel(
            "Workers",
            "With --workers: alive, wanted.",
            (
                Query(f"sum by (state) ({of('prefixgate_workers')})", "{{state}}"),
                Query(f"sum({of('prefixgate_worker_deaths_total')})", "died since the start"),
            ),
            "none",
        ),
        Panel(
            "Log lines lost",
            "Nobody took them from standard error.",
            (Query(total("prefixgate_log_lines_dropped_total"), "lost"),),
            "ops",
        ),
        counted(
            "Spans",
            "By what became of them, where requests are traced.",
            "prefixgate_trace_spans_total",
            "outcome",
            "ops",
        ),
        counted(
            "Keys files", "Changed ones, by whether they were taken.", "prefixgate_keys_reloads_total", "outcome", "ops"
        ),
    ),
)

HEALTH: Final = Dashboard(
    "prefixgate-gateway",
    "prefixgate / Gateway",
    "What the gateway itself takes, who waits, and what it could not do.",
    (TIME, LOAD, QUEUE, PROCESS),
)
