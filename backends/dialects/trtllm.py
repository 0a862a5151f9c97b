"""TensorRT-LLM (`trtllm-serve`).

Sources: 1.2.1 and the 1.4 development line. Prometheus metrics stand at `/prometheus/metrics` and need
`return_perf_metrics: true`, the cache and queue gauges also `enable_iter_perf_stats: true`; `/metrics` is JSON whose
reading empties it, so it is never asked. Cached tokens are always in `usage`. Of its further paths none is for
tenants: they drain statistics and events, or steer the cache and the weights. `/kv_cache_events` empties itself for
whoever reads it, and no page says whether it holds anything: that it may be polled can only be configured.
"""

from backends.dialects.metrics import total, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, Samples

_BLOCK_SIZE = "trtllm_kv_cache_tokens_per_block"
_MAX_BLOCKS = "trtllm_kv_cache_max_blocks"


def _shape(samples: Samples, info: Info) -> CacheShape:
    block_sizes = [value for _, value in samples.get(_BLOCK_SIZE, ())]
    block_size = whole_number(block_sizes[0]) if block_sizes else None
    blocks = whole_number(total(samples, (_MAX_BLOCKS,)))
    if block_size is None or blocks is None:
        return CacheShape(block_size)
    return CacheShape(block_size, blocks * block_size)


TRTLLM = Dialect(
    name="trtllm",
    owned_by=frozenset({"tensorrt_llm"}),
    metric_prefix="trtllm_",
    metrics=MetricNames(
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        kv_use=("trtllm_kv_cache_utilization",),
        prefix_hits=("trtllm_prompt_cached_tokens_total",),
        prefix_queries=("trtllm_prompt_tokens_total",),
        also=(_BLOCK_SIZE, _MAX_BLOCKS),
    ),
    metrics_path="/prometheus/metrics",
    health_paths=("/health",),
    info_paths=("/version",),
    shape=_shape,
    reports_cached_tokens=True,
    supports_cache_salt=True,
)
