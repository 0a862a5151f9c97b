"""Chat answers in the Messages dialect: plain ones here, streams in `messages_stream`, errors in `messages_errors`.

choices[0].message                     content
  reasoning | reasoning_content    ->    thinking
  content                          ->    text
  tool_calls                       ->    tool_use, arguments as an object
finish_reason                      ->  stop_reason, stop_sequence
usage: prompt = all of the input   ->  usage: input without what was read from or written to the cache
"""

from collections.abc import Sequence

import msgspec

from gateway.edge.messages_chat import (
    UNREADABLE,
    Call,
    ChatAnswer,
    Choice,
    Counts,
    Said,
    call_id,
    decode_answer,
    message_id,
    stop_of,
)
from gateway.edge.messages_errors import error_body, refusal_body
from gateway.edge.messages_stream import MessageStream
from gateway.errors import UpstreamFailed

__all__ = ["MessagesAnswer", "error_body"]


class MessagesAnswer:
    """`AnswerTranslator` for one answer; `model` is what the client asked for."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._stream = MessageStream(model)

    def whole(self, answer: bytes) -> bytes:
        """A chat completion as a message. Raises `UpstreamFailed` where it is none; linear."""
        try:
            chat = decode_answer(answer)
        except UNREADABLE:
            raise UpstreamFailed("the endpoint's answer is no chat completion") from None
        choice = chat.first()
        if choice is None or choice.message is None:
            raise UpstreamFailed("the endpoint's answer is a chat completion without a message")
        return msgspec.json.encode(self._message(chat, choice, choice.message))

    def feed(self, events: bytes) -> bytes:
        """Whole events of a chat stream as events of a message."""
        return self._stream.feed(events)

    def end(self, events: bytes) -> bytes:
        """The last events, and the end of the message."""
        return self._stream.end(events)

    def refusal(self, status: int, answer: bytes) -> bytes:
        """An error answer in this dialect."""
        return refusal_body(status, answer)

    def _message(self, chat: ChatAnswer, choice: Choice, said: Said) -> dict[str, object]:
        name = message_id(chat.id)
        inputs = [_input(call) for call in said.tool_calls or ()]
        whole = all(found is not None for found in inputs)
        reason, sequence = stop_of(choice.finish_reason, choice.matched(), called=bool(inputs), whole=whole)
        counts = Counts()
        counts.add(chat.usage)
        return {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": chat.model or self._model,
            "content": _content(name, said, inputs),
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": counts.said(),
        }


def _content(message: str, said: Said, inputs: Sequence[msgspec.Raw | None]) -> list[dict[str, object]]:
    """The blocks; one of empty text where nothing was said, since clients look at the first."""
    blocks: list[dict[str, object]] = []
    if said.thinking():
        blocks.append({"type": "thinking", "thinking": said.thinking(), "signature": ""})
    if said.text():
        blocks.append({"type": "text", "text": said.text()})
    for number, (call, found) in enumerate(zip(said.tool_calls or (), inputs, strict=True)):
        blocks.append(
            {
                "type": "tool_use",
                "id": call.id or call_id(message, number),
                "name": (call.function.name if call.function is not None else None) or "",
                "input": {} if found is None else found,
            }
        )
    return blocks or [{"type": "text", "text": ""}]


def _input(call: Call) -> msgspec.Raw | None:
    """The arguments as the JSON that they are, numbers unchanged; None where the answer ended inside them. No text at
    all, and null, are no arguments."""
    text = call.function.text().strip().encode() if call.function is not None else b""
    if text in (b"", b"null"):
        return msgspec.Raw(b"{}")
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return msgspec.Raw(text)
