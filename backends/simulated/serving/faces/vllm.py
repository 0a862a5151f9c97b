"""vLLM, as of 0.32 and as of 0.23: what differs is told by the version.

Written after recorded answers of 0.32; 0.23 leaves `prompt_tokens_details` out where nothing was cached, and its
`usage` has no `created_cache_tokens`.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.exposition import counter, gauge, histogram
from backends.simulated.serving.face import Face, Moment, Reply, Shape, Site, nested_error, plain_usage
from backends.simulated.serving.faces import usual
from backends.simulated.serving.reading import Fields, ids_prompt, messages_of
from backends.simulated.serving.split import nixl
from backends.simulated.serving.split.nixl import version_of
from backends.simulated.serving.types import Json, Tally

SALT_FORBIDDEN: Final = frozenset("@/\\\0")
SALT_LENGTH: Final = 128
STRICT_SALTS: Final = (0, 30)
DETAILS_ALWAYS: Final = (0, 24)
CREATED_TOKENS: Final = (0, 27)
EVENT_SOURCES: Final = (0, 31)
FREE_PRIORITY: Final = (0, 32)
"""Seen to take any priority without the policy that heeds it; older ones were not tried, their sources refuse it."""


def _usage(site: Site, tallies: Sequence[Tally], moment: Moment) -> Json:
    usage = plain_usage(site, tallies, moment)
    version = version_of(site)
    if moment is Moment.RUNNING:
        return {**usage, "completion_tokens_details": None} if version >= DETAILS_ALWAYS else usage
    if moment is Moment.WHOLE:
        usage["completion_tokens_details"] = None
    cached = sum(one.cached_tokens for one in tallies)
    if not site.spec.reports_cached_tokens or (not cached and version < DETAILS_ALWAYS):
        return {**usage, "prompt_tokens_details": None}
    details: Json = {"cached_tokens": cached}
    if version >= CREATED_TOKENS:
        created = [one.created_tokens for one in tallies if one.created_tokens is not None]
        details["created_cache_tokens"] = sum(created) if created else None  # of chats alone
        details["multimodal_tokens"] = None
    if moment is Moment.LAST:  # of a stream: without what is null
        details = {name: value for name, value in details.items() if value is not None}
    return {**usage, "prompt_tokens_details": details}


def _check(site: Site, fields: Fields, headers: Mapping[str, str]) -> None:
    _check_salt(site, fields)
    check_sampling(fields)
    if (fields.number("n") or 1) > 1 and fields.real("temperature") == 0:
        raise Refused(400, f"n must be 1 when using greedy sampling, got {fields.number('n')}.")
    if fields.all.get("suffix"):
        raise Refused(400, "suffix is only supported for models with FIM completion rendering", param="suffix")
    if fields.all.get("messages") is not None:
        _check_messages(fields)
    if fields.number("priority") and version_of(site) < FREE_PRIORITY:
        raise Refused(400, f"Got priority {fields.number('priority')} but priority scheduling is not enabled.")
    if fields.mapping("stream_options") is not None and not fields.flag("stream"):
        raise fields.refuse("Stream options can only be defined when `stream=True`.", "stream_options")


def check_sampling(fields: Fields) -> None:
    """Temperature, top_p, top_k and min_tokens in their bounds; SGLang's are the same."""
    temperature, top_p, top_k = fields.real("temperature"), fields.real("top_p"), fields.number("top_k")
    if temperature is not None and temperature < 0:
        raise Refused(400, f"temperature must be non-negative, got {temperature}.", param="temperature")
    if top_p is not None and not 0 < top_p <= 1:
        raise Refused(400, f"top_p must be in (0, 1], got {top_p}.", param="top_p")
    if top_k is not None and top_k < -1:
        raise Refused(400, f"top_k must be 0 (disable), or at least 1, got {top_k}.")
    most, least = fields.number("max_completion_tokens") or fields.number("max_tokens"), fields.number("min_tokens")
    if most is not None and least is not None and least > most:
        raise Refused(400, f"min_tokens must be less than or equal to max_tokens={most}, got {least}.")


def _check_messages(fields: Fields) -> None:
    if fields.flag("continue_final_message") and fields.all.get("add_generation_prompt", True):
        raise Refused(400, "continue_final_message and add_generation_prompt are not compatible.")
    for message in messages_of(fields):
        if message.get("content") is None and message.get("role") != "assistant":
            raise fields.refuse("messages: content should be a valid string", "body.messages")


