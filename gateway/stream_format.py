"""What the events of a stream mean, per dialect: content, the usage, or the end.

    chat        data: {choices...}          data: {choices: [], usage}                  data: [DONE]
    messages    content_block_*, ping       message_start: usage, message_delta: usage  message_stop
    responses   response.*.delta, ...       response.completed: usage and end in one    response.completed | incomplete

A format looks only into events that hold one of its marks. Inside JSON strings quotes cannot stand unescaped, so a
mark with quotes is never a client's text; an event that merely looks marked is parsed for nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, TypeVar

import msgspec

from gateway.sse import event_data, split_events
from gateway.surrogates import UNREADABLE, Decoder, decode
from gateway.types import Route

KiB: Final = 1024
MiB: Final = 1024 * KiB
END_MARK: Final = b"[DONE]"
_NO_CHOICES: Final = b"[]"
_USAGE_KEY: Final = b'"usage"'
_MOST_KEYS_TRIED: Final = 4
_T = TypeVar("_T")


class Kind(Enum):
    """What is done with an event: content passes, usage and the end are held until the usage is durable."""

    CONTENT = auto()
    USAGE = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Seen:
    """What one event said. `response_id` is the name under which the engine keeps the answer."""

    kind: Kind = Kind.CONTENT
    usage: dict[str, Any] | None = None
    failed: bool = False
    response_id: str | None = None


CONTENT: Final = Seen()


class StreamFormat(Protocol):
    """Reads one stream; may remember what earlier events of it said."""

    @property
    def marks(self) -> tuple[bytes, ...]:
        """An event without any of these is content."""

    @property
    def null_marks(self) -> tuple[bytes, ...]:
        """Marks as some engines put them on every event: as good as none."""

    @property
    def token_marks(self) -> tuple[bytes, ...]:
        """Any of these shows that the engine has sampled a token, and so has computed the prompt."""

    @property
    def largest_event_bytes(self) -> int:
        """A begun event longer than this is content and passes before it is whole."""

    def look(self, data: bytes) -> Seen:
        """What the event with this data says; what cannot be read is content."""

    def texts(self, stream: bytes) -> list[str]:
        """The text of each choice in a recorded stream, reasoning and tool arguments included; linear."""


def format_of(route: Route) -> StreamFormat:
    """A fresh reader for the streams of a route."""
    match route:
        case Route.MESSAGES:
            return MessagesFormat()
        case Route.RESPONSES:
            return ResponsesFormat()
        case _:
            return ChatFormat()


_NOTHING_BYTES: Final = len(b"null")


class AnswerPart(msgspec.Struct):
    """What every dialect puts at the top of a plain answer or of a chat chunk."""

    id: Any = None
    usage: Any = None
    choices: msgspec.Raw = msgspec.Raw(b"null")
    content: msgspec.Raw = msgspec.Raw(b"null")
    output: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None

    @property
    def says_something(self) -> bool:
        """Whether there is a choice, a content block or an output item: more than `null` or `[]`."""
        return self.error is None and any(
            len(memoryview(part)) > _NOTHING_BYTES for part in (self.choices, self.content, self.output)
        )


_answer = msgspec.json.Decoder(AnswerPart)


def decode_answer(data: bytes) -> AnswerPart:
    """The parts of an answer that matter here. Raises one of `UNREADABLE`."""
    return decode(_answer, data)


def as_usage(found: object) -> dict[str, Any] | None:
    """A usage report, None for whatever is none."""
    return found if isinstance(found, dict) else None


def usage_at_end(tail: bytes) -> dict[str, Any] | None:
    """The usage in the last bytes of a plain answer, where it stands at the top level; None where it does not.

    What follows a key of the top level is an object again once a brace is put before the key; what follows a key
    further down has a brace too many. O(tail) for each key of that name, the last `_MOST_KEYS_TRIED` are tried.
    """
    end = len(tail)
    for _ in range(_MOST_KEYS_TRIED):
        end = tail.rfind(_USAGE_KEY, 0, end)
        if end < 0:
            break
        try:
            return as_usage(decode_answer(b"{" + tail[end:]).usage)
        except UNREADABLE:
            continue
    return None


def _readable(decoder: Decoder[_T], stream: bytes) -> Iterator[_T]:
    """What the events of a recorded stream hold; those that cannot be read are passed over."""
    for event in split_events(stream):
        try:
            yield decode(decoder, event_data(event))
        except UNREADABLE:
            continue


class _Function(msgspec.Struct):
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _ChatDelta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _ChatDelta | None = None
    text: str | None = None


class _ChatContent(msgspec.Struct):
    choices: list[_Choice] = []


_chat_content = msgspec.json.Decoder(_ChatContent)


class ChatFormat:
    """Chat completions and completions."""

    marks = (b'"usage"', b"[DONE]", b'"error"')
    null_marks = (b'"usage":null', b'"usage": null', b'"error":null', b'"error": null')
    token_marks = (b'"delta"', b'"text"')
    largest_event_bytes = 64 * KiB

    def look(self, data: bytes) -> Seen:
        """Usage counts as such where it stands alone; beside content it passes with the content."""
        if data == END_MARK:
            return Seen(Kind.END)
        try:
            part = decode_answer(data)
        except UNREADABLE:
            return CONTENT
        usage = as_usage(part.usage)
        alone = usage is not None and bytes(part.choices).strip() == _NO_CHOICES
        return Seen(Kind.USAGE if alone else Kind.CONTENT, usage, failed=part.error is not None)

    def texts(self, stream: bytes) -> list[str]:
        """One text a choice."""
        texts: dict[int, list[str]] = {}
        for chunk in _readable(_chat_content, stream):
            for choice in chunk.choices:
                texts.setdefault(choice.index, []).extend(_pieces(choice))
        return ["".join(pieces) for pieces in texts.values()]


def _pieces(choice: _Choice) -> list[str]:
    delta = choice.delta or _ChatDelta()
    arguments = [call.function.arguments for call in delta.tool_calls or () if call.function is not None]
    found = (delta.reasoning, delta.reasoning_content, delta.content, *arguments, choice.text)
    return [piece for piece in found if piece]


class _Message(msgspec.Struct):
    usage: Any = None


class _MessagesDelta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None


class _MessagesEvent(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    usage: Any = None


class _MessagesContent(msgspec.Struct):
    delta: _MessagesDelta | None = None


_messages = msgspec.json.Decoder(_MessagesEvent)
_messages_content = msgspec.json.Decoder(_MessagesContent)


class MessagesFormat:
    """Anthropic's messages. What `message_start` reports is completed, and where both speak replaced, by the last
    `message_delta`.

        vLLM        start: input 39              end: input 7, cache read 32      the end explains the start
        llama.cpp   start: input 1, read 38      end: output only                 the start stands
        others      start: input 500             end: input 0                     ... and here it does too

    At the start an engine may not know yet what was cached, and count it as input.
    """

    marks = (b'"usage"', b"message_stop", b'"error"')
    null_marks = ()
    token_marks = (b"content_block", b"message_delta")
    largest_event_bytes = 64 * KiB

    def __init__(self) -> None:
        self._at_start: dict[str, Any] = {}

    def look(self, data: bytes) -> Seen:
        """Usage is told at the end, merged."""
        try:
            event = decode(_messages, data)
        except UNREADABLE:
            return CONTENT
        match event.type:
            case "message_start":
                self._at_start = (as_usage(event.message.usage) if event.message else None) or {}
                return CONTENT
            case "message_delta":
                said = {name: value for name, value in (as_usage(event.usage) or {}).items() if value is not None}
                return Seen(Kind.USAGE, _completed(self._at_start, said))
            case "message_stop":
                return Seen(Kind.END)
            case "error":
                return Seen(Kind.CONTENT, failed=True)
            case _:
                return CONTENT

    def texts(self, stream: bytes) -> list[str]:
        """All blocks as one text."""
        pieces: list[str] = []
        for event in _readable(_messages_content, stream):
            if (delta := event.delta) is not None:
                pieces += [piece for piece in (delta.thinking, delta.text, delta.partial_json) if piece]
        return ["".join(pieces)] if pieces else []


_INPUT_KEYS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _completed(at_start: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """A first report with a later one over it. A zero over a count is a placeholder, unless another of the later counts
    explains where the input went."""
    if not any(said.get(key) for key in _INPUT_KEYS):
        said = {name: value for name, value in said.items() if not (name in _INPUT_KEYS and at_start.get(name))}
    return {**at_start, **said}


class _Response(msgspec.Struct):
    id: Any = None
    usage: Any = None


class _ResponsesEvent(msgspec.Struct):
    type: str = ""
    response: _Response | None = None
    delta: Any = None


_responses = msgspec.json.Decoder(_ResponsesEvent)
_RESPONSE_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesFormat:
    """OpenAI's responses: one event holds the usage, the whole answer once more, and the end."""

    marks = (b'"response"', b'"error"', b"response.completed", b"response.incomplete", b"response.failed")
    null_marks = ()
    token_marks = (b"response.output_item", b".delta", b"response.completed", b"response.incomplete")
    """Not `response.created` and `response.in_progress`, which come before the prompt is computed."""
    largest_event_bytes = 4 * MiB
    """The last event says the whole answer once more, and the request's instructions and tools: a million tokens of
    text. A longer one passes, and its answer is counted as a cut one. Looking into one of 4 MiB takes 10 ms."""

    def look(self, data: bytes) -> Seen:
        """The last event is usage and end in one."""
        try:
            event = decode(_responses, data)
        except UNREADABLE:
            return Seen(Kind.END) if data == END_MARK else CONTENT
        response = event.response or _Response()
        name = response.id if isinstance(response.id, str) else None
        if event.type in _RESPONSE_ENDS:
            return Seen(Kind.END, as_usage(response.usage), event.type == "response.failed", name)
        return Seen(Kind.CONTENT, failed=event.type == "error", response_id=name)

    def texts(self, stream: bytes) -> list[str]:
        """All deltas as one text: output, reasoning and arguments of calls."""
        pieces = [event.delta for event in _readable(_responses, stream) if isinstance(event.delta, str)]
        return ["".join(pieces)] if pieces else []
