"""What a chat answer says, read once for all dialects it is told in.

    whole   {"id", "choices": [{"message", ..}], "usage"}   -- read_completion -->  ChatAnswer, Choice
    stream  {"id", "choices": [{"delta", ..}], "usage"}     -- chat_events     -->  ChatAnswer
            {"error": ..}, or no JSON                                               ChatAnswer with an error
            : still here                                                            Comment
            [DONE]                                                                  Done

    ChatAnswer  id, model, created, usage
      Choice    finish_reason, matched, logprobs              the one with index 0, or without an index
        Said    reasoning, text, refusal                      strings; parts are joined
          CallPiece   index, id, name, arguments              arguments as JSON text

Servers differ: `reasoning` (vLLM) or `reasoning_content` (SGLang, llama.cpp), `stop_reason` (vLLM) or `matched_stop`
(SGLang), arguments as text or as the object itself, indexes that are null. A field of another type than expected says
nothing, and takes nothing else with it. But an event that cannot be read at all may have held a part of the answer, so
it is an error: an answer with a hole is not told as a whole one. Linear in the bytes; the views are msgspec's structs,
since several are made for every token and dataclasses would take a third longer for all of it.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.edge.engine_errors import EngineError, error_in_chunk
from gateway.errors import UpstreamFailed
from gateway.sse import event_data, split_events
from gateway.surrogates import UNREADABLE, decode

_CHAT_ID_PREFIX: Final = re.compile(r"^(chatcmpl|cmpl|gen|chat)-")
_DONE: Final = b"[DONE]"
_COMMENTS: Final = re.compile(rb"(?::[^\r\n]*[\r\n]+)+")
"""Whole lines and nothing else: what follows half a line would become a part of it, and an event of other fields but no
data is one that clients try to read."""
_UNREADABLE_EVENT: Final = EngineError("the server sent an event that is no chunk of a chat")
_LATEST_CREATED: Final = 1 << 53
"""Unix seconds; what is later is no time, and may be more than the JSON of clients holds."""

_anything: Final = msgspec.json.Decoder()


class CallPiece(msgspec.Struct, frozen=True):
    """A call of a tool, or a fragment of one; what it does not say is empty, or None. `arguments` is JSON text."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


class Said(msgspec.Struct, frozen=True):
    """A message, or a delta of one; what it does not say is empty."""

    reasoning: str = ""
    text: str = ""
    refusal: str = ""
    calls: tuple[CallPiece, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """The first of the answers, for which alone other dialects have a place.

    `matched` is the stop sequence at which it ended; ids of tokens are none. `logprobs` are those of its tokens, as
    the server wrote them.
    """

    said: Said = Said()
    finish_reason: str | None = None
    matched: str | None = None
    logprobs: list[object] = []


class ChatAnswer(msgspec.Struct, frozen=True):
    """A chat completion or a chunk of one. `created` is in Unix seconds; `name` is the id without the chat's prefix,
    `chatcmpl-x` gives `x`, so that an answer in another dialect is found in the engine's log. Unsaid is empty or None.
    """

    name: str = ""
    model: str = ""
    created: int | None = None
    choice: Choice | None = None
    usage: dict[str, object] | None = None
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class Comment:
    """An event without data that keeps a connection open; `event` has its blank line and may pass as it is."""

    event: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """The mark at the end of a stream: what came before is whole, whether or not it gave a reason."""


def new_name() -> str:
    """A name for an answer whose server gave it none."""
    return secrets.token_hex(16)


def read_completion(answer: bytes) -> tuple[ChatAnswer, Choice]:
    """A plain answer. Raises `UpstreamFailed` where it is no chat completion, or one without a message."""
    try:
        chat = _read(decode(_anything, answer), "message")
    except UNREADABLE:
        chat = ChatAnswer()
    if chat.choice is None:
        raise UpstreamFailed("the endpoint's answer is no chat completion with a message")
    return chat, chat.choice


def chat_events(events: bytes) -> Iterator[ChatAnswer | Comment | Done]:
    """What whole events of a chat stream say, in order. What else stands between them, and a last one that was cut
    off, says nothing."""
    for event in split_events(events):
        data = event_data(event)
        if data == _DONE:
            yield Done()
        elif data:
            try:
                yield _read(decode(_anything, data), "delta")
            except UNREADABLE:
                # What does not end with its line was cut off.
                if event.endswith((b"\n", b"\r")):
                    yield ChatAnswer(error=_UNREADABLE_EVENT)
        elif _COMMENTS.fullmatch(comment := event.lstrip(b"\r\n")):  # a blank line before it is no event of its own
            yield Comment(comment)


def _read(chat: object, said_in: str) -> ChatAnswer:
    if not isinstance(chat, dict):
        return ChatAnswer()
    usage = chat.get("usage")
    return ChatAnswer(
        name=_CHAT_ID_PREFIX.sub("", _string(chat.get("id"))),
        model=_string(chat.get("model")),
        created=_time(chat.get("created")),
        choice=_first_choice(chat.get("choices"), said_in),
        usage=usage if isinstance(usage, dict) else None,
        error=error_in_chunk(chat),
    )


def _first_choice(choices: object, said_in: str) -> Choice | None:
    """The choice with index 0, or without one. A message that is none makes none; a chunk needs no delta."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index") in (0, None):
            said = choice.get(said_in)
            if isinstance(said, dict):
                return _choice(choice, _said(said))
            return _choice(choice, Said()) if said_in == "delta" else None
    return None


def _choice(choice: Mapping[str, object], said: Said) -> Choice:
    logprobs = choice.get("logprobs")
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    return Choice(
        said=said,
        finish_reason=_string(choice.get("finish_reason")) or None,
        matched=_string(choice.get("stop_reason")) or _string(choice.get("matched_stop")) or None,
        logprobs=tokens if isinstance(tokens, list) else [],
    )


def _said(message: Mapping[str, object]) -> Said:
    calls = message.get("tool_calls")
    return Said(
        reasoning=_text(message.get("reasoning")) or _text(message.get("reasoning_content")),
        text=_text(message.get("content")),
        refusal=_text(message.get("refusal")),
        calls=tuple(_call(call) for call in calls if isinstance(call, dict)) if isinstance(calls, list) else (),
    )


def _call(call: Mapping[str, object]) -> CallPiece:
    index, function = call.get("index"), call.get("function")
    said = function if isinstance(function, dict) else {}
    return CallPiece(
        index=index if type(index) is int else None,
        id=_string(call.get("id")),
        name=_string(said.get("name")),
        arguments=_arguments(said.get("arguments")),
    )


def _arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else msgspec.json.encode(arguments).decode()


def _text(content: object) -> str:
    """The text of a content, which a few servers write as a list of parts."""
    if isinstance(content, list):
        return "".join(_string(part.get("text")) for part in content if isinstance(part, dict))
    return _string(content)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and 0 <= value < _LATEST_CREATED else None
