"""Which adapter a request is for, however its client says so. Pure.

    "model": "sql"                                    as every engine's `/v1/models` names it      kept as it is
    "model": "base:sql"                               SGLang's second way                       ┐  the model `sql`
    "model": "base", "lora_path": "sql"               SGLang's first                            ┘
    "model": "base", "lora_request": {..., "lora_path": "/a/file"}      TensorRT-LLM's          refused
    "lora": [{"id": 0, "scale": 0.5}], ...            others, and names that nobody lists       part of the root

An adapter is a model to whoever asks, pays or is let in: so the one that a field names is billed, limited and allowed
as the model of that name, and has its prefixes in common with who names it so. TensorRT-LLM's field names a directory
on the engine's machine: that is the operator's to say (`adapters.known`).
"""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from backends import ServedModel
from gateway.errors import BadRequest, Forbidden
from gateway.types import InferenceRequest, Routed

SEPARATOR = ":"
"""Between a model and its adapter, in SGLang's names."""


Served = Callable[[str], ServedModel | None]
"""What the fleet serves by a name."""


def named(request: InferenceRequest, served: Served) -> InferenceRequest:
    """The request with its adapter as its model, where the fleet lists one of that name.

    Raises `BadRequest` for a field that names files of the engine, `Forbidden` where the key is not for the adapter.
    """
    if request.adapter is None:
        base, _, name = request.model.partition(SEPARATOR)
        if not name or served(request.model) is not None:
            return request
        return _as(request, name, base, served)
    said = msgspec.json.decode(request.adapter, type=dict[str, object])
    if "lora_request" in said:
        raise BadRequest(
            "`lora_request` names a directory of the engine, which is not for clients to say: name the adapter as the "
            "model",
            param="lora_request",
        )
    path = said.get("lora_path") if len(said) == 1 else None
    return _as(request, path, request.model, served) if isinstance(path, str) else request


def adapter_of(request: InferenceRequest, served: Served) -> str | None:
    """A name for the adapter that the request needs at its engine; None where it needs none. O(1)."""
    if request.adapter is not None:
        return request.adapter
    found = served(request.model)
    return None if found is None or found.parent is None else request.model


def _as(request: InferenceRequest, name: str, base: str, served: Served) -> InferenceRequest:
    found = served(name)
    if found is None or found.parent is None or found.parent != _in_full(base, served):
        return request
    scopes = request.tenant.scopes
    if scopes is not None and not scopes.allow_model(name):
        raise Forbidden(f"this API key is not for the model {name[:100]!r}", param="model")
    routed = request.routed or Routed(asked=request.model)
    return replace(request, model=name, adapter=None, routed=routed)


def _in_full(base: str, served: Served) -> str:
    found = served(base)
    return base if found is None or found.alias_of is None else found.alias_of
