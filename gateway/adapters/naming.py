"""Which adapter a request is for, however its client says so. Pure.

    "model": "sql"                                    as every engine's `/v1/models` names it      kept as it is
    "model": "base:sql"                               SGLang's second way                       ┐  the model `sql`
    "model": "base", "lora_path": "sql"               SGLang's first                            ┘
    "model": "base", "lora_request": {..., "lora_path": "/a/file"}      TensorRT-LLM's          refused
    "model": "sql", "lora_path": "law"                two adapters, or two fields               refused
    "lora": [{"id": 0, "scale": 0.5}]                 numbers of adapters that have names       refused
    "lora": [...], "adapter_id", ...                  others, and names that nobody lists       part of the root

An adapter is a model to whoever asks, pays or is let in: so the one that a field names is billed, limited and allowed
as the model of that name, and has its prefixes in common with who names it so. What could be read as another one than
the one that is billed is refused, since engines differ in what they follow. TensorRT-LLM's field names a directory on
the engine's machine: that is the operator's to say (`adapters.known`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import msgspec

from backends import ServedModel
from gateway.errors import BadRequest, Forbidden
from gateway.types import InferenceRequest, Routed

SEPARATOR = ":"
"""Between a model and its adapter, in SGLang's names."""


Served = Callable[[str], ServedModel | None]
"""What the fleet serves by a name."""


def named(request: InferenceRequest, served: Served, numbered: Collection[str] = ()) -> InferenceRequest:
    """The request with its adapter as its model, where the fleet lists one of that name; `numbered` are the models
    whose adapters have names for their numbers. O(1).

    Raises `BadRequest` for a field that names files of the engine, or another adapter than the one that would be
    billed; `Forbidden` where the key is not for the adapter.
    """
    base, name = _parts(request.model, served)
    path = None
    if request.adapter is not None:
        said = msgspec.json.decode(request.adapter, type=dict[str, object])
        _must_be_for_clients(said, numbered=_in_full(base, served) in numbered)
        path = said.get("lora_path")
        if isinstance(path, list) or (isinstance(path, str) and (name or adapter_of(path, served)) is not None):
            if len(said) > 1 or name not in (None, path) or isinstance(path, list) or not _is_of(base, path, served):
                raise BadRequest("name one adapter, as the model, and no other beside it", param="lora_path")
            request = replace(request, adapter=None, steering=request.steering | {"lora_path"})  # said in our words
            name = path
    return request if name is None else _as(request, name)


def adapter_of(model: str, served: Served) -> str | None:
    """The adapter that prompts for a model need at their engine, of those that the fleet lists; None where they need
    none. O(1).

    What only a field of the client's names is none: engines that know no such adapter refuse it, or take no notice.
    """
    found = served(model)
    return None if found is None or found.parent is None else model


def adapter_meant(model: str, served: Served) -> str | None:
    """The adapter that a model's name means, as it is listed; None where it means none. O(1)."""
    return _parts(model, served)[1]


def _must_be_for_clients(said: Mapping[str, object], *, numbered: bool) -> None:
    """Raises `BadRequest` for what only an operator may say of an adapter."""
    if "lora_request" in said:
        raise BadRequest(
            "`lora_request` names a directory of the engine, which is not for clients to say: name the adapter as the "
            "model",
            param="lora_request",
        )
    if "lora" in said and numbered:
        raise BadRequest("the adapters of this model have names: name one as the model, without `lora`", param="lora")


def _parts(model: str, served: Served) -> tuple[str, str | None]:
    """The model that a name is for, and the adapter of it that it names, if it does."""
    found = served(model)
    if found is not None:
        return (model, None) if found.parent is None else (found.parent, model)
    base, _, name = model.partition(SEPARATOR)
    return (base, name) if _is_of(base, name, served) else (model, None)


def _is_of(base: str, name: str, served: Served) -> bool:
    """Whether an adapter of this name is listed, and is one of the model's."""
    found = served(name)
    return found is not None and found.parent is not None and found.parent == _in_full(base, served)


def _in_full(base: str, served: Served) -> str:
    found = served(base)
    return base if found is None or found.alias_of is None else found.alias_of


def _as(request: InferenceRequest, name: str) -> InferenceRequest:
    if request.model == name:
        return request
    scopes = request.tenant.scopes
    if scopes is not None and not scopes.allow_model(name):
        raise Forbidden(f"this API key is not for the model {name[:100]!r}", param="model")
    routed = request.routed or Routed(asked=request.model)
    return replace(request, model=name, routed=routed)
