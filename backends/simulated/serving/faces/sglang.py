"""SGLang 0.5: flat errors, a radix cache of single tokens, priority and salts, adapters as `base:adapter`.

Written after the engine's sources, not after recorded answers.
"""

from collections.abc import Mapping, Sequence

from backends.disaggregated import Role
from backends.simulated.serving.errors import Refused
from backends.simulated.serving.exposition import counter, gauge, histogram
from backends.simulated.serving.face import Face, Moment, Reply, Shape, Site, flat_error, plain_usage
from backends.simulated.serving.faces import usual
from backends.simulated.serving.faces.vllm import check_sampling
from backends.simulated.serving.reading import Fields, messages_of
from backends.simulated.serving.split import bootstrap
from backends.simulated.serving.types import Json, Tally
from backends.simulated.types import USUAL_CAPACITY_TOKENS, EngineSpec


def _usage(site: Site, tallies: Sequence[Tally], moment: Moment) -> Json:
    usage: Json = {**plain_usage(site, tallies, moment), "reasoning_tokens": 0, "prompt_tokens_details": None}
    if site.spec.reports_cached_tokens:
        usage["prompt_tokens_details"] = {"cached_tokens": sum(one.cached_tokens for one in tallies)}
    return usage


def _is_open(fields: Fields) -> bool:
    return fields.flag("continue_final_message") and messages_of(fields)[-1].get("role") == "assistant"


def _adapter(site: Site, fields: Fields) -> str | None:
    """`lora_path` in the body, else what stands behind the colon of `base:adapter`."""
    named = fields.text("lora_path")
    if named is None:
        _, colon, named = (fields.text("model") or "").partition(":")
        if not colon:
            return None
    if named not in site.adapters.known:
        raise Refused(400, f"The following requested LoRA adapters are not loaded: {named}", kind="BadRequest")
    return named


def _too_long(site: Site, prompt_tokens: int, asked_tokens: int) -> Refused:
    return Refused(
        400,
        f"The input ({prompt_tokens} tokens) and the requested output ({asked_tokens} tokens) are longer than the "
        f"model's context length ({site.spec.max_model_len} tokens).",
        kind="BadRequest",
    )


def _check(site: Site, fields: Fields, headers: Mapping[str, str]) -> None:
    fields.text("cache_salt")
    check_sampling(fields)
    rank = headers.get("x-data-parallel-rank")
    if rank is not None and not rank.isdigit():
        raise Refused(400, f"Invalid X-Data-Parallel-Rank header: {rank!r}", kind="BadRequest")


def _models(site: Site) -> Reply:
    spec = site.spec
    items = [
        {
            "id": name,
            "object": "model",
            "created": site.created,
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": spec.max_model_len,
        }
        for name in (spec.model, *spec.aliases)
    ]
    items += [
        {
            "id": name,
            "object": "model",
            "created": site.created,
            "owned_by": "sglang",
            "root": path,
            "parent": spec.model,
            "max_model_len": None,
        }
        for name, path in site.adapters.known.items()
    ]
    return Reply({"object": "list", "data": items})


def _server_info(site: Site) -> Reply:
    engine, spec = site.runner.spec, site.spec
    return Reply(
        {
            "model_path": spec.model,
            "served_model_name": spec.model,
            "page_size": engine.block_size,
            "dp_size": spec.ranks,
            "tp_size": 1,
            "context_length": spec.max_model_len,
            "max_total_num_tokens": engine.capacity_blocks * engine.block_size,
            "enable_cache_report": spec.reports_cached_tokens,
            "enable_metrics": spec.has_metrics,
            "disaggregation_mode": "null" if spec.role is Role.BOTH else str(spec.role),
            "disaggregation_bootstrap_port": site.channel.port or spec.bootstrap_port,
            "kv_events": None,
            "internal_states": [{} for _ in range(spec.ranks)],
            "version": site.version,
        }
    )


def _model_info(site: Site) -> Reply:
    return Reply({"model_path": site.spec.model, "tokenizer_path": site.spec.model, "is_generation": True})


def _loads(site: Site) -> Reply:
    engine, totals = site.runner.spec, site.runner.totals
    loads = []
    for rank in range(site.spec.ranks):
        sample = site.runner.sample(rank)
        loads.append(
            {
                "dp_rank": rank,
                "num_running_reqs": sample.running,
                "num_waiting_reqs": sample.waiting,
                "max_total_num_tokens": engine.capacity_blocks * engine.block_size,
                "token_usage": sample.kv_use,
                "total_prefill_uncached_tokens": totals[rank].prompt_tokens - totals[rank].cached_tokens,
            }
        )
    return Reply({"version": site.version, "loads": loads})


