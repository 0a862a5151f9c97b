"""Chat answers in the Messages dialect: plain ones here, streams in `messages_stream`, errors in `messages_errors`.

choices[0].message (chat_answer)       content
  reasoning | reasoning_content    ->    thinking
  content                          ->    text
  tool_calls                       ->    tool_use, arguments as an object
finish_reason                      ->  stop_reason, stop_sequence
usage: prompt = all of the input   ->  usage: input without what was read from or written to the cache
"""

from collections.abc import Callable, Sequence

import msgspec

from gateway.edge.call_fragments import CallIds
from gateway.edge.chat_answer import CallPiece, ChatAnswer, Choice, Said, new_name, read_completion
from gateway.edge.messages_chat import Counts, call_id, message_id, stop_of
from gateway.edge.messages_errors import refusal_body
from gateway.edge.messages_stream import MessageStream
from gateway.surrogates import UNREADABLE, decode, without_lone_surrogates

_anything = msgspec.json.Decoder()


class MessagesAnswer:
    """`AnswerTranslator` for one answer; `model` is what the client asked for, `new_name` names an answer that has no
    name."""

    def __init__(self, model: str, new_name: Callable[[], str] = new_name) -> None:
        self._model = model
        self._new_name = new_name
        self._stream = MessageStream(model, new_name)

    def whole(self, answer: bytes) -> bytes:
        """A chat completion as a message. Raises `UpstreamFailed` where it is none; linear."""
        chat, choice = read_completion(answer)
        return msgspec.json.encode(self._message(chat, choice))

    def feed(self, events: bytes) -> bytes:
        """Whole events of a chat stream as events of a message."""
        return self._stream.feed(events)

    def end(self, events: bytes) -> bytes:
        """The last events, and the end of the message."""
        return self._stream.end(events)

    def refusal(self, status: int, answer: bytes) -> bytes:
        """An error answer in this dialect."""
        return refusal_body(status, answer)

    def _message(self, chat: ChatAnswer, choice: Choice) -> dict[str, object]:
        name = chat.name or self._new_name()
        inputs = [_input(call) for call in choice.said.calls]
        whole = all(found is not None for found in inputs)
        reason, sequence = stop_of(choice.finish_reason, choice.matched, called=bool(inputs), whole=whole)
        counts = Counts()
        counts.add(chat.usage)
        return {
            "id": message_id(name),
            "type": "message",
            "role": "assistant",
            "model": chat.model or self._model,
            "content": _content(name, choice.said, inputs),
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": counts.said(),
        }


def _content(name: str, said: Said, inputs: Sequence[msgspec.Raw | None]) -> list[dict[str, object]]:
    """The blocks; one of empty text where nothing was said, since clients look at the first."""
    blocks: list[dict[str, object]] = []
    if said.reasoning:
        blocks.append({"type": "thinking", "thinking": said.reasoning, "signature": ""})
    if said.text or said.refusal:
        blocks.append({"type": "text", "text": said.text + said.refusal})
    ids = CallIds()
    for number, (call, found) in enumerate(zip(said.calls, inputs, strict=True)):
        blocks.append(
            {
                "type": "tool_use",
                "id": ids.take(call.id, call_id(name, number)),
                "name": call.name,
                "input": {} if found is None else found,
            }
        )
    return blocks or [{"type": "text", "text": ""}]


def _input(call: CallPiece) -> msgspec.Raw | None:
    """The arguments as the JSON that they are, numbers unchanged; None where the answer ended inside them. No text at
    all, and null, are no arguments."""
    text = call.arguments.strip().encode()
    if text in (b"", b"null"):
        return msgspec.Raw(b"{}")
    try:
        decode(_anything, text)
    except UNREADABLE:
        return None
    return msgspec.Raw(without_lone_surrogates(text))
