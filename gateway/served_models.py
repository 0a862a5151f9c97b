"""Which endpoints serve which models, going by what they say. Pure functions over a snapshot of the fleet."""

import math
from collections.abc import Iterable, Sequence

from backends import EndpointFacts, EndpointSnapshot, NoEndpoint, ServedModel
from gateway.errors import BadRequest, ModelNotFound

DEFAULT_BLOCK_TOKENS = 16
"""Tokens a block where no engine says: vLLM's default."""


def serves(endpoint: EndpointSnapshot, model: str) -> bool:
    """Whether the endpoint answers to this model name."""
    if endpoint.facts is None:
        return False
    for served in endpoint.facts.models:  # noqa: SIM110 - `any` takes 0.4 µs more, and a fleet may be 500
        if served.id == model:
            return True
    return False


def serving(endpoints: Sequence[EndpointSnapshot], model: str) -> list[EndpointSnapshot]:
    """Endpoints known to serve `model`, up or down; never empty. O(endpoints × models).

    Raises `ModelNotFound` where endpoints are known and none serves it, `NoEndpoint` where none is known yet.
    """
    found = [endpoint for endpoint in endpoints if serves(endpoint, model)]
    if found:
        return found
    if all(endpoint.facts is None for endpoint in endpoints):
        raise NoEndpoint(model)
    raise ModelNotFound(
        f"no backend serves the model {model[:100]!r}; GET /v1/models lists those served", param="model"
    )


def only_model(endpoints: Iterable[EndpointSnapshot]) -> str:
    """The only model there is, adapters apart.

    Raises `BadRequest` where there are several, `NoEndpoint` where none is known yet.
    """
    known = [e.facts.models for e in endpoints if e.facts is not None and not e.leaving]
    names = {model.id for models in known for model in models if model.parent is None and model.alias_of is None}
    if not known:
        raise NoEndpoint("")
    if len(names) != 1:
        raise BadRequest("name a model: the backends serve several", param="model")
    return names.pop()


def models_of(endpoints: Iterable[EndpointSnapshot]) -> dict[str, ServedModel]:
    """Every model that an endpoint which takes requests serves, by name."""
    found: dict[str, ServedModel] = {}
    for endpoint in endpoints:
        if (endpoint.healthy or endpoint.last_resort) and endpoint.facts is not None:
            for model in endpoint.facts.models:
                found.setdefault(model.id, model)
    return found


def sharing_models(endpoints: Iterable[EndpointSnapshot], facts: EndpointFacts) -> list[EndpointSnapshot]:
    """Endpoints that serve a model which is among those of `facts`. O(models of all), which may be thousands."""
    models = {model.id for model in facts.models}
    return [one for one in endpoints if one.facts and not models.isdisjoint(model.id for model in one.facts.models)]


def common_block_size(endpoints: Iterable[EndpointSnapshot]) -> int:
    """Tokens a block that suit all of them: the greatest common divisor of their own; single tokens suit any."""
    sizes = [e.facts.block_size for e in endpoints if e.facts is not None and (e.facts.block_size or 1) > 1]
    return math.gcd(*(size for size in sizes if size)) if sizes else DEFAULT_BLOCK_TOKENS