def _check_salt(site: Site, fields: Fields) -> None:
    salt = fields.text("cache_salt")
    if salt is None:
        return
    refused = not salt
    if version_of(site) >= STRICT_SALTS:
        refused = refused or len(salt) > SALT_LENGTH or not SALT_FORBIDDEN.isdisjoint(salt)
    if refused:
        raise fields.refuse(
            f"Parameter 'cache_salt' must be 1 to {SALT_LENGTH} characters without '@', '/', '\\' and NUL.",
            "cache_salt",
        )


def is_open(fields: Fields) -> bool:
    """`continue_final_message`, and a last message to go on with."""
    return fields.flag("continue_final_message") and bool(messages_of(fields))


def _models(site: Site) -> Reply:
    spec = site.spec
    names = (spec.model, *spec.aliases)
    items = [_model(site, name, None) for name in names] + [
        _model(site, name, spec.model) for name in site.adapters.known
    ]
    return Reply({"object": "list", "data": items})


def _model(site: Site, name: str, parent: str | None) -> Json:
    return {
        "id": name,
        "object": "model",
        "created": site.created,
        "owned_by": "vllm",
        "root": site.adapters.known.get(name, site.spec.model),
        "parent": parent,
        "max_model_len": site.spec.max_model_len if parent is None else None,
        "permission": [_permission(site, name)],
    }


