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
cannot be read, ends the message as an error.
"""

import msgspec

from gateway.edge.messages_blocks import TEXT, THINKING, Blocks
from gateway.edge.messages_chat import UNREADABLE, ChatAnswer, Counts, Said, decode_answer, message_id, stop_of
from gateway.edge.messages_errors import error_body, event_error_body
from gateway.sse import event_data, named_event, split_events

_BAD_GATEWAY = 502


class MessageStream:
    """One stream; `model` is what the client asked for, in case no chunk names one. Linear in the bytes."""

    def __init__(self, model: str) -> None:
        self._asked = model
        self._chat_id: str | None = None
        self._model: str | None = None
        self._counts = Counts()
        self._head = b""
        self._blocks: Blocks | None = None
        self._finish: str | None = None
        self._matched: str | None = None
        self._done = False
        self._error: bytes | None = None
        self._ended = False

    def feed(self, events: bytes) -> bytes:
        """Whole events of the chat; how they are grouped makes no difference."""
        for event in split_events(events):
            if self._error is None:
                self._take(event)
        return self._said()

    def end(self, events: bytes) -> bytes:
        """The last events, and the end of the message if they hold it."""
        said = self.feed(events)
        if self._ended:
            return said
        self._ended = True
        if self._error is not None:
            return said + named_event("error", self._error)
        return said + self._end() if self._done or self._finish is not None else said

    def _take(self, event: bytes) -> None:
        data = event_data(event)
        if not data:
            return
        if data == b"[DONE]":
            self._done = True
            return
        try:
            chunk = decode_answer(data)
        except UNREADABLE:
            # What does not end with its line was cut off; a whole event that is no chunk may have held content.
            if event.endswith((b"\n", b"\r")):
                self._error = error_body(_BAD_GATEWAY, "the server sent an event that is no chunk of a chat")
            return
        if chunk.error is not None:
            self._error = event_error_body(chunk.error)
        elif chunk.object == "error":
            self._error = event_error_body({"message": chunk.message})
        else:
            self._take_chunk(chunk)

    def _take_chunk(self, chunk: ChatAnswer) -> None:
        self._counts.add(chunk.usage)
        self._chat_id = self._chat_id or chunk.id
        self._model = self._model or chunk.model
        choice = chunk.first()
        if choice is None:
            return
        blocks = self._started()
        if choice.delta is not None:
            _write(blocks, choice.delta)
        self._finish = choice.finish_reason or self._finish
        self._matched = choice.matched() or self._matched

    def _started(self) -> Blocks:
        if self._blocks is None:
            name = message_id(self._chat_id)
            message: dict[str, object] = {
                "id": name,
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
            self._head = named_event(
                "message_start", msgspec.json.encode({"type": "message_start", "message": message})
            )
            self._blocks = Blocks(name)
        return self._blocks

    def _said(self) -> bytes:
        head, self._head = self._head, b""
        return head + self._blocks.taken() if self._blocks is not None else b""

    def _end(self) -> bytes:
        blocks = self._started()
        blocks.close()
        reason, sequence = stop_of(self._finish or "stop", self._matched, called=blocks.called, whole=blocks.whole)
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": self._counts.said(),
        }
        last = named_event("message_stop", b'{"type":"message_stop"}')
        return self._said() + named_event("message_delta", msgspec.json.encode(delta)) + last


def _write(blocks: Blocks, said: Said) -> None:
    blocks.say(THINKING, said.thinking())
    blocks.say(TEXT, said.text())
    for position, call in enumerate(said.tool_calls or ()):
        blocks.call(call, position)
