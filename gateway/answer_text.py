"""What a whole answer said, read once it is over: text, thoughts, and why it ended. In each dialect, plain or streamed.

    chat, completions   choices[0].message | .delta | .text          finish_reason
    messages            content[] | content_block_delta              stop_reason
    responses           output[], of a stream that of its last event status, incomplete_details

Nothing is read while an answer passes: its bytes are kept anyway (relay.py). What an engine tells parsed, calls of
tools before all, is only noted: the text from which it was parsed is not known. Linear, about 1 µs an event.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from gateway.sse import event_data, split_events
from gateway.stream_format import END_MARK
from gateway.surrogates import Decoder, decode
from gateway.types import Route

_T = TypeVar("_T")

_STOPPED: Final = frozenset({"stop", "eos_token", "stop_sequence", "end_turn", "completed"})
_LIMITED: Final = frozenset({"length", "max_tokens", "max_output_tokens"})
_LAST_EVENTS: Final = 4
"""How far from its end the event of a stream of responses that ends it may stand: `[DONE]` and comments follow."""


@dataclass(slots=True)
class AnswerText:
    """What one answer said. `ended` is the engine's word for why, None where it gave none.

    `choices` counts the answers in it; only the first is read. `calls`: it calls tools. `other`: it has parts that are
    neither text nor thoughts nor calls (refusals, sound, what a server did by itself).
    """

    pieces: list[str] = field(default_factory=list, repr=False)
    thoughts: list[str] = field(default_factory=list, repr=False)
    ended: str | None = None
    choices: int = 1
    calls: bool = False
    other: bool = False

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.pieces)

    @property
    def reasoning(self) -> str:
        """All thoughts that were told apart from the text."""
        return "".join(self.thoughts)

    @property
    def chars(self) -> int:
        """Characters of text and thoughts."""
        return sum(map(len, self.pieces)) + sum(map(len, self.thoughts))

    @property
    def stopped(self) -> bool | None:
        """Whether a sampled token ended it, or else the limit of tokens; None where it ended otherwise."""
        if self.ended in _STOPPED:
            return True
        return False if self.ended in _LIMITED else None


def answer_text(route: Route, body: bytes, *, streamed: bool) -> AnswerText:
    """What an answer said, from its whole body in the dialect of `route`. O(body); raises one of `UNREADABLE`."""
    match route:
        case Route.MESSAGES:
            return _messages(_events(_message_event, body)) if streamed else _message(decode(_message_body, body))
        case Route.RESPONSES:
            return _response(_last_response(body) if streamed else decode(_response_body, body))
        case _:
            return _chat(_events(_chat_body, body) if streamed else [decode(_chat_body, body)])


def _events(decoder: Decoder[_T], stream: bytes) -> Iterator[_T]:
    """All events with data but the mark of the end. Raises where one cannot be read: it may be part of the answer."""
    for event in split_events(stream):
        data = event_data(event)
        if data and data != END_MARK:
            yield decode(decoder, data)


class _Said(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: Any = None
    audio: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    index: int | None = None
    message: _Said | None = None
    delta: _Said | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chat(msgspec.Struct):
    choices: list[_Choice] = []


_chat_body: Final = msgspec.json.Decoder(_Chat)


def _chat(chunks: Iterable[_Chat]) -> AnswerText:
    answer = AnswerText()
    for chunk in chunks:
        for choice in chunk.choices:
            answer.choices = max(answer.choices, (choice.index or 0) + 1)
            if not choice.index:
                _add_choice(answer, choice)
    return answer


def _add_choice(answer: AnswerText, choice: _Choice) -> None:
    said = choice.message or choice.delta or _Said()
    answer.pieces += filter(None, (said.content, choice.text))
    answer.thoughts += filter(None, (said.reasoning or said.reasoning_content,))
    answer.calls = answer.calls or bool(said.tool_calls or said.function_call)
    answer.other = answer.other or bool(said.refusal or said.audio)
    answer.ended = choice.finish_reason or answer.ended


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None


class _MessageDelta(msgspec.Struct):
    text: str | None = None
    thinking: str | None = None
    stop_reason: str | None = None


class _MessageEvent(msgspec.Struct):
    content_block: _Block | None = None
    delta: _MessageDelta | None = None


class _Message(msgspec.Struct):
    content: list[_Block] = []
    stop_reason: str | None = None


_message_event: Final = msgspec.json.Decoder(_MessageEvent)
_message_body: Final = msgspec.json.Decoder(_Message)


def _message(message: _Message) -> AnswerText:
    answer = AnswerText(ended=message.stop_reason)
    for block in message.content:
        _add_block(answer, block)
    return answer


def _messages(events: Iterable[_MessageEvent]) -> AnswerText:
    answer = AnswerText()
    for event in events:
        if event.content_block is not None:
            _add_block(answer, event.content_block)
        if (delta := event.delta) is not None:
            answer.pieces += filter(None, (delta.text,))
            answer.thoughts += filter(None, (delta.thinking,))
            answer.ended = delta.stop_reason or answer.ended
    return answer


def _add_block(answer: AnswerText, block: _Block) -> None:
    answer.calls = answer.calls or block.type == "tool_use"
    answer.other = answer.other or block.type not in ("text", "thinking", "tool_use")
    answer.pieces += filter(None, (block.text,))
    answer.thoughts += filter(None, (block.thinking,))


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    incomplete_details: _Incomplete | None = None
    output: list[_Item] = []


class _ResponseEvent(msgspec.Struct):
    type: str = ""
    response: _Response | None = None


_response_body: Final = msgspec.json.Decoder(_Response)
_response_event: Final = msgspec.json.Decoder(_ResponseEvent)
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})


def _last_response(stream: bytes) -> _Response:
    """The response as the last event of a stream tells it once more, whole; an empty one where none does."""
    last = list(split_events(stream))[-_LAST_EVENTS:]
    for event in _events(_response_event, b"".join(last)):
        if event.response is not None and event.response.output:
            return event.response
    return _Response()


def _response(response: _Response) -> AnswerText:
    details = response.incomplete_details
    answer = AnswerText(ended=response.status if details is None else details.reason)
    for item in response.output:
        answer.calls = answer.calls or item.type in _CALLS
        told = item.content or item.summary or []
        if item.type == "reasoning":
            answer.thoughts += [part.text for part in told if part.text]
        elif item.type == "message":
            answer.pieces += [part.text for part in told if part.text and part.type == "output_text"]
            answer.other = answer.other or any(part.type != "output_text" for part in told)
        else:
            answer.other = answer.other or item.type not in _CALLS
    return answer
