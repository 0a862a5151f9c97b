"""Which of the configured adapters nobody can have, going by what endpoints serve now. Pure."""

from collections.abc import Iterator, Sequence

from backends import EndpointSnapshot, ServedModel
from gateway.adapter_config import Adapter


def unserved_adapters(known: Sequence[Adapter], endpoints: Sequence[EndpointSnapshot]) -> list[str]:
    """In words, for `prefixgate check`: adapters that none of their endpoints serves, and why."""
    return [f"adapters.known: {one.name}: {said}" for one in known for said in _of(one, endpoints)]


def _of(adapter: Adapter, endpoints: Sequence[EndpointSnapshot]) -> Iterator[str]:
    named = [model for endpoint in endpoints for model in _models(endpoint) if model.id == adapter.name]
    if any(model.parent == adapter.model for model in named):
        return
    if named:
        yield "a backend has another model of that name"
        return
    missing = set(adapter.backends or ()) - {endpoint.id for endpoint in endpoints}
    if missing:
        yield f"there is no backend {', '.join(sorted(missing))}"
        return
    where = "no TensorRT-LLM and no llama.cpp" if adapter.backends is None else "none of its backends"
    yield f"{where} serves the model {adapter.model}"


def _models(endpoint: EndpointSnapshot) -> tuple[ServedModel, ...]:
    return () if endpoint.facts is None else endpoint.facts.models
