"""What a client sees of a streamed answer: when its tokens came, and the usage. Pure: the time is an argument.

    data: {"choices": [{"delta": {"role": ...}}]}      no token yet
    data: {"choices": [{"delta": {"content": "a"}}]}   the first
    data: {"choices": [{"delta": {"content": "b"}}]}   a gap after it
    data: {"choices": [], "usage": {...}}              counts
    data: [DONE]

Text of any kind is a token's: content, reasoning, tool calls, a completion's text. An empty one is none. Counts that
cannot be, as fewer than none or more cached than there were, are as if they had not been told.
"""

from array import array
from typing import Final

import msgspec

from gateway import surrogates

_DONE: Final = b"[DONE]"
_FIELD: Final = b"data:"
_MOST_EVENT_BYTES: Final = 1024 * 1024
"""Of one event: a server that never ends a line would fill the memory."""
_MOST_TOKENS: Final = 1 << 53
_NULL: Final = msgspec.Raw(b"null")


class _Details(msgspec.Struct, gc=False):
    cached_tokens: object = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: object = None
    completion_tokens: object = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: object = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[msgspec.Raw] | None = None
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
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


_EVENT: Final = msgspec.json.Decoder(_Event)
_decode_usage = msgspec.json.Decoder(_Usage).decode


class Stream:
    """Reads a body as it comes; `first_s` and `last_s` are the times of the first and the last piece of text.

    `is_whole`: the end was said, and no error. `pieces` counts those with text. `said` is the error that came in it.
    `is_overlong`: an event has no end, and nothing more is read. `is_odd`: the usage told what cannot be. Cost: a few
    microseconds an event.
    """

    __slots__ = (
        "_gaps_s",
        "_rest",
        "cached_tokens",
        "first_s",
        "is_broken",
        "is_done",
        "is_odd",
        "is_overlong",
        "last_s",
        "output_tokens",
        "pieces",
        "prompt_tokens",
        "said",
    )

    def __init__(self, gaps_s: "array[float]") -> None:
        self._gaps_s = gaps_s
        self._rest = b""
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.pieces = 0
        self.is_done = False
        self.is_broken = False
        self.is_overlong = False
        self.is_odd = False
        self.said: str | None = None
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
        if len(self._rest) > _MOST_EVENT_BYTES:
            self._rest, self.is_overlong, self.is_broken = b"", True, True
        for line in lines:
            if line.startswith(_FIELD):
                self._data(line[len(_FIELD) :].strip(), now_s)

    def _data(self, data: bytes, now_s: float) -> None:
        if data == _DONE:
            self.is_done = True
            return
        if not data:
            return
        try:
            event = surrogates.decode(_EVENT, data)  # a token may be half a character
        except surrogates.UNREADABLE:
            self.is_broken = True
            return
        if event.error != _NULL:
            self.is_broken, self.said = True, bytes(event.error).decode("utf-8", "replace")
        if event.usage != _NULL:
            self._usage(event.usage)
        if event.choices and any(choice.says_something for choice in event.choices):
            self._piece(now_s)

    def _piece(self, now_s: float) -> None:
        self.pieces += 1
        if self.last_s is None:
            self.first_s = now_s
        else:
            self._gaps_s.append(now_s - self.last_s)
        self.last_s = now_s

    def _usage(self, told: msgspec.Raw) -> None:
        try:
            self._counts(_decode_usage(told))
        except msgspec.DecodeError:
            self.is_odd = True

    def _counts(self, usage: _Usage) -> None:
        details = usage.prompt_tokens_details
        told = (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_cache_hit_tokens if details is None else details.cached_tokens,
        )
        prompt, output, cached = counts = [_tokens(value) for value in told]
        if prompt is not None and cached is not None and cached > prompt:
            cached, self.is_odd = None, True
        if any(value is not None and count is None for value, count in zip(told, counts, strict=True)):
            self.is_odd = True
        self.prompt_tokens, self.output_tokens, self.cached_tokens = prompt, output, cached


def _tokens(told: object) -> int | None:
    """A whole number, 0 or more, as JSON has it: 3.0 is one too. None for anything else."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told <= _MOST_TOKENS:
        return None
    return int(told) if told == int(told) else None
