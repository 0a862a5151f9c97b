"""Why an answer ended, as its last bytes say it: `stop`, `length`, `tool_calls`, ... in every dialect's own word."""

import re
from typing import Final

_SAID: Final = re.compile(rb'"(?:finish_reason|stop_reason)" ?: ?"([a-z_]{1,24})"')
_OF_RESPONSE: Final = re.compile(rb'"status" ?: ?"(completed|incomplete|failed)"')
_LOOKED_BYTES: Final = 16 * 1024
_WORDS: Final[dict[bytes, str]] = {
    b"stop": "stop",
    b"end_turn": "stop",
    b"stop_sequence": "stop",
    b"completed": "stop",
    b"length": "length",
    b"max_tokens": "length",
    b"incomplete": "length",
    b"tool_calls": "tool_calls",
    b"tool_use": "tool_calls",
    b"function_call": "tool_calls",
    b"content_filter": "content_filter",
    b"refusal": "content_filter",
}


def finish_of(answer: bytes | None) -> str:
    """One of a few words; `unknown` where the answer does not say. Inside a text of JSON quotes are escaped, so that
    nothing that a model wrote is taken for it."""
    tail = b"" if answer is None else answer[-_LOOKED_BYTES:]
    found = _SAID.findall(tail) or _OF_RESPONSE.findall(tail)
    return _WORDS.get(found[-1], "other") if found else "unknown"
