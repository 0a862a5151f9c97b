"""What makes each alert fire, and what does not: series as promtool writes them, a value each minute.

`0+6x30` rises by 6 a minute for half an hour, `1x30` stays at 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """An alert that fires at a minute, with these labels and words; and what is like it and leaves it silent."""

    alert: str
    fires: Series
    silent: Series
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    at: str = "40m"


CASES = (
    Case(
        "PrefixgateAbsent",
        {"up": "1x60"},
        {"prefixgate_in_flight_requests": "0x60"},
        "No gateway tells its metrics.",
        {"namespace": "llm"},
    ),
    Case(
        "PrefixgateNoEndpoint",
        {'prefixgate_endpoint_healthy{endpoint="a"}': "0x60", 'prefixgate_endpoint_healthy{endpoint="b"}': "0x60"},
        {'prefixgate_endpoint_healthy{endpoint="a"}': "0x60", 'prefixgate_endpoint_healthy{endpoint="b"}': "1x60"},
        "No endpoint takes requests.",
    ),
    Case(
        "PrefixgateRequestsFail",
        {
            'prefixgate_requests_total{state="failed"}': "0+6x60",
            'prefixgate_requests_total{state="complete"}': "0+94x60",
        },
        {
            'prefixgate_requests_total{state="failed"}': "0+4x60",
            'prefixgate_requests_total{state="rejected"}': "0+96x60",
        },
        "6% of the requests fail.",
    ),
    Case(
        "PrefixgateDegraded",
        {'prefixgate_degraded{part="index"}': "1x60", 'prefixgate_degraded{part="ledger"}': "0x60"},
        {'prefixgate_degraded{part="index"}': "1x30 0x30"},
        "index works in a reduced way; /health says why.",
        {"part": "index"},
    ),
    Case(
        "PrefixgateEndpointLeftOut",
        {'prefixgate_endpoint_state{endpoint="a",state="stalled"}': "1x60"},
        {'prefixgate_endpoint_state{endpoint="a",state="half_open"}': "1x60"},
        "Endpoint a is stalled; /health says why.",
        {"endpoint": "a", "state": "stalled"},
    ),
    Case(
        "PrefixgateShedsRequests",
        {'prefixgate_shed_requests_total{reason="queue_full"}': "0+1x60"},
        {'prefixgate_shed_requests_total{reason="queue_full"}': "7x60"},
        "Requests are answered 503: queue_full.",
        {"reason": "queue_full"},
    ),
    Case(
        "PrefixgateQueueSheds",
        {'prefixgate_queue_shed_total{class="batch",reason="expired"}': "0+1x60"},
        {'prefixgate_queue_shed_total{class="batch",reason="stopping"}': "0+1x60"},
        "All endpoints are full; class batch loses requests: expired.",
        {"class": "batch", "reason": "expired"},
    ),
    Case(
        "PrefixgateTokenCountsDiffer",
        {'prefixgate_token_count_mismatch_total{endpoint="a"}': "0x30 1x30"},
        {'prefixgate_token_count_mismatch_total{endpoint="a"}': "0x10 1x50"},
        "a counts other tokens than the gateway: its prefixes are not found.",
        {"endpoint": "a"},
    ),
    Case(
        "PrefixgateTokenParity",
        {'prefixgate_token_parity_ratio{model="m",shape="chat+tools"}': "0.5x60"},
        {'prefixgate_token_parity_ratio{model="m",shape="chat+tools"}': "1x60"},
        "Tokens of m differ in chat+tools; prefixgate check says where.",
        {"model": "m", "shape": "chat+tools"},
    ),
    Case(
        "PrefixgateCachedTokensMissing",
        {
            'prefixgate_expected_vs_reported_total{kind="expected"}': "0+100x90",
            'prefixgate_expected_vs_reported_total{kind="reported"}': "0+49x90",
        },
        {
            'prefixgate_expected_vs_reported_total{kind="expected"}': "0+100x90",
            'prefixgate_expected_vs_reported_total{kind="reported"}': "0+51x90",
        },
        "Engines report less than half of the cached tokens that the index expects.",
        at="70m",
    ),
    Case(
        "PrefixgateCachedTokensUnreported",
        {'prefixgate_cached_unreported_total{endpoint="a"}': "0+1x60"},
        {'prefixgate_cached_unreported_total{endpoint="a"}': "5x60"},
        "a does not say how many prompt tokens were cached.",
        {"endpoint": "a"},
    ),
    Case(
        "PrefixgateHitShareFell",
        {
            'prefixgate_tokens_total{kind="prompt_reported"}': "0+100x2000",
            'prefixgate_tokens_total{kind="cached"}': "0+80x1440 115200+20x560",
        },
        {
            'prefixgate_tokens_total{kind="prompt_reported"}': "0+100x2000",
            'prefixgate_tokens_total{kind="cached"}': "0+80x1440 115200+45x560",
        },
        "20% of the prompt tokens are cached: less than half of the share a day ago.",
        at="1600m",
    ),
    Case(
        "PrefixgateDecisionsSlow",
        {
            'prefixgate_decision_seconds_bucket{le="0.025"}': "0+80x60",
            'prefixgate_decision_seconds_bucket{le="0.1"}': "0+100x60",
            'prefixgate_decision_seconds_bucket{le="+Inf"}': "0+100x60",
        },
        {
            'prefixgate_decision_seconds_bucket{le="0.01"}': "0+95x60",
            'prefixgate_decision_seconds_bucket{le="0.1"}': "0+100x60",
            'prefixgate_decision_seconds_bucket{le="+Inf"}': "0+100x60",
        },
        "A tenth of the requests wait longer than 62.5ms in the gateway before they are sent.",
    ),
    Case(
        "PrefixgateDecisionsRegretted",
        {
            'prefixgate_decision_regret_seconds_bucket{le="1.0"}': "0+80x90",
            'prefixgate_decision_regret_seconds_bucket{le="5.0"}': "0+100x90",
            'prefixgate_decision_regret_seconds_bucket{le="+Inf"}': "0+100x90",
        },
        {
            'prefixgate_decision_regret_seconds_bucket{le="0.0"}': "0+95x90",
            'prefixgate_decision_regret_seconds_bucket{le="+Inf"}': "0+100x90",
        },
        "A tenth of the decisions cost 3s more than the best; prefixgate explain says why.",
        at="70m",
    ),
    Case(
        "PrefixgateSplitPrefillSuspected",
        {'prefixgate_split_prefill_suspected{endpoint="a"}': "1x60"},
        {'prefixgate_split_prefill_suspected{endpoint="a"}': "0x35 1x25"},
        "a seems to report the cached tokens of a decode engine: do not bill by them.",
        {"endpoint": "a"},
    ),
    Case(
        "PrefixgateLedgerAway",
        {"prefixgate_ledger_spool_records": "12x60"},
        {"prefixgate_ledger_spool_records": "12x20 0x40"},
        "12 records wait on a pod's disk for the ledger.",
    ),
    Case(
        "PrefixgateLedgerRefused",
        {"prefixgate_ledger_spool_refused": "1x60"},
        {"prefixgate_ledger_spool_refused": "0x60"},
        "The ledger refused records; they are kept beside the spool.",
    ),
    Case(
        "PrefixgateIndexWritesDropped",
        {"prefixgate_index_dropped_writes_total": "0x35 9x25"},
        {"prefixgate_index_dropped_writes_total": "9x60"},
        "Redis was away too long or refuses writes; the index is not whole.",
    ),
    Case(
        "PrefixgateBudgetsLagBehind",
        {"prefixgate_limit_dropped_settlements_total": "0x35 1x25"},
        {"prefixgate_limit_dropped_settlements_total": "1x60"},
        "Counters of limits and budgets lag behind the ledger.",
    ),
    Case(
        "PrefixgateDiscoverySilent",
        {'prefixgate_discovery_last_success_age_seconds{source="dns"}': "0+60x60"},
        {'prefixgate_discovery_last_success_age_seconds{source="dns"}': "300x60"},
        "dns has not said for 40m 0s which endpoints there are.",
        {"source": "dns"},
    ),
    Case(
        "PrefixgateKvEventsAway",
        {
            'prefixgate_kv_feed_state{endpoint="a",rank="0",state="away"}': "1x60",
            'prefixgate_kv_feed_state{endpoint="a",rank="1",state="in_step"}': "1x60",
        },
        {'prefixgate_kv_feed_state{endpoint="a",rank="0",state="not_consumer"}': "1x60"},
        "KV events of a do not arrive; /health says why.",
        {"endpoint": "a"},
    ),
    Case(
        "PrefixgateModelArmStopped",
        {'prefixgate_model_arm_stopped{route="chat",arm="new"}': "1x60"},
        {'prefixgate_model_arm_stopped{route="chat",arm="new"}': "0x60"},
        "Arm new of chat gets nothing.",
        {"route": "chat", "arm": "new"},
    ),
    Case(
        "PrefixgateModelFallsBack",
        {'prefixgate_model_fallbacks_total{route="chat",why="slow"}': "0+1x60"},
        {'prefixgate_model_fallbacks_total{route="chat",why="slow"}': "0x30 1x30"},
        "A model of chat does not answer, and the next is asked: slow.",
        {"route": "chat", "why": "slow"},
    ),
    Case(
        "PrefixgateWorkersDie",
        {"prefixgate_worker_deaths_total": "0x30 1x30"},
        {"prefixgate_worker_deaths_total": "1x60"},
        "Worker processes ended by themselves.",
    ),
)

RECORDED: Mapping[str, tuple[Series, str, float]] = {
    "a share of cached tokens is of the answers that said how many these were": (
        {
            'prefixgate_tokens_total{endpoint="a",kind="prompt"}': "0+200x60",
            'prefixgate_tokens_total{endpoint="a",kind="prompt_reported"}': "0+100x60",
            'prefixgate_tokens_total{endpoint="a",kind="cached"}': "0+75x60",
        },
        "namespace:prefixgate_prompt_tokens_cached:ratio_rate5m",
        0.75,
    ),
    "the error of what was expected goes both ways": (
        {
            'prefixgate_expected_vs_reported_total{endpoint="a",kind="prompt"}': "0+100x60",
            'prefixgate_expected_vs_reported_total{endpoint="a",kind="too_many"}': "0+3x60",
            'prefixgate_expected_vs_reported_total{endpoint="a",kind="too_few"}': "0+1x60",
        },
        "namespace_endpoint:prefixgate_expectation_error:ratio_rate30m",
        0.04,
    ),
    "seconds saved are by the speed of each endpoint, of ranks by their mean": (
        {
            'prefixgate_tokens_total{endpoint="a",kind="cached"}': "0+60000x60",
            'prefixgate_tokens_total{endpoint="b",kind="cached"}': "0+60000x60",
            'prefixgate_perf_prefill_tokens_per_second{endpoint="a"}': "1000x60",
            'prefixgate_perf_prefill_tokens_per_second{endpoint="b/0"}': "1000x60",
            'prefixgate_perf_prefill_tokens_per_second{endpoint="b/1"}': "3000x60",
        },
        "namespace:prefixgate_prefill_saved_seconds:rate5m",
        1.5,
    ),
    "no request that fails is a share of 0": (
        {'prefixgate_requests_total{state="complete"}': "0+3x60"},
        "namespace:prefixgate_requests_failed:ratio_rate5m",
        0.0,
    ),
    "requests that fail are a share of all": (
        {
            'prefixgate_requests_total{state="failed"}': "0+1x60",
            'prefixgate_requests_total{state="complete"}': "0+3x60",
        },
        "namespace:prefixgate_requests_failed:ratio_rate5m",
        0.25,
    ),
}
"""Series, a recording, and what it is after forty minutes."""
