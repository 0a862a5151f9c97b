"""What a gauge of several workers says as one. A test sees to it that every gauge has its rule.

Counters and histograms need none, but for one: they are sums, over the workers that were there before as well.
"""

from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    """How the values of one series become one value."""

    SUM = "sum"
    TOTAL = "total"
    """The sum, and with it what workers had that are gone: what is counted since the start."""
    MAX = "max"
    MIN = "min"
    MEAN = "mean"


RULES: Final = {
    # A counter, of what engines have counted themselves: each worker that looks begins with all of it.
    "prefixgate_engine_prefix_tokens": Rule.MAX,
    "prefixgate_build_info": Rule.MAX,
    "prefixgate_in_flight_requests": Rule.SUM,
    "prefixgate_client_connections": Rule.SUM,
    "prefixgate_queued_requests": Rule.SUM,
    "prefixgate_admitted_requests": Rule.SUM,
    "prefixgate_queue_requests": Rule.SUM,
    "prefixgate_queue_bytes": Rule.SUM,
    "prefixgate_queue_oldest_seconds": Rule.MAX,
    # Each worker has an opinion of its own of what all of them have in flight.
    "prefixgate_endpoint_full": Rule.MAX,
    "prefixgate_model_arm_stopped": Rule.MAX,
    "prefixgate_model_canary_failed_ratio": Rule.MAX,
    "prefixgate_model_canary_ttft_seconds": Rule.MAX,
    "prefixgate_endpoint_bound_requests": Rule.MAX,
    "prefixgate_held_body_bytes": Rule.SUM,
    "prefixgate_ui_viewers": Rule.SUM,
    "prefixgate_epp_open_streams": Rule.SUM,
    "prefixgate_endpoint_healthy": Rule.MIN,
    # Each worker judges by its own requests: an endpoint is in each state in which one of them has it.
    "prefixgate_endpoint_state": Rule.MAX,
    "prefixgate_degraded": Rule.MAX,
    "prefixgate_token_parity_ratio": Rule.MIN,
    "prefixgate_split_prefill_suspected": Rule.MAX,
    # Each worker learns of its own requests.
    "prefixgate_prefill_set_aside": Rule.MAX,
    "prefixgate_decode_set_aside": Rule.MAX,
    "prefixgate_adapter_load_seconds": Rule.MEAN,
    "prefixgate_index_queued_writes": Rule.SUM,
    "prefixgate_limit_owed_settlements": Rule.SUM,
    "prefixgate_perf_base_seconds": Rule.MEAN,
    "prefixgate_perf_prefill_tokens_per_second": Rule.MEAN,
    "prefixgate_perf_quadratic_seconds": Rule.MEAN,
    "prefixgate_perf_itl_seconds": Rule.MEAN,
    # A feed is read by one of the workers; the others say `not_consumer`, and nothing of its blocks.
    "prefixgate_kv_feed_state": Rule.MAX,
    "prefixgate_kv_feed_blocks": Rule.MAX,
    "prefixgate_kv_feed_lag_seconds": Rule.MAX,
    # Every worker looks for itself, at the same fleet.
    "prefixgate_discovered_endpoints": Rule.MAX,
    "prefixgate_discovery_last_success_age_seconds": Rule.MAX,
    # Of the supervisor alone.
    "prefixgate_workers": Rule.MAX,
    # There is one ledger, and every worker says the same of it.
    "prefixgate_ledger_spool_records": Rule.MAX,
    "prefixgate_ledger_spool_bytes": Rule.MAX,
    "prefixgate_ledger_spool_refused": Rule.MAX,
    "prefixgate_ledger_settled_twice": Rule.MAX,
    "prefixgate_ledger_interrupted": Rule.MAX,
}


def rule_of(family: str, kind: str) -> Rule:
    """The rule of a family of OpenMetrics, in which counters are named without `_total`."""
    return RULES.get(family, Rule.SUM if kind == "gauge" else Rule.TOTAL)