def _metrics(site: Site) -> Reply:
    runner, spec = site.runner, site.spec
    common = {"model_name": spec.model, "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
    ranks = [{**common, "dp_rank": str(rank)} for rank in range(spec.ranks)] if spec.ranks > 1 else [common]
    samples = [runner.sample(rank) for rank in range(spec.ranks)]
    totals, size = runner.totals, runner.spec.block_size
    front = {"model_name": spec.model, "engine_type": "unified"}
    cached = float(sum(one.cached_tokens for one in totals))
    page = [
        gauge("process_start_time_seconds", [({}, site.started_at_s)]),
        gauge("sglang:num_running_reqs", zip(ranks, (one.running for one in samples), strict=True)),
        gauge("sglang:num_queue_reqs", zip(ranks, (one.waiting for one in samples), strict=True)),
        gauge("sglang:token_usage", zip(ranks, (one.kv_use for one in samples), strict=True)),
        gauge("sglang:page_size", [(one, size) for one in ranks]),
        gauge("sglang:max_total_num_tokens", [(one, runner.spec.capacity_blocks * size) for one in ranks]),
        counter("sglang:prompt_tokens", [(front, sum(one.prompt_tokens for one in totals))]),
        counter("sglang:generation_tokens", [(front, sum(one.output_tokens for one in totals))]),
        counter(
            "sglang:cached_tokens",
            [({**front, "cache_source": "device"}, cached), ({**front, "cache_source": "total"}, cached)],
        ),
        counter("sglang:num_requests", [(front, sum(one.requests for one in totals))]),
        histogram(
            "sglang:time_to_first_token_seconds",
            [(front, sum(one.first_token_s for one in totals), sum(one.first_tokens for one in totals))],
        ),
    ]
    if site.adapters.known:
        page.append(gauge("sglang:lora_pool_slots_used", [(one, len(site.adapters.resident)) for one in ranks]))
        page.append(gauge("sglang:lora_pool_slots_total", [(one, site.adapters.most) for one in ranks]))
    return Reply("".join(page))


async def _tokenize(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    if fields.all.get("messages") is not None:
        text = site.vocabulary.render(messages_of(fields), fields.all, is_open=_is_open(fields))
    else:
        fields.required("prompt")
        text = fields.text("prompt") or ""
    tokens = site.vocabulary.encode(text)
    return Reply({"tokens": tokens, "count": len(tokens), "max_model_len": site.spec.max_model_len})


async def _load_adapter(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    name, path = str(fields.required("lora_name")), str(fields.required("lora_path"))
    is_new = name not in site.adapters.known
    if is_new:
        site.adapters.add(name, path)
    return _adapters_reply(site, is_new, f"LoRA adapter {name} is already loaded")


async def _unload_adapter(site: Site, raw: bytes) -> Reply:
    name = str(Fields(raw).required("lora_name"))
    return _adapters_reply(site, site.adapters.remove(name), f"LoRA adapter {name} is not loaded")


def _adapters_reply(site: Site, success: bool, message: str) -> Reply:
    body: Json = {
        "success": success,
        "error_message": "" if success else message,
        "loaded_adapters": dict(site.adapters.known),
    }
    return Reply(body, 200 if success else 400)


SGLANG = Face(
    name="sglang",
    version="0.5.23",
    bare_ids=True,
    rank_field="routed_dp_rank",
    error=flat_error,
    invalid_kind="BadRequest",
    engine=EngineSpec(block_size=1, capacity_blocks=USUAL_CAPACITY_TOKENS),
    pages={
        "/health": usual.health,
        "/ready": usual.health,
        "/v1/models": _models,
        "/server_info": _server_info,
        "/get_server_info": _server_info,
        "/model_info": _model_info,
        "/get_model_info": _model_info,
        "/v1/loads": _loads,
        "/metrics": _metrics,
    },
    posts={
        "/tokenize": _tokenize,
        "/v1/tokenize": _tokenize,
        "/load_lora_adapter": _load_adapter,
        "/unload_lora_adapter": _unload_adapter,
    },
    check=_check,
    knows_models=False,
    usage=_usage,
    is_open=_is_open,
    adapter=_adapter,
    too_long=_too_long,
    salted=True,
    needs_json_type=True,
    tells_token_ids=True,
    rank_header="x-data-parallel-rank",
    guarded=("/",),
    overload=Refused(503, "The request queue is full.", kind="ServiceUnavailable"),
    leg=bootstrap.leg,
    hand_over=("room", bootstrap.hand_over),
    shape=Shape(
        role={"role": "assistant", "content": "", "reasoning_content": None, "tool_calls": None},
        ends_alone=True,
        delta={"reasoning_content": None, "tool_calls": None},
        end_delta={"role": None, "content": None, "reasoning_content": None, "tool_calls": None},
        choice={"logprobs": None, "matched_stop": None},
        message={"reasoning_content": None, "tool_calls": None},
        whole={"metadata": {"weight_version": "default"}},
    ),
)
