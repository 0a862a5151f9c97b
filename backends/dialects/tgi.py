"""Hugging Face's text-generation-inference (3.3, in maintenance).

It never reports cached tokens, so its hits are unknown, not 0. In `/v1/models` it owns its models under their own
name, so it is told by its metrics' prefix. Its block size depends on a backend it does not name.
"""

from collections.abc import Mapping, Sequence

from backends.dialects.metrics import total, whole_number
from backends.dialects.types import CacheShape, Dialect, Info, MetricNames, Samples, TokenizeCall
from backends.errors import UnexpectedAnswer

_MAX_TOKENS = "tgi_batch_max_total_tokens"


def _shape(samples: Samples, info: Info) -> CacheShape:
    return CacheShape(capacity_tokens=whole_number(total(samples, (_MAX_TOKENS,))))


def _tokenize_text(model: str, text: str, add_special_tokens: bool) -> TokenizeCall:
    return TokenizeCall("/tokenize", {"inputs": text})


def _tokenize_chat(model: str, messages: Sequence[object], tools: Sequence[object] | None) -> TokenizeCall:
    body: dict[str, object] = {"model": model, "messages": messages}
    if tools:
        body["tools"] = tools
    return TokenizeCall("/chat_tokenize", body)


def _read_token_ids(answer: object) -> tuple[int, ...]:
    """Ids of `[{"id": 1, ...}, ...]`, which the chat form wraps as `tokenize_response`."""
    tokens = answer.get("tokenize_response") if isinstance(answer, Mapping) else answer
    if not isinstance(tokens, Sequence) or isinstance(tokens, str):
        raise UnexpectedAnswer("list of tokens")
    ids = [token.get("id") if isinstance(token, Mapping) else None for token in tokens]
    whole = tuple(one for one in ids if isinstance(one, int))
    if len(whole) != len(ids):
        raise UnexpectedAnswer("id on every token")
    return whole


TGI = Dialect(
    name="tgi",
    metric_prefix="tgi_",
    metrics=MetricNames(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        also=(_MAX_TOKENS,),
    ),
    health_paths=("/health",),
    info_paths=("/info",),
    shape=_shape,
    reports_cached_tokens=False,
    max_model_len_info_key=("max_total_tokens",),
    tokenize_text=_tokenize_text,
    tokenize_chat=_tokenize_chat,
    read_token_ids=_read_token_ids,
)
