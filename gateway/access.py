"""What a key may use, and what is said where nobody can serve a request."""

from backends import EndpointSnapshot
from gateway.errors import BadRequest, Forbidden, GatewayError, NotFound
from gateway.types import InferenceRequest


def allowed(request: InferenceRequest, endpoints: list[EndpointSnapshot]) -> list[EndpointSnapshot]:
    """Those of the endpoints that the key may use. Raises `Forbidden` where it is not for the model, or for none."""
    scopes = request.tenant.scopes
    if scopes is None:
        return endpoints
    if not scopes.allow_model(request.model):
        raise Forbidden(f"this API key is not for the model {request.model[:100]!r}", param="model")
    if scopes.models is not None and request.adapter is not None:  # it would be another model by another name
        raise Forbidden("this API key is for certain models: name an adapter as the model, not in a field of its own")
    found = [endpoint for endpoint in endpoints if scopes.allow_endpoint(endpoint.id)]
    if not found:
        raise Forbidden(f"this API key is for no endpoint that serves {request.model[:100]!r}", param="model")
    return found


def spoken_by_nobody(request: InferenceRequest) -> GatewayError:
    """What a client is told of whose dialect, or wish, no engine of the model knows anything."""
    field = request.foreign.untranslatable if request.foreign is not None else None
    if field is None:
        return NotFound(f"no backend of this model takes {request.route_path}")
    if field == "max_tokens":
        return BadRequest("Object missing required field `max_tokens`", param=field)
    return BadRequest(f"no backend of this model can do this: {field}", param=field)
