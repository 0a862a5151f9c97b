"""llama.cpp's `llama-server`: slots instead of blocks, a connection for each answer, timings beside usage.

Written after recorded answers of a build of late 2026. A last message of the assistant is gone on with, always.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.exposition import counter, gauge
from backends.simulated.serving.face import Face, Reply, Shape, Site
from backends.simulated.serving.faces.usual import usage_with_cached
from backends.simulated.serving.reading import Fields, chat_prompt, ids_prompt, messages_of
from backends.simulated.serving.types import Json, Tally
from backends.simulated.types import EngineSpec

_FINGERPRINT: Final = "b0-simulated"
_SHORTEST_MS: Final = 1e-6
"""Of what took no time at all, so that nothing is divided by 0."""


def _error(refused: Refused) -> Json:
    kinds = {401: "authentication_error", 404: "not_found_error", 500: "server_error", 501: "not_supported_error"}
    kind = kinds.get(refused.status, "unavailable_error" if refused.status == 503 else "invalid_request_error")
    if refused.kind == "exceed_context_size_error":
        kind = refused.kind
    return {"error": {"code": refused.status, "message": refused.message, "type": kind, **refused.more}}


def _no_route(status: int) -> Reply:
    return Reply(_error(Refused(404, "File Not Found")), 404)


def _timings(site: Site, tallies: Sequence[Tally]) -> Json:
    one = tallies[0]
    prompt_n = one.prompt_tokens - one.cached_tokens
    prompt_ms = (one.first_s - one.asked_s) * 1000
    predicted_ms = max((one.last_s - one.first_s) * 1000, _SHORTEST_MS)
    return {
        "timings": {
            "cache_n": one.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / max(prompt_n, 1),
            "prompt_per_second": prompt_n / max(prompt_ms, _SHORTEST_MS) * 1000,
            "predicted_n": one.output_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(one.output_tokens, 1),
            "predicted_per_second": one.output_tokens / predicted_ms * 1000,
        }
    }


def _too_long(site: Site, prompt_tokens: int, asked_tokens: int) -> Refused:
    most = site.spec.max_model_len
    return Refused(
        400,
        f"request ({prompt_tokens} tokens) exceeds the available context size ({most} tokens), try increasing it",
        kind="exceed_context_size_error",
        n_prompt_tokens=prompt_tokens,
        n_ctx=most,
    )


def _is_open(fields: Fields) -> bool:
    messages = messages_of(fields)
    if messages[-1].get("role") != "assistant":
        return False
    if len(messages) > 1 and messages[-2].get("role") == "assistant":
        raise fields.refuse("Cannot have 2 or more assistant messages at the end of the list.", "messages")
    return True


def _check(site: Site, fields: Fields, headers: Mapping[str, str]) -> None:
    if fields.all.get("messages") is None and fields.all.get("prompt") is None:
        missing = "'messages' is required" if "prompt" not in fields.all else '"prompt" must be set'
        raise fields.refuse(missing, "messages")
    choices, slots = fields.number("n") or 1, site.runner.spec.max_running
    if choices > slots:
        raise fields.refuse(f"Field 'n': Value must be between 1 <= value <= {slots}, but got {choices}", "n")
    is_chat = fields.all.get("messages") is not None
    if is_chat and fields.flag("continue_final_message") and fields.all.get("add_generation_prompt", True):
        raise fields.refuse(
            "Cannot set both add_generation_prompt and continue_final_message to true.", "continue_final_message"
        )
    messages = fields.all.get("messages")
    if isinstance(messages, list) and any(isinstance(one, dict) and "role" not in one for one in messages):
        raise Refused(500, "Failed to parse messages: Missing 'role' in message")


def _adapter(site: Site, fields: Fields) -> str | None:
    """`lora: [{id, scale}]`: the first with a scale above 0; ids that are not there are passed over."""
    asked = fields.all.get("lora")
    if asked is None:
        return None
    if not isinstance(asked, list):
        raise fields.refuse('Field "lora" must be an array of objects', "lora")
    names = list(site.adapters.known)
    for one in asked:
        number = one.get("id") if isinstance(one, dict) else None
        if isinstance(number, int) and 0 <= number < len(names) and one.get("scale", 0) > 0:
            return names[number]
    return None


def _health(site: Site) -> Reply:
    if site.faults.not_ready:
        raise Refused(503, "Loading model")
    return Reply({"status": "ok"})


def _models(site: Site) -> Reply:
    spec = site.spec
    meta = {"n_ctx": spec.max_model_len, "n_ctx_train": spec.max_model_len}
    item: Json = {
        "id": spec.model,
        "aliases": [spec.model, *spec.aliases],
        "tags": [],
        "object": "model",
        "created": site.created,
        "owned_by": "llamacpp",
        "meta": meta,
    }
    return Reply({"models": [{"name": spec.model, "model": spec.model}], "object": "list", "data": [item]})


def _props(site: Site) -> Reply:
    return Reply(
        {
            "default_generation_settings": {"params": {}, "n_ctx": site.spec.max_model_len},
            "total_slots": site.runner.spec.max_running,
            "model_alias": site.spec.model,
            "model_path": f"{site.spec.model}.gguf",
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": site.spec.has_metrics,
            "build_info": site.version,
            "is_sleeping": False,
        }
    )


def _slots(site: Site) -> Reply:
    """Those at work come first; their tasks are numbered from the start of the process on."""
    running, latest = site.runner.sample(0).running, site.runner.totals[0].requests
    numbers = range(site.runner.spec.max_running)
    tasks = {0: latest} if latest else {}
    return Reply(
        [
            {
                "id": number,
                "n_ctx": site.spec.max_model_len,
                "is_processing": number < running,
                "id_task": tasks.get(number, -1),
            }
            for number in numbers
        ]
    )


def _metrics(site: Site) -> Reply:
    runner = site.runner
    totals, sample = runner.totals[0], runner.sample(0)
    computed = totals.prompt_tokens - totals.cached_tokens
    return Reply(
        counter("llamacpp:prompt_tokens", [({}, computed)])
        + counter("llamacpp:prompt_tokens_cached", [({}, totals.cached_tokens)])
        + counter("llamacpp:prompt_seconds", [({}, totals.first_token_s)])
        + counter("llamacpp:tokens_predicted", [({}, totals.output_tokens)])
        + counter("llamacpp:tokens_predicted_seconds", [({}, totals.decode_s)])
        + gauge("llamacpp:requests_processing", [({}, sample.running)])
        + gauge("llamacpp:requests_deferred", [({}, sample.waiting + runner.deferred)])
    )


def _adapters(site: Site) -> Reply:
    known = site.adapters.known.items()
    return Reply([{"id": number, "path": path, "scale": 1.0} for number, (_, path) in enumerate(known)])


async def _tokenize(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    tokens = site.vocabulary.encode(fields.text("content") or "")
    if fields.flag("with_pieces"):
        return Reply({"tokens": [{"id": one, "piece": site.vocabulary.decode([one])} for one in tokens]})
    return Reply({"tokens": tokens})


async def _detokenize(site: Site, raw: bytes) -> Reply:
    return Reply({"content": site.vocabulary.decode(ids_prompt(Fields(raw), "tokens").ids)})


async def _apply_template(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    return Reply({"prompt": chat_prompt(fields, site.vocabulary, is_open=_is_open(fields)).text})


LLAMACPP = Face(
    name="llamacpp",
    version="b0-simulated",
    error=_error,
    engine=EngineSpec(block_size=1, capacity_blocks=8192 * 4, max_running=2),
    has_slots=True,
    headers=(("server", "llama.cpp"), ("connection", "close")),
    json_type="application/json; charset=utf-8",
    pages={
        "/health": _health,
        "/v1/health": _health,
        "/v1/models": _models,
        "/props": _props,
        "/slots": _slots,
        "/metrics": _metrics,
        "/lora-adapters": _adapters,
    },
    posts={"/tokenize": _tokenize, "/detokenize": _detokenize, "/apply-template": _apply_template},
    check=_check,
    knows_models=False,
    usage=usage_with_cached,
    is_lax=False,
    no_route=_no_route,
    beside=_timings,
    is_open=_is_open,
    too_long=_too_long,
    adapter=_adapter,
    completion_tokens=None,
    unauthorized={"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}},
    shape=Shape(
        role={"role": "assistant", "content": None},
        ends_alone=True,
        top={"system_fingerprint": _FINGERPRINT},
        whole={"system_fingerprint": _FINGERPRINT},
        text_chunk={"logprobs": None},
        text_choice={"logprobs": None},
        text_whole={"system_fingerprint": _FINGERPRINT},
    ),
)
