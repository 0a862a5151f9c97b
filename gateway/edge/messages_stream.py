"""A chat stream as a stream of the Messages dialect.

    {role}                     message_start
    {reasoning}                content_block_start, _delta (thinking)
    {content}                  content_block_stop, content_block_start, _delta (text)
    {tool_calls}               content_block_stop, content_block_start, _delta (input_json)
    {finish_reason}
    {choices: [], usage}    .
    [DONE]                  |  content_block_stop, message_delta (stop_reason, usage), message_stop
                             `- all of it only from `end`

Nothing that ends the message is said before `end`, since the usage must be durable first. A stream that breaks off
before it says why it finished has no end here either: its client sees that it broke off. An error, or an event that
cannot be read, ends the message as an error. Comments pass as they are, at their place.
"""

from collections.abc import Callable

import msgspec

from gateway.edge.chat_answer import ChatAnswer, Comment, Done, Said, chat_events, new_name
from gateway.edge.messages_blocks import TEXT, THINKING, Blocks
from gateway.edge.messages_chat import Counts, message_id, stop_of
from gateway.edge.messages_errors import event_error_body
from gateway.sse import named_event


class MessageStream:
    """One stream; `model` is what the client asked for, in case no chunk names one, and `new_name` names the message
    where none has an id. Linear in the bytes."""

    def __init__(self, model: str, new_name: Callable[[], str] = new_name) -> None:
        self._asked = model
        self._new_name = new_name
        self._name = ""
        self._model = ""
        self._counts = Counts()
        self._out: list[bytes] = []
        self._blocks: Blocks | None = None
        self._finish: str | None = None
        self._matched: str | None = None
        self._done = False
        self._error: bytes | None = None
        self._ended = False

    def feed(self, events: bytes) -> bytes:
        """Whole events of the chat; how they are grouped makes no difference."""
        for said in chat_events(events):
            match said:
                case Comment():
                    self._out.append(said.event)
                case Done():
                    self._done = True
                case ChatAnswer() if self._error is None:
                    self._take(said)
        return self._taken()

    def end(self, events: bytes) -> bytes:
        """The last events, and the end of the message if they hold it."""
        said = self.feed(events)
        if self._ended:
            return said
        self._ended = True
        if self._error is not None:
            return said + named_event("error", self._error)
        return said + self._end() if self._done or self._finish is not None else said

    def _take(self, chunk: ChatAnswer) -> None:
        if chunk.error is not None:
            self._error = event_error_body(chunk.error)
            return
        self._counts.add(chunk.usage)
        self._name = self._name or chunk.name
        self._model = self._model or chunk.model
        choice = chunk.choice
        if choice is None:
            return
        _write(self._started(), choice.said)
        self._finish = self._finish or choice.finish_reason
        self._matched = self._matched or choice.matched

    def _started(self) -> Blocks:
        if self._blocks is None:
            name = self._name or self._new_name()
            message: dict[str, object] = {
                "id": message_id(name),
                "type": "message",
                "role": "assistant",
                "model": self._model or self._asked,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                # Chats tell their usage at the end, so these are mostly zeros that the wire type wants; clients take
                # the cumulative counts of `message_delta`, which replace them.
                "usage": self._counts.said(),
            }
            begun = msgspec.json.encode({"type": "message_start", "message": message})
            self._out.append(named_event("message_start", begun))
            self._blocks = Blocks(name, self._out)
        return self._blocks

    def _taken(self) -> bytes:
        events = b"".join(self._out)
        self._out.clear()
        return events

    def _end(self) -> bytes:
        blocks = self._started()
        blocks.close()
        reason, sequence = stop_of(self._finish or "stop", self._matched, called=blocks.called, whole=blocks.whole)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": self._counts.said(),
        }
        self._out.append(named_event("message_delta", msgspec.json.encode(delta)))
        self._out.append(named_event("message_stop", b'{"type":"message_stop"}'))
        return self._taken()


def _write(blocks: Blocks, said: Said) -> None:
    blocks.say(THINKING, said.reasoning)
    blocks.say(TEXT, said.text)
    blocks.say(TEXT, said.refusal)
    for position, call in enumerate(said.calls):
        blocks.call(call, position)
