"""Errors in the Messages dialect: `{"type": "error", "error": {"type", "message"}}`, the type told by the status.

Chat servers write theirs in many shapes; the server's own words are taken from whichever it is:

    {"error": {"message": ..}}   {"error": ".."}   {"object": "error", "message": ..}   {"detail": ".." | [{"msg": ..}]}
    text
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.surrogates import decode

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
_anything: Final = msgspec.json.Decoder()
_KNOWN_TYPES: Final = frozenset(_TYPES.values())
_MOST_TEXT_BYTES: Final = 2048
"""An answer that is no JSON and longer than this is a page, not a message."""


def error_body(status: int, message: str) -> bytes:
    """An error as a client of the dialect expects it, for an answer with this status."""
    return _body(_type_of(status), message)


def refusal_body(status: int, answer: bytes) -> bytes:
    """The error answer of a chat server in this dialect. Linear; never raises."""
    try:
        said = _message_in(decode(_anything, answer))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = _plain_text(answer)
    return error_body(status, said or f"the server answered with status {status}")


def event_error_body(said: Any) -> bytes:
    """The error that a chat server sent inside a stream; its status, where it tells one, is the `code`."""
    fields: Mapping[str, Any] = said if isinstance(said, dict) else {}
    code, kind = fields.get("code"), fields.get("type")
    if type(code) is int:
        kind = _type_of(code)
    elif not isinstance(kind, str) or kind not in _KNOWN_TYPES:
        kind = "api_error"
    return _body(kind, _message_in(said) or "the server broke off the answer")


def _type_of(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def _body(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


def _message_in(said: object) -> str | None:
    """The first text among the places where servers put their message."""
    for _ in range(4):
        if isinstance(said, list):
            said = said[0] if said else None
        if not isinstance(said, dict):
            break
        said = next((said[key] for key in ("error", "message", "detail", "msg") if said.get(key)), None)
    return said if isinstance(said, str) and said else None


def _plain_text(answer: bytes) -> str | None:
    if len(answer) > _MOST_TEXT_BYTES:
        return None
    return answer.decode(errors="replace").strip() or None
