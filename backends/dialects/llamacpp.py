"""llama.cpp's `llama-server`.

It has slots, not blocks: each slot remembers its last sequence and reuses any common prefix of it, token by token.
So the block size is 1: every block size of ours suits it. Capacity is context per slot × slots, from `/props`.
Cached tokens are always in `usage`.
Its own `/v1/messages` and `/v1/responses` turn a request into a chat in ways of their own (a system prompt's billing
line stays, empty turns vanish, items without a type are refused), so it gets the chat that other engines would make of
it: one conversation is one prompt in every dialect, and the tokens are known.
 It closes its connection after each answer. Metrics need `--metrics`. Embeddings
and ranks need a flag each and answer 501 without. `/completion` and `/infill` stay shut: they pin slots and carry no
usage to bill.
"""

from collections.abc import Mapping

from backends.dialects.metrics import total, whole_number
from backends.dialects.types import EMBEDDINGS, CacheShape, Dialect, Info, MetricNames, Samples, counter
from backends.features import Feature
from backends.types import Metering, TokenizeForm

_COMPUTED = "llamacpp:prompt_tokens_total"
_CACHED = "llamacpp:prompt_tokens_cached_total"
_QUERIES = "prompt tokens, cached and computed"


def _prepare(samples: Samples) -> Samples:
    """Queried tokens are cached plus computed; builds without the cached counter count prompts in another way."""
    computed, cached = total(samples, (_COMPUTED,)), total(samples, (_CACHED,))
    if computed is None or cached is None:
        return samples
    return {**samples, _QUERIES: [({}, computed + cached)]}


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
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        steps=("llamacpp:n_decode_total", *counter("llamacpp:tokens_predicted"), *counter("llamacpp:prompt_tokens")),
        kv_use=("llamacpp:kv_cache_usage_ratio",),
        prefix_hits=(_CACHED,),
        prefix_queries=(_QUERIES,),
        also=(_COMPUTED,),
    ),
    health_paths=("/health",),
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
