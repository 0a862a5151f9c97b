"""Where requests go, why, and whether the prefix was there."""

from typing import Final

from helm.dashboards.grafana import Dashboard, Panel, Query, Row, counted, quantiles
from helm.dashboards.overview import TOKENS
from helm.dashboards.promql import of, quantile, rate, ratio, total

EXPECTED: Final = "prefixgate_expected_vs_reported_total"
REGRET: Final = "prefixgate_decision_regret_seconds"


CACHE: Final = Row(
    "Cache",
    (
        Panel(
            "Share cached, by endpoint",
            "Of the prompt tokens of answers that say how many were cached.",
            (
                Query(
                    ratio("endpoint", rate(TOKENS, kind="cached"), rate(TOKENS, kind="prompt_reported")),
                    "{{endpoint}}",
                ),
            ),
            "percentunit",
            most=1,
        ),
        Panel(
            "Expected against reported",
            "Cached tokens, of answers that had both: what the index expected, what engines said.",
            (Query(total(EXPECTED, kind="expected"), "expected"), Query(total(EXPECTED, kind="reported"), "reported")),
            "short",
        ),
        Panel(
            "Error of what was expected",
            "Tokens too many and too few, as a share of the prompt tokens.",
            (
                Query(
                    ratio("endpoint", rate(EXPECTED, kind="~too_many|too_few"), rate(EXPECTED, kind="prompt")),
                    "{{endpoint}}",
                ),
            ),
            "percentunit",
        ),
        counted(
            "Verdicts",
            "What the index says of the cached tokens that engines report.",
            "prefixgate_verdicts_total",
            "verdict",
        ),
        counted(
            "Misses by reason",
            "Answers that could have had more of their prompt cached.",
            "prefixgate_misses_total",
            "reason",
        ),
        counted(
            "Lost tokens by reason",
            "Prompt tokens that would have been cached but for the reason.",
            "prefixgate_lost_tokens_total",
            "reason",
            "short",
        ),
        counted(
            "Changed prompts",
            "Prompts that miss since they part from an earlier one: in which part.",
            "prefixgate_prompt_changes_total",
            "part",
        ),
        counted(
            "Receipts",
            "What answers did to the index: agreed with it, or contradicted it.",
            "prefixgate_receipts_total",
            "outcome",
        ),
        counted(
            "Answers not reported",
            "Answers whose engine does not say how many tokens were cached: unknown, not 0.",
            "prefixgate_cached_unreported_total",
            "endpoint",
        ),
    ),
)
ROUTING: Final = Row(
    "Routing",
    (
        counted(
            "Requests by reason",
            "Why each request had a prefix to go by, or had none.",
            "prefixgate_reasons_total",
            "reason",
        ),
        counted(
            "Decisions by reason",
            "Why an endpoint was chosen, for each attempt.",
            "prefixgate_decisions_total",
            "reason",
        ),
        counted("Decisions by endpoint", "Where attempts went.", "prefixgate_decisions_total", "endpoint"),
        Panel(
            "Regret",
            "What the chosen endpoint cost in hindsight, less the least of all.",
            quantiles(REGRET),
            "s",
            exemplars=True,
        ),
        Panel(
            "Decisions without regret",
            "Share of the decisions that nothing spoke against afterwards.",
            (Query(f"{total(f'{REGRET}_bucket', le='0.0')} / {total(f'{REGRET}_count')}", "without"),),
            "percentunit",
            most=1,
        ),
        Panel(
            "Error of the predicted first token, p90",
            "Predicted wait and prefill against what they were.",
            (Query(quantile(0.9, "prefixgate_ttft_prediction_error_seconds", "kind"), "{{kind}}"),),
            "s",
        ),
        Panel(
            "Copies of hot prefixes",
            "Seconds that copies cost and save, a second, as thought when decided.",
            (
                Query(total("prefixgate_prefix_copy_cost_seconds_total"), "cost"),
                Query(total("prefixgate_prefix_copy_saved_seconds_total"), "saved"),
            ),
            "s",
        ),
        counted(
            "Next turns",
            "What the index learned from complete answers for the turn after them.",
            "prefixgate_next_turns_total",
            "outcome",
        ),
    ),
)
TOKENS_ROW: Final = Row(
    "Tokens of prompts",
    (
        counted(
            "Prompts by where their tokens came from",
            "Local, engine, bytes (nothing exact), none.",
            "prefixgate_prompts_total",
            "source",
        ),
        Panel(
            "Token parity",
            "Share of the latest prompts that gateway and engine counted the same; below 1 prefixes are not found.",
            (Query(f"min by (model, shape) ({of('prefixgate_token_parity_ratio')})", "{{model}} {{shape}}"),),
            "percentunit",
            most=1,
        ),
        counted(
            "Counts that differ",
            "Answers whose prompt token count differs from the gateway's own.",
            "prefixgate_token_count_mismatch_total",
            "endpoint",
        ),
    ),
)
INDEX: Final = Row(
    "Index",
    (
        Panel(
            "Writes on their way",
            "Index writes that wait for Redis.",
            (Query(f"sum({of('prefixgate_index_queued_writes')})", "queued"),),
            "short",
        ),
        Panel(
            "Writes dropped, matches alone",
            "Redis was away or late.",
            (
                Query(total("prefixgate_index_dropped_writes_total"), "dropped writes"),
                Query(total("prefixgate_index_stand_in_matches_total"), "matches by this replica alone"),
            ),
            "ops",
        ),
        counted(
            "Restarts inferred",
            "Times that a cache was taken for emptied by its receipts alone.",
            "prefixgate_inferred_restarts_total",
            "endpoint",
            "ops",
        ),
    ),
)

CACHE_AND_ROUTING: Final = Dashboard(
    "prefixgate-cache",
    "prefixgate / Cache and routing",
    "Whether prefixes are found where requests go, and what decisions are worth.",
    (CACHE, ROUTING, TOKENS_ROW, INDEX),
)
