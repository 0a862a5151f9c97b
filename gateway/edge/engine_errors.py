"""What an engine says went wrong, in whichever of its shapes it says so.

    {"error": {"message", "type", "code"}}    nested: OpenAI, vLLM, llama.cpp    -.
    {"object": "error", "message", "type"}    flat: older engines                 |
    {"error": "..."}    "..."                 strings                             |-->  EngineError
    {"detail": "..."}   {"detail": [{"msg"}]} FastAPI                             |
    no JSON                                   its text, unless it is a page      -'

Its own words matter most to a client, so they are found wherever they stand; what is of another type than expected
says nothing. Never raises. Linear in the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.surrogates import UNREADABLE, decode

_WRAPPERS: Final = ("error", "detail", "message")
_MOST_WRAPPERS: Final = 4
_LONGEST_QUOTED_CHARS: Final = 1000
"""How much of an error answer that is no JSON is quoted."""

_anything: Final = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class EngineError:
    """`message` is empty where the engine gave no words; the others are None where it said nothing of the kind.

    `code` is a status or a word, as the engine has it.
    """

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: int | str | None = None


def error_in_body(body: bytes) -> EngineError:
    """What an error answer says, JSON or not; half a character becomes U+FFFD."""
    try:
        return read_error(decode(_anything, body))
    except RecursionError:
        return EngineError()
    except UNREADABLE:
        text = body[:_LONGEST_QUOTED_CHARS].decode("utf-8", "replace").strip()
        return EngineError("" if text.startswith("<") else text)  # markup is a page of some proxy's, no message


def error_in_chunk(chunk: Mapping[str, object]) -> EngineError | None:
    """What a chunk of a stream says went wrong; None where it reports no error, as nearly all do.

    An empty error is one where the chunk has no choices either.
    """
    reported = chunk.get("error")
    if reported or (reported is not None and not isinstance(chunk.get("choices"), list)):
        return read_error({"error": reported} if reported else {})
    return read_error(chunk) if chunk.get("object") == "error" else None


def read_error(said: object) -> EngineError:
    """An error from decoded JSON. A message of its own counts before one further inside."""
    for _ in range(_MOST_WRAPPERS):
        if not isinstance(said, dict) or isinstance(said.get("message"), str):
            break
        inside = next((said[name] for name in _WRAPPERS if said.get(name)), None)
        if inside is None:
            break
        said = inside
    match said:
        case str():
            return EngineError(said)
        case list():
            return EngineError("; ".join(filter(None, map(_complaint, said))))
        case dict():
            kind, param = _text(said.get("type")) or None, _text(said.get("param")) or None
            return EngineError(_text(said.get("message")), kind, param, _code(said.get("code")))
        case _:
            return EngineError()


def _complaint(part: object) -> str:
    return _text(part.get("msg") if isinstance(part, dict) else part)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _code(value: object) -> int | str | None:
    return value if isinstance(value, str) or type(value) is int else None
