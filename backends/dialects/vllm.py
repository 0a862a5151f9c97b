"""vLLM, and the reference engine, which speaks as vLLM does.

Sources: vLLM 0.8.5 to 0.33.0. Metrics are labelled by data-parallel rank (`engine`). The cache's shape stands in the
labels of `vllm:cache_config_info`; any of them may read "None". `usage` carries cached tokens only behind a flag.
`/v1/messages` came with 0.11, `/kv_event_sources` with 0.31; embeddings, scores and ranks depend on the model. No
metric counts evictions. 0.11 takes the header that chooses a rank, but not every release of it heeds it. Left shut
beside what controls the engine: `/inference/v1/generate` and batches of chats, whose bodies hold what only the gateway
may set; audio, whose forms do not name the model in JSON.
"""

from dataclasses import replace

from backends.dialects.adapters import VLLM_ADAPTERS, of_vllm
from backends.dialects.event_sources import by_rank
from backends.dialects.metrics import labels, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, SaltForm, Samples, Standings, counter
from backends.features import Feature, Standing, standing_of
from backends.types import Metering, PriorityForm, TokenizeForm

_CONFIG = "vllm:cache_config_info"
_SLEEP = "vllm:engine_sleep_state"


def _shape(samples: Samples, info: Info) -> CacheShape:
    """Capacity summed over ranks; the token figure is right for hybrid models too, blocks × size is the older form."""
    block_size: int | None = None
    capacity_tokens: int | None = None
    for config in labels(samples, _CONFIG):
        block_size = whole_number(config.get("block_size")) or block_size
        blocks = whole_number(config.get("num_gpu_blocks"))
        tokens = whole_number(config.get("kv_cache_size_tokens"))
        if tokens is None and blocks is not None and block_size is not None:
            tokens = blocks * block_size
        if tokens is not None:
            capacity_tokens = (capacity_tokens or 0) + tokens
    return CacheShape(block_size, capacity_tokens)


def _told(samples: Samples, info: Info) -> Standings:
    """Prefix caching stands among the labels; adapters have a series once one was asked for, and none before."""
    found = {}
    for config in labels(samples, _CONFIG):
        found[Feature.PREFIX_CACHING] = standing_of(config.get("enable_prefix_caching"))
    if samples.get(VLLM_ADAPTERS):
        found[Feature.LORA] = Standing.ON
    return found


def _awake(samples: Samples) -> frozenset[str] | None:
    """The ranks that do not sleep: those that do have dropped their cache. None in versions that do not say."""
    states = samples.get(_SLEEP)
    if not states:
        return None
    return frozenset(
        labelled.get("engine", "0")
        for labelled, value in states
        if labelled.get("sleep_state") == "awake" and value > 0
    )


VLLM = Dialect(
    name="vllm",
    owned_by=frozenset({"vllm"}),
    metric_prefix="vllm:",
    metrics=MetricNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        steps=(
            "vllm:iteration_tokens_total_count",
            *counter("vllm:generation_tokens"),
            *counter("vllm:prompt_tokens"),
        ),
        kv_use=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prefix_hits=(*counter("vllm:prefix_cache_hits"), *counter("vllm:gpu_prefix_cache_hits")),
        prefix_queries=(*counter("vllm:prefix_cache_queries"), *counter("vllm:gpu_prefix_cache_queries")),
        finished=counter("vllm:request_success"),
        started=(
            "process_start_time_seconds",
            "vllm:prefix_cache_queries_created",
            "vllm:gpu_prefix_cache_queries_created",
        ),
        also=(_CONFIG, VLLM_ADAPTERS, _SLEEP),
    ),
    health_paths=("/health",),
    info_paths=("/version",),
    shape=_shape,
    awake=_awake,
    sleeps=True,
    flags={
        Feature.CACHED_TOKENS: "--enable-prompt-tokens-details",
        Feature.METRICS: "no --disable-log-stats",
        Feature.KV_EVENTS: """--kv-events-config '{"enable_kv_cache_events":true,"publisher":"zmq"}'""",
        Feature.PREFIX_CACHING: "--enable-prefix-caching",
        Feature.PRIORITY: "--scheduling-policy priority",
        Feature.LORA: "--enable-lora",
    },
    told=_told,
    salt=SaltForm(longest=128, forbidden="@/\\\0"),
    salted_everywhere_since=(0, 32),
    tokenize=TokenizeForm.MESSAGES,
    priority=PriorityForm.LOWER_FIRST,
    adapters=of_vllm,
    rank_label="engine",
    ranked_since=(0, 12),
    event_sources_path="/kv_event_sources",
    event_sources=lambda page, info, host: by_rank(page, host),
    open_paths={
        "POST /tokenize": Metering.FREE,
        "POST /detokenize": Metering.FREE,
        "POST /classify": Metering.METERED,
        "POST /pooling": Metering.METERED,
        "POST /score": Metering.METERED,
        "POST /v1/score": Metering.METERED,
        "POST /rerank": Metering.METERED,
        "POST /v1/rerank": Metering.METERED,
        "POST /v2/rerank": Metering.METERED,
    },
)

REFERENCE = replace(
    VLLM,
    name="reference",
    owned_by=frozenset({"prefixgate-reference"}),
    metric_prefix=None,
    reports_cached_tokens=True,
    flags={Feature.KV_EVENTS: "--kv-events", Feature.METRICS: "", Feature.PREFIX_CACHING: ""},
    salted_everywhere_since=(),
    uncertain_routes=(),
    open_paths={"POST /tokenize": Metering.FREE, "POST /detokenize": Metering.FREE},
)
