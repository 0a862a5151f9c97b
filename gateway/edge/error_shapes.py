"""The gateway's own errors in the client's dialect: as a body, or inside a stream that has begun.

OpenAI        {"error": {message, type, param, code}}             data: {...}      data: [DONE]
Messages      {"type": "error", "error": {type, message}}         event: error     data: {...}
Responses     as OpenAI                                           event: error     data: {"type": "error", ...}
"""

import msgspec

from gateway.edge import messages_errors
from gateway.errors import GatewayError
from gateway.sse import named_event
from gateway.types import Route


def error_body(error: GatewayError, path: str) -> bytes:
    """The body of an error answer on a path."""
    if f"{path}/".startswith(f"{Route.MESSAGES.value}/"):
        return messages_errors.error_body(error.status, error.message)
    return error.body()


def stream_error(error: GatewayError, route: Route) -> bytes:
    """An error inside a stream that has begun, and the stream's end, as engines send them."""
    match route:
        case Route.MESSAGES:
            return named_event("error", messages_errors.error_body(error.status, error.message))
        case Route.RESPONSES:
            said = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
            return named_event("error", msgspec.json.encode(said))
        case _:
            return b"data: " + error.body() + b"\n\ndata: [DONE]\n\n"
