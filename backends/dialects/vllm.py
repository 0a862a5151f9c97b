"""vLLM, and the reference engine, which speaks as vLLM does.

Sources: vLLM 0.8.5 to 0.33.0. Metrics are labelled by data-parallel rank (`engine`). The cache's shape stands in the
labels of `vllm:cache_config_info`; any of them may read "None". `usage` carries cached tokens only behind a flag.
`/v1/messages` came with 0.11, `/kv_event_sources` with 0.31; embeddings, scores and ranks depend on the model. No
metric counts evictions. Left shut beside what controls the engine: `/inference/v1/generate` and batches of chats, whose
bodies hold what only the gateway may set; audio, whose forms do not name the model in JSON.
"""

from dataclasses import replace

from backends.dialects.event_sources import by_rank
from backends.dialects.metrics import labels, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, Samples
from backends.types import Metering

_CONFIG = "vllm:cache_config_info"


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


VLLM = Dialect(
    name="vllm",
    owned_by=frozenset({"vllm"}),
    metric_prefix="vllm:",
    metrics=MetricNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_use=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prefix_hits=("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        prefix_queries=("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        started=("process_start_time_seconds", "vllm:prefix_cache_queries_created"),
        also=(_CONFIG,),
    ),
    health_paths=("/health",),
    info_paths=("/version",),
    shape=_shape,
    cached_tokens_flag="--enable-prompt-tokens-details",
    supports_cache_salt=True,
    salted_everywhere_since=(0, 32),
    has_tokenize=True,
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
    cached_tokens_flag=None,
    salted_everywhere_since=(),
    uncertain_routes=(),
    open_paths={"POST /tokenize": Metering.FREE, "POST /detokenize": Metering.FREE},
)
