"""Ollama's OpenAI routes beside its own pages: models by name and tag, nothing told of caches or load.

Written after the program's documentation, not after recorded answers. A prompt that is too long is cut, not refused.
"""

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.face import Face, Reply, Shape, Site
from backends.simulated.serving.faces import usual
from backends.simulated.serving.reading import Fields
from backends.simulated.serving.types import Json
from backends.simulated.types import EngineSpec

_KINDS = {400: "invalid_request_error", 404: "not_found_error"}


def full_name(model: str) -> str:
    """`name:tag`, whose tag is `latest` where none is given."""
    return model if ":" in model else f"{model}:latest"


def _error(refused: Refused) -> Json:
    kind = _KINDS.get(refused.status, "api_error")
    return {"error": {"message": refused.message, "type": kind, "param": None, "code": None}}


def _no_route(status: int) -> Reply:
    return Reply("404 page not found", 404)


def _models(site: Site) -> Reply:
    return usual.models(site, "library", map(full_name, (site.spec.model, *site.spec.aliases)))


def _tags(site: Site) -> Reply:
    return Reply({"models": [_tag(name) for name in (site.spec.model, *site.spec.aliases)]})


def _running(site: Site) -> Reply:
    """Models in memory: one comes there with its first request."""
    if not any(one.requests for one in site.runner.totals):
        return Reply({"models": []})
    return Reply({"models": [{**_tag(site.spec.model), "context_length": site.spec.max_model_len, "size_vram": 0}]})


def _tag(model: str) -> Json:
    details: Json = {"format": "gguf", "family": "llama", "parameter_size": "8.0B", "quantization_level": "Q4_K_M"}
    return {"name": full_name(model), "model": full_name(model), "size": 0, "digest": "0" * 64, "details": details}


def _root(site: Site) -> Reply:
    return Reply("Ollama is running")


async def _show(site: Site, raw: bytes) -> Reply:
    fields = Fields(raw)
    model = fields.text("model") or fields.text("name") or ""
    if full_name(model) not in {full_name(name) for name in (site.spec.model, *site.spec.aliases)}:
        return Reply({"error": f"model '{model}' not found"}, 404)
    info = {"general.architecture": "llama", "llama.context_length": site.spec.max_model_len}
    return Reply({"model_info": info, "details": _tag(model)["details"], "capabilities": ["completion"]})


OLLAMA = Face(
    name="ollama",
    version="0.14.2",
    error=_error,
    engine=EngineSpec(block_size=1, capacity_blocks=8192 * 4, max_running=4),
    has_slots=True,
    headers=(),
    json_type="application/json; charset=utf-8",
    pages={"/": _root, "/v1/models": _models, "/api/tags": _tags, "/api/ps": _running, "/api/version": usual.version},
    posts={"/api/show": _show},
    completion_tokens=None,
    too_long=None,
    is_lax=False,
    no_route=_no_route,
    model_key=full_name,
    overload=Refused(503, "server busy, please try again.  maximum pending requests exceeded"),
    shape=Shape(
        role=None,
        ends_alone=True,
        delta={"role": "assistant"},
        end_delta={"role": "assistant", "content": ""},
        top={"system_fingerprint": "fp_ollama"},
        whole={"system_fingerprint": "fp_ollama"},
    ),
)
