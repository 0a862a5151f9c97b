"""llama.cpp's `llama-server`.

It has slots, not blocks: each slot remembers its last sequence and reuses any common prefix of it, token by token.
So the block size is 1: every block size of ours suits it. Capacity is context per slot × slots, from `/props`.
Cached tokens are always in `usage`.
Its own `/v1/messages` and `/v1/responses` turn a request into a chat in ways of their own (a system prompt's billing
line stays, empty turns vanish, items without a type are refused), so it gets the chat that other engines would make of
it: one conversation is one prompt in every dialect, and the tokens are known.
It closes its connection after each answer. Metrics need `--metrics`; without, `/slots` tells how many work, though not
how many wait. Reading either counts as work for `--sleep-idle-seconds`. Embeddings and ranks need a flag each and
answer 501 without. `/completion` and `/infill` stay shut: they pin slots and carry no usage to bill.
"""

from collections.abc import Mapping
from pathlib import PurePath

from backends.dialects.metrics import total, whole_number
from backends.dialects.types import (
    EMBEDDINGS,
    CacheShape,
    Dialect,
    Info,
    LoadPage,
    MetricNames,
    Samples,
    Series,
    counter,
)
from backends.features import Feature
from backends.types import Metering, StartedAdapter, TokenizeForm

_COMPUTED = "llamacpp:prompt_tokens_total"
_CACHED = "llamacpp:prompt_tokens_cached_total"
_PROCESSING = "llamacpp:requests_processing"
_LATEST_TASK = "latest task"
_QUERIES = "prompt tokens, cached and computed"


def _prepare(samples: Samples) -> Samples:
    """Queried tokens are cached plus computed; builds without the cached counter count prompts in another way."""
    computed, cached = total(samples, (_COMPUTED,)), total(samples, (_CACHED,))
    if computed is None or cached is None:
        return samples
    return {**samples, _QUERIES: [({}, computed + cached)]}


def _read(page: object) -> Samples:
    """`/slots`: how many are at work, and the number of the latest task, which begins anew with the process.

    A slot that nobody has used yet names no task, which is less than any number.
    """
    slots = [one for one in page if isinstance(one, Mapping)] if isinstance(page, list) else []
    busy = [one["is_processing"] for one in slots if isinstance(one.get("is_processing"), bool)]
    tasks = [task for one in slots if isinstance(task := one.get("id_task"), int)]
    found: dict[str, list[Series]] = {}
    if busy:
        found[_PROCESSING] = [({}, float(sum(busy)))]
    if slots:
        found[_LATEST_TASK] = [({}, float(max(tasks, default=-1)))]
    return found


def _adapters(page: object) -> tuple[StartedAdapter, ...] | None:
    """`/lora-adapters`; empty where it was started with none, None where the page is of another form."""
    if not isinstance(page, list):
        return None
    found = []
    for one in page:
        number, scale = (one.get("id"), one.get("scale")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(one, Mapping) or type(number) is not int or not isinstance(scale, int | float):
            return None
        path = one.get("path")
        found.append(StartedAdapter(number, PurePath(path).name if isinstance(path, str) else "", float(scale)))
    return tuple(found)


def _shape(samples: Samples, info: Info) -> CacheShape:
    settings = info.get("default_generation_settings")
    context_tokens = whole_number(settings.get("n_ctx")) if isinstance(settings, Mapping) else None
    slots = whole_number(info.get("total_slots"))
    if context_tokens is None or slots is None:
        return CacheShape(block_size=1, slots=slots)
    return CacheShape(block_size=1, capacity_tokens=context_tokens * slots, slots=slots)


LLAMACPP = Dialect(
    name="llamacpp",
    owned_by=frozenset({"llamacpp"}),
    metric_prefix="llamacpp:",
    metrics=MetricNames(
        running=(_PROCESSING,),
        waiting=("llamacpp:requests_deferred",),
        steps=("llamacpp:n_decode_total", *counter("llamacpp:tokens_predicted"), *counter("llamacpp:prompt_tokens")),
        kv_use=("llamacpp:kv_cache_usage_ratio",),
        prefix_hits=(_CACHED,),
        prefix_queries=(_QUERIES,),
        finished=(_LATEST_TASK,),
        also=(_COMPUTED,),
    ),
    health_paths=("/health",),
    load_page=LoadPage("/slots", _read),
    adapters_path="/lora-adapters",
    started_adapters=_adapters,
    signature=("/props", "default_generation_settings"),
    info_paths=("/props",),
    version_key="build_info",
    prepare=_prepare,
    shape=_shape,
    reports_cached_tokens=True,
    flags={Feature.METRICS: "--metrics", Feature.PREFIX_CACHING: "--cache-prompt", Feature.LORA: "--lora FILE"},
    tokenize=TokenizeForm.TEMPLATE,
    uncertain_routes=(EMBEDDINGS,),
    max_model_len_info_key=("default_generation_settings", "n_ctx"),
    open_paths={
        "POST /tokenize": Metering.FREE,
        "POST /detokenize": Metering.FREE,
        "POST /apply-template": Metering.FREE,
        "POST /v1/chat/completions/input_tokens": Metering.FREE,
        "POST /v1/responses/input_tokens": Metering.FREE,
        "POST /rerank": Metering.METERED,
        "POST /reranking": Metering.METERED,
        "POST /v1/rerank": Metering.METERED,
        "POST /v1/reranking": Metering.METERED,
    },
)
