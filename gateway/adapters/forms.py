"""How each engine is told of an adapter. Pure.

vLLM, TGI, others   "model": "sql"                                      as the client's bytes have it
SGLang              and "lora_path": "sql"                              it takes no notice of a model's name alone;
                    on other routes than these: "model": "base:sql"     chat completions and completions
TensorRT-LLM        "model": "base", "lora_request": {...}              a directory and a number from `adapters`
llama.cpp           "model": "base", "lora": [{"id": 0, "scale": 1}]    a number and a scale from there
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from gateway.adapters.naming import SEPARATOR
from gateway.types import Route

_LORA_PATH_ROUTES: Final = frozenset({Route.CHAT.value, Route.COMPLETIONS.value, Route.EMBEDDINGS.value})


UNLISTING: Final = frozenset({"trtllm", "llamacpp"})
"""Engines that do not list the adapters that they have."""


class Described(Protocol):
    """What the configuration says of an adapter."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def number(self) -> int | None: ...
    @property
    def scale(self) -> float: ...


class AdapterForm(msgspec.Struct, frozen=True):
    """The model's name as the engine is to have it, and fields, as JSON, that go with it."""

    model: str
    fields: Mapping[str, bytes] = {}


def forms_of(known: Iterable[Described]) -> Mapping[str, Mapping[str, dict[str, bytes]]]:
    """For each engine that must be told more than a name, the fields of each adapter by its name."""
    trtllm, llamacpp = {}, {}
    for one in known:
        if one.path is not None and one.number is not None:
            request = {"lora_name": one.name, "lora_int_id": one.number, "lora_path": one.path}
            trtllm[one.name] = {"lora_request": msgspec.json.encode(request)}
        if one.number is not None:
            llamacpp[one.name] = {"lora": msgspec.json.encode([{"id": one.number, "scale": one.scale}])}
    return {"trtllm": trtllm, "llamacpp": llamacpp}


def form_at(
    engine: str, adapter: str, base: str, path: str, forms: Mapping[str, Mapping[str, dict[str, bytes]]]
) -> AdapterForm | None:
    """How an engine is told of an adapter of `base` on a path; None where its name as the model is all it needs."""
    if engine == "sglang":
        if path in _LORA_PATH_ROUTES:
            model = base if SEPARATOR in adapter else adapter  # it would take what is behind the first for an adapter
            return AdapterForm(model, {"lora_path": msgspec.json.encode(adapter)})
        return AdapterForm(f"{base}:{adapter}")
    fields = forms.get(engine, {}).get(adapter)
    return None if fields is None else AdapterForm(base, fields)
