"""What of the configured names leads nowhere, going by what endpoints serve now. Pure."""

from collections.abc import Iterator, Sequence

from backends import EndpointSnapshot
from gateway.model_routes.types import ModelRoute
from gateway.served_models import serves
from gateway.types import Routed


def unserved(routes: Sequence[ModelRoute], endpoints: Sequence[EndpointSnapshot]) -> list[str]:
    """In words, for `prefixgate check`: arms and fallbacks whose model no endpoint serves, or none of their own."""
    return [f"model_routes: {route.name}: {said}" for route in routes for said in _of(route, endpoints)]


def _of(route: ModelRoute, endpoints: Sequence[EndpointSnapshot]) -> Iterator[str]:
    for arm in route.arms:
        there = [endpoint for endpoint in endpoints if serves(endpoint, arm.model)]
        routed = Routed(route.name, endpoints=arm.endpoints)
        if not there:
            yield f"arm {arm.name}: no backend serves the model {arm.model}"
        elif not any(routed.allow_endpoint(endpoint.id) for endpoint in there):
            yield f"arm {arm.name}: none of its endpoints serves the model {arm.model}"
    for model in route.fallbacks:
        if not any(serves(endpoint, model) for endpoint in endpoints):
            yield f"fallback {model}: no backend serves it"
