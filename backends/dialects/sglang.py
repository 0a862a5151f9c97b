"""SGLang.

Sources: SGLang 0.4.6 to 0.5.23. Metrics exist only with `--enable-metrics`. Series are labelled by data-parallel rank
(`dp_rank`), which is summed, and by ranks of other parallelism, of which only rank 0 counts. Cached tokens in `usage`
need `--enable-cache-report`; the server's information page repeats its arguments, so the flag can be seen there.
`/health` runs a token through the GPU and takes a second; `/ready`, where known, is cheap. `/v1/messages` came with
0.5.9, `kv_events` on the information page with 0.5.16. `/generate` and `/encode` stay shut: they take adapters and
sessions, and name no model.
"""

from backends.dialects.event_sources import from_base_ports
from backends.dialects.metrics import labels, total, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, Samples, Series
from backends.types import Metering

_CACHED = "sglang:cached_tokens_total"
_PAGE_SIZE = "sglang:page_size"
_MAX_TOKENS = "sglang:max_total_num_tokens"
_CONFIG = "sglang:cache_config_info"
_SHARED_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _first_rank(series: Series) -> bool:
    return all(series[0].get(rank, "0") == "0" for rank in _SHARED_RANKS)


def _prepare(samples: Samples) -> Samples:
    """Keep rank 0 of what ranks share, and of the cached tokens the total where it stands beside its parts."""
    kept = {name: [one for one in series if _first_rank(one)] for name, series in samples.items()}
    totals = [one for one in kept.get(_CACHED, []) if one[0].get("cache_source") == "total"]
    if totals:
        kept[_CACHED] = totals
    return kept


def _shape(samples: Samples, info: Info) -> CacheShape:
    kept = _prepare(samples)
    page_sizes = [value for _, value in kept.get(_PAGE_SIZE, ())]
    configs = labels(kept, _CONFIG)
    block_size = whole_number(page_sizes[0]) if page_sizes else whole_number(info.get("page_size"))
    if block_size is None and configs:
        block_size = whole_number(configs[0].get("page_size"))
    capacity_tokens = whole_number(total(kept, (_MAX_TOKENS,))) or whole_number(info.get("max_total_num_tokens"))
    if capacity_tokens is None and configs and block_size is not None:
        pages = [whole_number(config.get("num_pages")) or 0 for config in configs]
        capacity_tokens = sum(pages) * block_size or None
    return CacheShape(block_size, capacity_tokens)


SGLANG = Dialect(
    name="sglang",
    owned_by=frozenset({"sglang"}),
    metric_prefix="sglang:",
    metrics=MetricNames(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_use=("sglang:token_usage",),
        prefix_hits=(_CACHED,),
        prefix_queries=("sglang:prompt_tokens_total",),
        also=(_PAGE_SIZE, _MAX_TOKENS, _CONFIG),
    ),
    health_paths=("/ready", "/health"),
    info_paths=("/server_info", "/get_server_info"),
    prepare=_prepare,
    shape=_shape,
    cached_tokens_flag="--enable-cache-report",
    cached_tokens_info_key="enable_cache_report",
    supports_cache_salt=True,
    has_tokenize=True,
    event_sources=lambda page, info, host: from_base_ports(info.get("kv_events"), host),
    open_paths={
        "POST /tokenize": Metering.FREE,
        "POST /v1/tokenize": Metering.FREE,
        "POST /detokenize": Metering.FREE,
        "POST /v1/detokenize": Metering.FREE,
        "POST /v1/classify": Metering.METERED,
        "POST /v1/score": Metering.METERED,
        "POST /v1/rerank": Metering.METERED,
    },
)
