"""Errors in the Messages dialect: `{"type": "error", "error": {"type", "message"}}`, the type told by the status.

status of the answer, or `code` of an error inside a stream  -->  type
the engine's own words (engine_errors)                       -->  message
"""

from typing import Final

import msgspec

from gateway.edge.engine_errors import EngineError, error_in_body

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_KNOWN_TYPES: Final = frozenset(_TYPES.values())


def error_body(status: int, message: str) -> bytes:
    """An error as a client of the dialect expects it, for an answer with this status."""
    return _body(_type_of(status), message)


def refusal_body(status: int, answer: bytes) -> bytes:
    """The error answer of a chat server in this dialect. Linear; never raises."""
    return error_body(status, error_in_body(answer).message or f"the server answered with status {status}")


def event_error_body(error: EngineError) -> bytes:
    """The error that a chat server sent inside a stream; its status, where it tells one, is the `code`."""
    kind = error.type if error.type in _KNOWN_TYPES else "api_error"
    if isinstance(error.code, int):
        kind = _type_of(error.code)
    return _body(kind, error.message or "the server broke off the answer")


def _type_of(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def _body(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
