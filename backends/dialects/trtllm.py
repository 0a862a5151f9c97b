"""TensorRT-LLM (`trtllm-serve`).

Sources: 1.2.1 and the 1.4 development line. Prometheus metrics stand at `/prometheus/metrics` and need
`return_perf_metrics: true`, the cache and queue gauges also `enable_iter_perf_stats: true`. `/metrics` is JSON whose
reading empties it, so it is read only where there are no others: each reader then sees a part of the iterations, which
is enough for the load of the last one. Fields that it does not know it answers with 400, and so those of OpenAI's that
only hint at something are taken out. Cached tokens are always in `usage`. Of its further paths none is for
tenants: they drain statistics and events, or steer the cache and the weights. `/kv_cache_events` empties itself for
whoever reads it, and no page says whether it holds anything: that it may be polled can only be configured.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from backends.dialects.metrics import paged
from backends.dialects.types import (
    OPENAI_HINTS,
    CacheShape,
    Dialect,
    Info,
    LoadPage,
    MetricNames,
    SaltForm,
    Samples,
    Series,
    counter,
)
from backends.features import Feature
from backends.types import PriorityForm, TokenizeForm

_BLOCK_SIZE = "trtllm_kv_cache_tokens_per_block"
_MAX_BLOCKS = "trtllm_kv_cache_max_blocks"
_RUNNING = "trtllm_num_requests_running"
_WAITING = "trtllm_num_requests_waiting"
_USE = "trtllm_kv_cache_utilization"
_ITERATION = "iteration"
_STATISTICS = {"iter": _ITERATION, "numActiveRequests": _RUNNING, "numQueuedRequests": _WAITING}


def _read(page: object) -> Samples:
    """The last iteration of each rank among the statistics of `/metrics`; empty where none ran since the last reading.

    Its counts of reused blocks are left out: what is reused of a part of a block is not in them, and so they could not
    be held against the tokens that answers report.
    """
    latest: dict[str, Mapping[str, object]] = {}
    for statistics in page if isinstance(page, Sequence) and not isinstance(page, str) else ():
        if isinstance(statistics, Mapping):
            latest[str(statistics.get("attentionDpRank") or 0)] = statistics
    found: dict[str, list[Series]] = {}
    for rank, statistics in latest.items():
        blocks = statistics.get("kvCacheStats")
        for name, value in (*_counts(statistics), *(_blocks(blocks) if isinstance(blocks, Mapping) else ())):
            if isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(name, []).append(({"rank": rank}, float(value)))
    return found


def _counts(statistics: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    return ((name, statistics.get(key)) for key, name in _STATISTICS.items())


def _blocks(blocks: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    most, used = blocks.get("maxNumBlocks"), blocks.get("usedNumBlocks")
    yield _BLOCK_SIZE, blocks.get("tokensPerBlock")
    yield _MAX_BLOCKS, most
    if isinstance(most, int) and isinstance(used, int) and most > 0:
        yield _USE, used / most


def _shape(samples: Samples, info: Info) -> CacheShape:
    return paged(samples.get(_BLOCK_SIZE, ()), samples.get(_MAX_BLOCKS, ()))


TRTLLM = Dialect(
    name="trtllm",
    owned_by=frozenset({"tensorrt_llm"}),
    metric_prefix="trtllm_",
    metrics=MetricNames(
        running=(_RUNNING,),
        waiting=(_WAITING,),
        steps=(
            "trtllm_iteration_latency_seconds_count",
            *counter("trtllm_generation_tokens"),
            *counter("trtllm_prompt_tokens"),
        ),
        kv_use=(_USE,),
        prefix_hits=counter("trtllm_prompt_cached_tokens"),
        prefix_queries=counter("trtllm_prompt_tokens"),
        finished=(*counter("trtllm_request_success"), _ITERATION),
        also=(_BLOCK_SIZE, _MAX_BLOCKS),
    ),
    metrics_path="/prometheus/metrics",
    health_paths=("/health",),
    info_paths=("/version",),
    shape=_shape,
    reports_cached_tokens=True,
    load_page=LoadPage("/metrics", _read),
    flags={
        Feature.METRICS: "return_perf_metrics: true and enable_iter_perf_stats: true",
        Feature.KV_EVENTS: "kv_cache_config.event_buffer_max_size: 65536, and here backends[].kv_events",
        Feature.PREFIX_CACHING: "kv_cache_config.enable_block_reuse: true",
        Feature.PRIORITY: "scheduler_config.waiting_queue_policy: priority",
        Feature.LORA: "lora_config",
    },
    salt=SaltForm(),
    tokenize=TokenizeForm.TEXT_ONLY,
    tokenize_path="/_internal/tokenize",
    priority=PriorityForm.SHARE,
    refuses=OPENAI_HINTS,
)