def _permission(site: Site, name: str) -> Json:
    may = ("sampling", "logprobs", "view")
    rights = ("create_engine", "sampling", "logprobs", "search_indices", "view", "fine_tuning")
    return {
        "id": f"modelperm-{name}",
        "object": "model_permission",
        "created": site.created,
        **{f"allow_{right}": right in may for right in rights},
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


def _load(site: Site) -> Reply:
    samples = [site.runner.sample(rank) for rank in range(site.spec.ranks)]
    return Reply({"server_load": sum(one.running + one.waiting for one in samples)})


def _event_sources(site: Site) -> Reply:
    if version_of(site) < EVENT_SOURCES:
        raise Refused(404, "Not Found", kind="NotFoundError")
    return Reply({})


def _metrics(site: Site) -> Reply:
    runner, spec = site.runner, site.spec
    model = spec.model
    ranks = [(rank, {"engine": str(rank), "model_name": model}) for rank in range(spec.ranks)]
    samples = [runner.sample(rank) for rank, _ in ranks]
    totals = runner.totals
    labels = [one for _, one in ranks]
    page = [
        gauge("process_start_time_seconds", [({}, site.started_at_s)]),
        gauge("vllm:num_requests_running", zip(labels, (one.running for one in samples), strict=True)),
        gauge("vllm:num_requests_waiting", zip(labels, (one.waiting for one in samples), strict=True)),
        gauge("vllm:kv_cache_usage_perc", zip(labels, (one.kv_use for one in samples), strict=True)),
        counter("vllm:prefix_cache_queries", zip(labels, (one.prefix_queries for one in samples), strict=True)),
        counter("vllm:prefix_cache_hits", zip(labels, (one.prefix_hits for one in samples), strict=True)),
        counter(
            "vllm:external_prefix_cache_queries", zip(labels, (one.external_queries for one in totals), strict=True)
        ),
        counter("vllm:external_prefix_cache_hits", zip(labels, (one.external_tokens for one in totals), strict=True)),
        counter("vllm:prompt_tokens", zip(labels, (one.prompt_tokens for one in totals), strict=True)),
        counter("vllm:generation_tokens", zip(labels, (one.output_tokens for one in totals), strict=True)),
        counter(
            "vllm:num_preemptions",
            zip(labels, (engine.work.preemptions for engine in runner.engines), strict=True),
        ),
        counter(
            "vllm:request_success",
            [
                ({**label, "finished_reason": reason}, one.outcomes[reason])
                for label, one in zip(labels, totals, strict=True)
                for reason in ("stop", "length", "abort")
            ],
        ),
        histogram(
            "vllm:time_to_first_token_seconds",
            [(label, one.first_token_s, one.first_tokens) for label, one in zip(labels, totals, strict=True)],
        ),
        counter("vllm:nixl_num_kv_expired_reqs", [(label, site.depot.expired) for label in labels[:1]]),
        counter("vllm:nixl_num_failed_transfers", [(label, site.depot.refused) for label in labels[:1]]),
        gauge("vllm:cache_config_info", [(_cache_config(site, str(rank)), 1) for rank, _ in ranks]),
    ]
    if spec.adapters or site.adapters.known:
        page.append(gauge("vllm:lora_requests_info", [(_adapter_labels(site), time.time())]))
    return Reply("".join(page))


def _cache_config(site: Site, rank: str) -> dict[str, str]:
    engine = site.runner.spec
    return {
        "block_size": str(engine.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "num_gpu_blocks": str(engine.capacity_blocks),
        "prefix_caching_hash_algo": "sha256",
        "engine": rank,
    }


def _adapter_labels(site: Site) -> dict[str, str]:
    adapters = site.adapters
    return {
        "max_lora": str(adapters.most),
        "waiting_lora_adapters": ",".join(adapters.waiting),
        "running_lora_adapters": ",".join(adapters.running),
    }


async def _tokenize(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    model = fields.text("model")
    if model is not None and model not in (site.spec.model, *site.spec.aliases, *site.adapters.known):
        raise Refused(404, f"The model `{model}` does not exist.", kind="NotFoundError", param="model")
    if fields.all.get("messages") is not None:
        text = site.vocabulary.render(messages_of(fields), fields.all, is_open=is_open(fields))
    else:
        fields.required("prompt")
        text = fields.text("prompt") or ""
    tokens = site.vocabulary.encode(text)
    body: Json = {"count": len(tokens), "max_model_len": site.spec.max_model_len, "tokens": tokens, "token_strs": None}
    return Reply(body)


async def _detokenize(site: Site, raw: bytes) -> Reply:
    tokens = ids_prompt(Fields(raw), "tokens").ids
    return Reply({"prompt": site.vocabulary.decode(tokens)})


async def _load_adapter(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    name, path = str(fields.required("lora_name")), str(fields.required("lora_path"))
    if name in site.adapters.known and not fields.flag("load_inplace"):
        raise Refused(400, f"The lora adapter '{name}' has already been loaded.", kind="InvalidUserInput")
    site.adapters.add(name, path)
    return Reply(f"Success: LoRA adapter '{name}' added successfully.")


async def _unload_adapter(site: Site, raw: bytes) -> Reply:
    name = str(Fields(raw).required("lora_name"))
    if not site.adapters.remove(name):
        raise Refused(404, f"The lora adapter '{name}' cannot be found.", kind="NotFoundError")
    return Reply(f"Success: LoRA adapter '{name}' removed successfully.")


_FINGERPRINT: Final = "vllm-simulated"
_WHOLE: Final[Json] = {
    "service_tier": None,
    "system_fingerprint": _FINGERPRINT,
    "kv_transfer_params": None,
    "ec_transfer_params": None,
    "metrics": None,
}

VLLM = Face(
    name="vllm",
    version="0.32.0",
    error=nested_error,
    invalid_kind="Bad Request",
    pages={
        "/health": usual.health,
        "/ping": usual.health,
        "/version": usual.version,
        "/load": _load,
        "/v1/models": _models,
        "/metrics": _metrics,
        "/kv_event_sources": _event_sources,
    },
    posts={
        "/tokenize": _tokenize,
        "/detokenize": _detokenize,
        "/v1/load_lora_adapter": _load_adapter,
        "/v1/unload_lora_adapter": _unload_adapter,
    },
    check=_check,
    usage=_usage,
    is_open=is_open,
    salted=True,
    rank_header="x-data-parallel-rank",
    request_id_header=True,
    overload=Refused(503, "The server is overloaded: too many queued requests.", kind="ServiceUnavailableError"),
    leg=nixl.leg,
    hand_over=("nixl", nixl.hand_over),
    needs_json_type=True,
    tells_token_ids=True,
    shape=Shape(
        choice={"logprobs": None},
        first_top={"prompt_token_ids": None, "prompt_text": None},
        usage_top={"system_fingerprint": _FINGERPRINT},
        token={"token_ids": None},
        end={"stop_reason": None},
        message={"refusal": None, "annotations": None, "audio": None, "function_call": None, "reasoning": None},
        whole_choice={"stop_reason": None, "token_ids": None, "routed_experts": None},
        whole={**_WHOLE, "prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None},
        text_chunk={"prompt_token_ids": None},
        text_choice={
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        },
        text_whole=_WHOLE,
    ),
)
