"""SGLang.

Sources: SGLang 0.4.6 to 0.5.23. Metrics exist only with `--enable-metrics`. Series are labelled by data-parallel rank
(`dp_rank`), which is summed, and by ranks of other parallelism, of which only rank 0 counts. Cached tokens in `usage`
need `--enable-cache-report`; the server's information page repeats its arguments, so the flag can be seen there.
`/health` runs a token through the GPU and takes a second; `/ready`, where known, is cheap. `/v1/messages` came with
0.5.9, `kv_events` on the information page with 0.5.16. The header that chooses a rank came with 0.5.12. `/generate` and
`/encode` stay shut: they take adapters and sessions, and name no model.
"""

import math
from collections.abc import Mapping, Sequence

from backends.dialects.adapters import SGLANG_SLOTS, SGLANG_USED, of_sglang
from backends.dialects.event_sources import from_base_ports
from backends.dialects.metrics import labels, total, whole_number
from backends.dialects.types import (
    CacheShape,
    Dialect,
    Info,
    LoadPage,
    MetricNames,
    SaltForm,
    Samples,
    Series,
    Standings,
    counter,
)
from backends.features import Feature, Standing, standing_of
from backends.types import Metering, PriorityForm, TokenizeForm

_CACHED = "sglang:cached_tokens"
_PROMPTS = "sglang:prompt_tokens"
_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_USE = "sglang:token_usage"
_COMPUTED = "prompt tokens computed"
_PAGE_SIZE = "sglang:page_size"
_MAX_TOKENS = "sglang:max_total_num_tokens"
_CONFIG = "sglang:cache_config_info"
_LOADS = {
    "num_running_reqs": _RUNNING,
    "num_waiting_reqs": _WAITING,
    "token_usage": _USE,
    "max_total_num_tokens": _MAX_TOKENS,
    "total_prefill_uncached_tokens": _COMPUTED,
}
_SWITCHES = {
    Feature.CACHED_TOKENS: "enable_cache_report",
    Feature.PRIORITY: "enable_priority_scheduling",
    Feature.LORA: "enable_lora",
}
_SHARED_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _first_rank(series: Series) -> bool:
    return all(series[0].get(rank, "0") == "0" for rank in _SHARED_RANKS)


def _prepare(samples: Samples) -> Samples:
    """Keep rank 0 of what ranks share, and of the cached tokens the total where it stands beside its parts."""
    kept = {name: [one for one in series if _first_rank(one)] for name, series in samples.items()}
    for name in counter(_CACHED):
        totals = [one for one in kept.get(name, []) if one[0].get("cache_source") == "total"]
        if totals:
            kept[name] = totals
    return kept


def _loads(page: object) -> Samples:
    """`/v1/loads`, which is there without metrics too: a series a data-parallel rank, under the names of metrics."""
    ranks = page.get("loads") if isinstance(page, Mapping) else None
    found: dict[str, list[Series]] = {}
    for load in ranks if isinstance(ranks, Sequence) and not isinstance(ranks, str) else ():
        if isinstance(load, Mapping):
            for key, name in _LOADS.items():
                value = load.get(key)
                if isinstance(value, int | float) and math.isfinite(value):
                    found.setdefault(name, []).append(({"dp_rank": str(load.get("dp_rank", 0))}, float(value)))
    return found


def _told(samples: Samples, info: Info) -> Standings:
    """Its information page repeats its arguments; a key that is not there belongs to another version."""
    found = {feature: standing_of(info[key]) for feature, key in _SWITCHES.items() if key in info}
    if "disable_radix_cache" in info:
        off = standing_of(info["disable_radix_cache"])
        found[Feature.PREFIX_CACHING] = {Standing.ON: Standing.OFF, Standing.OFF: Standing.ON}.get(off, off)
    if samples.get(SGLANG_SLOTS):
        found[Feature.LORA] = Standing.ON
    if "kv_events" in info and info["kv_events"] is None:
        found[Feature.KV_EVENTS] = Standing.OFF
    return found


def _told_capacity(info: Info) -> int | None:
    """The information page has it of one data-parallel rank."""
    tokens, ranks = whole_number(info.get("max_total_num_tokens")), whole_number(info.get("dp_size")) or 1
    return None if tokens is None else whole_number(tokens * ranks)


def _shape(samples: Samples, info: Info) -> CacheShape:
    kept = _prepare(samples)
    page_sizes = [value for _, value in kept.get(_PAGE_SIZE, ())]
    configs = labels(kept, _CONFIG)
    block_size = whole_number(page_sizes[0]) if page_sizes else whole_number(info.get("page_size"))
    if block_size is None and configs:
        block_size = whole_number(configs[0].get("page_size"))
    capacity_tokens = whole_number(total(kept, (_MAX_TOKENS,))) or _told_capacity(info)
    if capacity_tokens is None and configs and block_size is not None:
        pages = [whole_number(config.get("num_pages")) or 0 for config in configs]
        capacity_tokens = sum(pages) * block_size or None
    return CacheShape(block_size, capacity_tokens)


SGLANG = Dialect(
    name="sglang",
    owned_by=frozenset({"sglang"}),
    metric_prefix="sglang:",
    metrics=MetricNames(
        running=(_RUNNING,),
        waiting=(_WAITING,),
        steps=(
            "sglang:realtime_tokens_total",
            "sglang:inter_token_latency_seconds_count",
            *counter("sglang:generation_tokens"),
            *counter("sglang:prompt_tokens"),
        ),
        kv_use=(_USE, "sglang:full_token_usage"),
        prefix_hits=counter(_CACHED),
        prefix_queries=counter(_PROMPTS),
        finished=(*counter("sglang:num_requests"), _COMPUTED),
        also=(_PAGE_SIZE, _MAX_TOKENS, _CONFIG, SGLANG_SLOTS, SGLANG_USED),
    ),
    health_paths=("/ready", "/health"),
    info_paths=("/server_info", "/get_server_info"),
    prepare=_prepare,
    shape=_shape,
    load_page=LoadPage("/v1/loads", _loads),
    flags={
        Feature.CACHED_TOKENS: "--enable-cache-report",
        Feature.METRICS: "--enable-metrics",
        Feature.KV_EVENTS: """--kv-events-config '{"publisher":"zmq","endpoint":"tcp://*:5557"}'""",
        Feature.PREFIX_CACHING: "no --disable-radix-cache",
        Feature.PRIORITY: "--enable-priority-scheduling",
        Feature.LORA: "--enable-lora",
    },
    told=_told,
    salt=SaltForm(),
    tokenize=TokenizeForm.MESSAGES,
    tokenizes_chats_since=(0, 5, 12),
    priority=PriorityForm.HIGHER_FIRST,
    signature=("/model_info", "model_path"),
    adapters=of_sglang,
    rank_label="dp_rank",
    ranked_since=(0, 5, 12),
    told_ranks=lambda info: whole_number(info.get("dp_size")),
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
