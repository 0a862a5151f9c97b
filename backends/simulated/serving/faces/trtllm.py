"""TensorRT-LLM's `trtllm-serve`: fields that it does not know are refused, cached tokens are always told.

Written after the engine's sources, not after recorded answers.
"""

from collections.abc import Mapping
from typing import Final

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.exposition import counter, gauge, histogram
from backends.simulated.serving.face import Face, Reply, Shape, Site, flat_error
from backends.simulated.serving.faces import usual
from backends.simulated.serving.reading import Fields
from backends.simulated.serving.split import context_first
from backends.simulated.serving.types import Json
from backends.simulated.types import USUAL_CAPACITY_TOKENS, EngineSpec


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


_SAMPLING: Final = _names(
    "model max_tokens max_completion_tokens n temperature top_p top_k top_p_min min_p seed stop stop_token_ids stream",
    "stream_options frequency_penalty presence_penalty repetition_penalty logit_bias logprobs user best_of",
    "use_beam_search length_penalty early_stopping ignore_eos min_tokens include_stop_str_in_output",
    "skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens prompt_ignore_length detokenize",
    "return_context_logits add_special_tokens response_format lora_request disaggregated_params cache_salt priority",
    "conversation_params",
)
_CHAT: Final = _SAMPLING | _names(
    "messages prompt_token_ids prompt_token_ids_b64 top_logprobs tools tool_choice reasoning_effort documents",
    "chat_template chat_template_kwargs add_generation_prompt echo mm_processor_kwargs media_io_kwargs",
)
_COMPLETION: Final = _SAMPLING | _names("prompt echo suffix")
_BLOCK_TOKENS: Final = 32
"""Its default `tokens_per_block`."""


def _error(refused: Refused) -> Json:
    return {"error": refused.message} if refused.kind == "validation" else flat_error(refused)


def _adapter(site: Site, fields: Fields) -> str | None:
    asked = fields.mapping("lora_request")
    if asked is None:
        return None
    name = asked.get("lora_name") or asked.get("name")
    if not isinstance(name, str):
        raise fields.refuse("lora_request needs a lora_name", "lora_request")
    if name not in site.adapters.known:
        path = asked.get("lora_path") or asked.get("path")
        if not isinstance(path, str):
            raise fields.refuse(f"lora_request: adapter {name!r} is not loaded and has no lora_path", "lora_request")
        site.adapters.add(name, path)
    return name


def _check(site: Site, fields: Fields, headers: Mapping[str, str]) -> None:
    fields.text("cache_salt")
    fields.mapping("lora_request")
    priority = fields.all.get("priority")
    if priority is not None and (not isinstance(priority, int | float) or not 0 <= priority <= 1):
        raise fields.refuse("priority must be between 0 and 1", "priority")
    if fields.mapping("stream_options") is not None and not fields.flag("stream"):
        raise fields.refuse("Stream options can only be defined when stream is true.", "stream_options")


def _models(site: Site) -> Reply:
    return usual.models(site, "tensorrt_llm")


def _iteration_stats(site: Site) -> Reply:
    engine = site.runner.spec
    stats = []
    for rank in range(site.spec.ranks):
        sample = site.runner.sample(rank)
        used = round(sample.kv_use * engine.capacity_blocks)
        cache = {
            "maxNumBlocks": engine.capacity_blocks,
            "freeNumBlocks": engine.capacity_blocks - used,
            "usedNumBlocks": used,
            "tokensPerBlock": engine.block_size,
        }
        stats.append({"numActiveRequests": sample.running, "numQueuedRequests": sample.waiting, "kvCacheStats": cache})
    return Reply(stats)


def _metrics(site: Site) -> Reply:
    runner, spec = site.runner, site.spec
    label = {"model_name": spec.model, "engine_type": "undefined"}
    samples = [runner.sample(rank) for rank in range(spec.ranks)]
    totals, engine = runner.totals, runner.spec
    page = [
        gauge("trtllm_num_requests_running", [(label, sum(one.running for one in samples))]),
        gauge("trtllm_num_requests_waiting", [(label, sum(one.waiting for one in samples))]),
        gauge("trtllm_kv_cache_utilization", [(label, sum(one.kv_use for one in samples) / len(samples))]),
        gauge("trtllm_kv_cache_max_blocks", [(label, engine.capacity_blocks * spec.ranks)]),
        gauge("trtllm_kv_cache_tokens_per_block", [(label, engine.block_size)]),
        counter("trtllm_prompt_tokens", [(label, sum(one.prompt_tokens for one in totals))]),
        counter("trtllm_prompt_cached_tokens", [(label, sum(one.cached_tokens for one in totals))]),
        counter("trtllm_generation_tokens", [(label, sum(one.output_tokens for one in totals))]),
        counter(
            "trtllm_request_success",
            [
                ({**label, "finished_reason": reason}, sum(one.outcomes[reason] for one in totals))
                for reason in ("stop", "length")
            ],
        ),
        histogram(
            "trtllm_time_to_first_token_seconds",
            [(label, sum(one.first_token_s for one in totals), sum(one.first_tokens for one in totals))],
        ),
    ]
    return Reply("".join(page))


def _too_long(site: Site, prompt_tokens: int, asked_tokens: int) -> Refused:
    return Refused(
        400,
        f"The sum of prompt length ({prompt_tokens}) and max_tokens ({asked_tokens}) should not exceed max_seq_len "
        f"({site.spec.max_model_len})",
    )


async def _tokenize(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    fields.required("prompt")
    tokens = site.vocabulary.encode(fields.text("prompt") or "")
    return Reply({"count": len(tokens), "tokens": tokens})


def _default_usage(fields: Fields) -> bool:
    options = fields.mapping("stream_options")
    return options is not None and options.get("include_usage") is not False


TRTLLM = Face(
    name="trtllm",
    version="1.4.0rc2",
    error=_error,
    invalid_kind="validation",
    adapter=_adapter,
    engine=EngineSpec(block_size=_BLOCK_TOKENS, capacity_blocks=USUAL_CAPACITY_TOKENS // _BLOCK_TOKENS),
    pages={
        "/health": usual.health,
        "/version": usual.version,
        "/v1/models": _models,
        "/metrics": _iteration_stats,
        "/prometheus/metrics": _metrics,
    },
    posts={"/_internal/tokenize": _tokenize},
    chat_fields=_CHAT,
    completion_fields=_COMPLETION,
    check=_check,
    knows_models=False,
    usage=usual.usage_with_cached,
    too_long=_too_long,
    salted=True,
    default_usage=_default_usage,
    leg=context_first.leg,
    hand_over=("context", context_first.hand_over),
    shape=Shape(role={"role": "assistant"}, pad=" "),
)
