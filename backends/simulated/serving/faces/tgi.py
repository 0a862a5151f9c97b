"""Hugging Face's text-generation-inference 3.3: no cached tokens anywhere, 422 for what makes no sense, 429 when full.

Written after the engine's documentation, not after recorded answers.
"""

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.exposition import gauge, histogram, metric
from backends.simulated.serving.face import Face, Reply, Shape, Site
from backends.simulated.serving.reading import Fields, chat_prompt
from backends.simulated.serving.types import Json
from backends.simulated.types import USUAL_CAPACITY_TOKENS, EngineSpec


def _error(refused: Refused) -> Json:
    return {"error": refused.message, "error_type": refused.kind}


def _no_route(status: int) -> Reply:
    return Reply(status=status)


def _too_long(site: Site, prompt_tokens: int, asked_tokens: int) -> Refused:
    return Refused(
        422,
        f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {site.spec.max_model_len}. Given: "
        f"{prompt_tokens} `inputs` tokens and {asked_tokens} `max_new_tokens`",
        kind="validation",
    )


def _adapter(site: Site, fields: Fields) -> str | None:
    """`adapter_id`, else the model where it is an adapter's name."""
    named = fields.text("adapter_id") or fields.text("model")
    return named if named in site.adapters.known else None


def _health(site: Site) -> Reply:
    if site.faults.not_ready:
        return Reply({"error": "unhealthy", "error_type": "healthcheck"}, 503)
    return Reply()


def _models(site: Site) -> Reply:
    model = site.spec.model
    return Reply({"object": "list", "data": [{"id": model, "object": "model", "created": 0, "owned_by": model}]})


def _info(site: Site) -> Reply:
    return Reply(
        {
            "model_id": site.spec.model,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": site.runner.spec.max_running,
            "max_best_of": 2,
            "max_stop_sequences": 4,
            "max_input_tokens": site.spec.max_model_len - 1,
            "max_total_tokens": site.spec.max_model_len,
            "max_client_batch_size": 4,
            "router": "text-generation-router",
            "version": site.version,
            "sha": None,
            "docker_label": None,
        }
    )


def _metrics(site: Site) -> Reply:
    runner = site.runner
    samples = [runner.sample(rank) for rank in range(site.spec.ranks)]
    totals, engine = runner.totals, runner.spec
    done = sum(one.outcomes["stop"] + one.outcomes["length"] for one in totals)
    return Reply(
        gauge("tgi_queue_size", [({}, sum(one.waiting for one in samples))])
        + gauge("tgi_batch_current_size", [({}, sum(one.running for one in samples))])
        + gauge("tgi_batch_max_total_tokens", [({}, engine.capacity_blocks * engine.block_size)])
        + metric("tgi_request_count", "counter", [({}, sum(one.requests for one in totals))])
        + metric("tgi_request_success", "counter", [({}, done)])
        + histogram("tgi_request_generated_tokens", [({}, sum(one.output_tokens for one in totals), done)])
        + histogram("tgi_request_input_length", [({}, sum(one.prompt_tokens for one in totals), done)])
    )


async def _tokenize(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw, 422, "validation")
    fields.required("inputs")
    return Reply(_tokens(site, fields.text("inputs") or ""))


async def _chat_tokenize(site: Site, raw: bytes) -> Reply:
    text = chat_prompt(Fields(raw, 422, "validation"), site.vocabulary, is_open=False).text or ""
    return Reply({"tokenize_response": _tokens(site, text), "templated_text": text})


def _tokens(site: Site, text: str) -> list[Json]:
    tokens: list[Json] = []
    at = 0
    for one in site.vocabulary.encode(text):
        piece = site.vocabulary.decode([one])
        tokens.append({"id": one, "text": piece, "start": at, "stop": at + len(piece)})
        at += len(piece)
    return tokens


TGI = Face(
    name="tgi",
    version="3.3.7",
    error=_error,
    engine=EngineSpec(block_size=1, capacity_blocks=USUAL_CAPACITY_TOKENS, max_running=128),
    headers=(),
    pages={"/health": _health, "/ping": _health, "/v1/models": _models, "/info": _info, "/metrics": _metrics},
    posts={"/tokenize": _tokenize, "/chat_tokenize": _chat_tokenize},
    invalid_status=422,
    invalid_kind="validation",
    knows_models=False,
    is_lax=False,
    no_route=_no_route,
    too_long=_too_long,
    adapter=_adapter,
    completion_tokens=None,
    guarded=("/v1", "/generate"),
    overload=Refused(429, "Model is overloaded", kind="overloaded"),
    shape=Shape(
        role=None,
        delta={"role": "assistant"},
        choice={"logprobs": None},
        top={"system_fingerprint": "3.3.7-simulated", "usage": None},
        whole={"system_fingerprint": "3.3.7-simulated"},
    ),
)
