"""What a client sees of a streamed answer: when its tokens came, and the usage. Pure: the time is an argument.

    data: {"choices": [{"delta": {"role": ...}}]}      no token yet
    data: {"choices": [{"delta": {"content": "a"}}]}   the first
    data: {"choices": [{"delta": {"content": "b"}}]}   a gap after it
    data: {"choices": [], "usage": {...}}              counts
    data: [DONE]

Text of any kind is a token's: content, reasoning, tool calls, a completion's text. An empty one is none.
"""

from array import array
from typing import Final

import msgspec

_DONE: Final = b"[DONE]"
_FIELD: Final = b"data:"


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None

    @property
    def says_something(self) -> bool:
        return bool(self.content or self.reasoning or self.reasoning_content or self.tool_calls)


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: str | None = None

    @property
    def says_something(self) -> bool:
        return bool(self.text) or (self.delta is not None and self.delta.says_something)


class _Event(msgspec.Struct, gc=False):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Event).decode


class Stream:
    """Reads a body as it comes; `first_s` and `last_s` are the times of the first and the last piece of text.

    `is_whole`: the end was said, and no error. `pieces` counts those with text. Cost: a few microseconds an event.
    """

    __slots__ = (
        "_gaps_s",
        "_rest",
        "cached_tokens",
        "first_s",
        "is_broken",
        "is_done",
        "last_s",
        "output_tokens",
        "pieces",
        "prompt_tokens",
    )

    def __init__(self, gaps_s: "array[float]") -> None:
        self._gaps_s = gaps_s
        self._rest = b""
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.pieces = 0
        self.is_done = False
        self.is_broken = False
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether there was text, the end was said and nothing went wrong."""
        return self.is_done and not self.is_broken and self.first_s is not None

    def came(self, chunk: bytes, now_s: float) -> None:
        """Bytes that arrived at once. An event that cannot be read breaks the answer, and nothing is raised."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(_FIELD):
                self._data(line[len(_FIELD) :].strip(), now_s)

    def _data(self, data: bytes, now_s: float) -> None:
        if data == _DONE:
            self.is_done = True
            return
        try:
            event = _decode(data)
        except msgspec.DecodeError:
            self.is_broken = True
            return
        if event.error is not None:
            self.is_broken = True
        if event.usage is not None:
            self._counts(event.usage)
        if any(choice.says_something for choice in event.choices):
            self._piece(now_s)

    def _piece(self, now_s: float) -> None:
        self.pieces += 1
        if self.last_s is None:
            self.first_s = now_s
        else:
            self._gaps_s.append(now_s - self.last_s)
        self.last_s = now_s

    def _counts(self, usage: _Usage) -> None:
        self.prompt_tokens = usage.prompt_tokens
        self.output_tokens = usage.completion_tokens
        details = usage.prompt_tokens_details
        self.cached_tokens = usage.prompt_cache_hit_tokens if details is None else details.cached_tokens
