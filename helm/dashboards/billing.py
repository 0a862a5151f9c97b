"""What is billed, what caches spare, and whether the ledger can be believed. The ledger has the amounts themselves."""

from typing import Final

from helm.dashboards.grafana import Dashboard, Panel, Query, Row, Variable, counted, stat
from helm.dashboards.overview import HIT_SHARE, TOKENS
from helm.dashboards.promql import of, total

PRICES: Final = (
    Variable("input_price", "Input, per million tokens", default="0.60"),
    Variable("cached_price", "Cached input, per million", default="0.06"),
    Variable("output_price", "Output, per million", default="2.40"),
)


def over(kind: str) -> str:
    """Tokens of the time shown."""
    return f"sum(increase({of(TOKENS, kind=kind)}[$__range]))"


def money(expr: str) -> str:
    """Of prices per million."""
    return f"({expr}) / 1e6"


COMPUTED: Final = f"({total(TOKENS, kind='prompt')} - {total(TOKENS, kind='cached')})"
LINES: Final = (
    f"({over('prompt')} - {over('cached')}) * $input_price",
    f"{over('cached')} * $cached_price",
    f"{over('output')} * $output_price",
)
SPARED: Final = f"{over('cached')} * ($input_price - $cached_price)"
SUMS: Final = Row(
    "The time shown",
    (
        stat("Prompt tokens", "As engines count them.", over("prompt"), "short"),
        stat(
            "Cached",
            "Share of the prompt tokens of answers that say it.",
            f"{over('cached')} / {over('prompt_reported')}",
            "percentunit",
        ),
        stat(
            "Output tokens",
            "As engines count them; estimates of cut answers are not among them.",
            over("output"),
            "short",
        ),
        stat(
            "At these prices",
            "Tokens times the prices above, which are yours to type: in the ledger are the amounts.",
            money(" + ".join(LINES)),
            "none",
        ),
        stat(
            "Spared",
            "What cached tokens would have cost more without the cache, at these prices.",
            money(SPARED),
            "none",
        ),
        stat(
            "Wait for the ledger",
            "Records on a pod's disk.",
            f"max({of('prefixgate_ledger_spool_records')})",
            "none",
            1,
            1000,
        ),
    ),
)
TOKENS_ROW: Final = Row(
    "Tokens",
    (
        Panel(
            "Billed tokens",
            "Computed, cached, output: three lines of an invoice.",
            (
                Query(COMPUTED, "computed"),
                Query(total(TOKENS, kind="cached"), "cached"),
                Query(total(TOKENS, kind="output"), "output"),
            ),
            "short",
            stacked=True,
        ),
        Panel(
            "Share cached",
            "Of the prompt tokens of answers that say it.",
            (Query(HIT_SHARE, "cached"),),
            "percentunit",
            most=1,
        ),
        Panel(
            "Spared, by the hour",
            "At the prices above.",
            (Query(money(f"{total(TOKENS, kind='cached')} * 3600 * ($input_price - $cached_price)"), "spared"),),
            "none",
        ),
    ),
)
TRUST: Final = Row(
    "What it rests on",
    (
        counted(
            "Verdicts on reported cached tokens",
            "The engine's word against the index.",
            "prefixgate_verdicts_total",
            "verdict",
        ),
        counted(
            "Not reported",
            "Answers whose engine does not say how many tokens were cached.",
            "prefixgate_cached_unreported_total",
            "endpoint",
        ),
        counted(
            "How requests ended",
            "Partial ones are estimated where their engine did not count.",
            "prefixgate_requests_total",
            "state",
        ),
        Panel(
            "Reports like those of a decode engine",
            "1 while they are: do not bill by them.",
            (Query(f"max by (endpoint) ({of('prefixgate_split_prefill_suspected')})", "{{endpoint}}"),),
            "none",
            kind="state-timeline",
            warn_at=0.5,
            bad_at=1,
        ),
        Panel(
            "Credits for our own misses",
            "Written a second, where configured.",
            (Query(total("prefixgate_own_miss_credits_total"), "credits"),),
            "ops",
        ),
    ),
)
LEDGER: Final = Row(
    "Ledger",
    (
        Panel(
            "Records that wait",
            "On a pod's disk; refused ones are kept beside.",
            (
                Query(f"max({of('prefixgate_ledger_spool_records')})", "waiting"),
                Query(f"max({of('prefixgate_ledger_spool_refused')})", "refused"),
            ),
            "short",
            bad_at=1,
        ),
        Panel(
            "Their bytes",
            "Of the local disk.",
            (Query(f"max({of('prefixgate_ledger_spool_bytes')})", "bytes"),),
            "bytes",
        ),
        Panel(
            "Settled twice, interrupted",
            "Requests that had a settlement already; requests that another gateway left open.",
            (
                Query(f"sum({of('prefixgate_ledger_settled_twice_total')})", "settled twice"),
                Query(f"sum({of('prefixgate_ledger_interrupted_total')})", "interrupted"),
            ),
            "short",
        ),
    ),
)
LIMITS: Final = Row(
    "Limits and budgets",
    (
        counted("Refused", "Requests refused by a limit, by its kind.", "prefixgate_limit_refusals_total", "kind"),
        Panel(
            "Let in without a price, decided alone",
            "Under a budget; without Redis.",
            (
                Query(total("prefixgate_limit_unpriced_total"), "no price"),
                Query(total("prefixgate_limit_stand_in_answers_total"), "alone"),
            ),
            "reqps",
        ),
        Panel(
            "Settlements that Redis lacks",
            "Owed for now; dropped for good, so that counters lag behind the ledger.",
            (
                Query(f"sum({of('prefixgate_limit_owed_settlements')})", "owed"),
                Query(f"sum({of('prefixgate_limit_dropped_settlements_total')})", "dropped"),
            ),
            "short",
        ),
    ),
)

BILLING: Final = Dashboard(
    "prefixgate-billing",
    "prefixgate / Billing",
    "What was computed and what was cached, and whether that can be believed. Tenants are in the ledger's reports.",
    (SUMS, TOKENS_ROW, TRUST, LEDGER, LIMITS),
    PRICES,
)
