"""What a key may use, and what is said where nobody can serve a request."""

from typing import Final

from backends import EndpointSnapshot, NoEndpoint
from gateway.errors import BadRequest, ContextTooLong, EndpointBusy, Forbidden, GatewayError, NotFound, UpstreamFailed
from gateway.types import InferenceRequest, Plan, Trouble

BUSY_STATUS: Final = 429
"""An engine that takes no more for now (TGI), or another's gateway: no fault, and another endpoint may have room."""
RETRYABLE_STATUS: Final = frozenset({BUSY_STATUS, 500, 502, 503, 504})
_TOO_LONG_STATUS: Final = frozenset({400, 413, 422})
_TOO_LONG_WORDS: Final = (b"context length", b"context_length", b"exceed_context", b"max_model_len", b"input_tokens")
"""What engines say of such a prompt: vLLM and SGLang in words, llama.cpp by a type of its own."""
_LOOKED_AT_BYTES: Final = 2048
"""Of an error, for these words."""


def allowed(request: InferenceRequest, endpoints: list[EndpointSnapshot]) -> list[EndpointSnapshot]:
    """Those of the endpoints that the key, and the arm of the model's name, may use.

    A key is for names as clients write them: what a name leads to is the operator's to say. Raises `Forbidden` where it
    is not for the name, or for none of the endpoints; `NoEndpoint` where nobody serves the arm.
    """
    scopes, routed = request.tenant.scopes, request.routed
    if routed is not None and routed.endpoints is not None:
        endpoints = [endpoint for endpoint in endpoints if routed.allow_endpoint(endpoint.id)]
        if not endpoints:
            raise NoEndpoint(request.model)
    if scopes is None:
        return endpoints
    if not scopes.allow_model(request.asked_model):
        raise Forbidden(f"this API key is not for the model {request.asked_model[:100]!r}", param="model")
    if scopes.models is not None and request.adapter is not None:  # it would be another model by another name
        raise Forbidden("this API key is for certain models: name an adapter as the model, not in a field of its own")
    found = [endpoint for endpoint in endpoints if scopes.allow_endpoint(endpoint.id)]
    if not found:
        raise Forbidden(f"this API key is for no endpoint that serves {request.asked_model[:100]!r}", param="model")
    return found


def must_fit(request: InferenceRequest, plan: Plan, endpoints: list[EndpointSnapshot]) -> None:
    """Raises `ContextTooLong` where another model stands in for long prompts, and this one is known to be too long for
    all of the endpoints. Else the engines judge. O(endpoints)."""
    prompt_tokens = plan.prompt_tokens
    if prompt_tokens is None or not request.falls_back_on(Trouble.TOO_LONG):
        return
    longest = 0
    for endpoint in endpoints:
        for served in endpoint.facts.models if endpoint.facts is not None else ():
            if served.id == request.model:
                if served.max_model_len is None:
                    return
                longest = max(longest, served.max_model_len)
    if longest and prompt_tokens + (request.max_output_tokens or 1) > longest:
        raise ContextTooLong(f"{prompt_tokens} tokens and an answer do not fit into the {longest} of {request.model!r}")


def given_up(request: InferenceRequest, status: int, beginning: bytes) -> GatewayError | None:
    """What an answer comes to that is not passed on since another model stands in; None where it is passed on."""
    if status == BUSY_STATUS:
        is_full = request.falls_back_on(Trouble.FULL)
        return EndpointBusy(f"the endpoint answered with the status {status}") if is_full else None
    if status in RETRYABLE_STATUS and request.falls_back_on(Trouble.FAILED):
        return UpstreamFailed(f"the endpoint answered with the status {status}")
    if status in _TOO_LONG_STATUS and request.falls_back_on(Trouble.TOO_LONG):
        said = beginning[:_LOOKED_AT_BYTES].lower()
        if any(words in said for words in _TOO_LONG_WORDS):
            return ContextTooLong(f"the prompt is too long for {request.model[:100]!r}")
    return None


def spoken_by_nobody(request: InferenceRequest) -> GatewayError:
    """What a client is told of whose dialect, or wish, no engine of the model knows anything."""
    field = request.foreign.untranslatable if request.foreign is not None else None
    if field is None:
        return NotFound(f"no backend of this model takes {request.route_path}")
    if field == "max_tokens":
        return BadRequest("Object missing required field `max_tokens`", param=field)
    return BadRequest(f"no backend of this model can do this: {field}", param=field)
