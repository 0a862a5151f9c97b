"""The content blocks of a streamed message: one after the other, however mixed their pieces come.

    chat deltas      text  call 0 {"a"   call 1 {"b"   call 0 :1}    call 1 :2}     finish
    open block       text  call 0        call 0        call 0, 1     call 1
    waiting                              {"b"
    events           start delta stop start delta      delta stop start delta  delta   stop

Clients of the dialect expect a block to end before the next begins. Text and thinking may end at any piece; a call
only where its arguments are whole JSON, and until then the pieces of others wait. Servers that send one call after the
other, as nearly all do, therefore never make a piece wait. Linear in the pieces; kept are the calls, not their text.
"""

from typing import Final

import msgspec

from gateway.edge.call_fragments import CallFragments, CallIds, StreamedCall
from gateway.edge.chat_answer import CallPiece
from gateway.edge.messages_chat import call_id
from gateway.sse import named_event

TEXT: Final = "text"
THINKING: Final = "thinking"
_Key = str | int
"""Of a block: text, thinking, or the number of a call."""

_DELTA: Final = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{%s%s}}\n\n'
_FIELD: Final = {TEXT: b'"type":"text_delta","text":', THINKING: b'"type":"thinking_delta","thinking":'}
_JSON_FIELD: Final = b'"type":"input_json_delta","partial_json":'
# Strict clients wait for a signature before the end of a block of thinking; an open model has none to give.
_SIGNATURE: Final = b'"type":"signature_delta","signature":'
_BEGIN: Final[dict[str, dict[str, object]]] = {
    TEXT: {"type": "text", "text": ""},
    THINKING: {"type": "thinking", "thinking": "", "signature": ""},
}
_NONE: Final = "null"
_encode = msgspec.json.Encoder().encode


class _CallBlock:
    """The block of a call; pieces of its arguments are kept until it is told and there are arguments in them."""

    def __init__(self, call: StreamedCall) -> None:
        self.call = call
        self.kept: list[str] = []
        self.begun = False
        self.closed = False


class Blocks:
    """Writes the events of the blocks of one message to `out`; `name` is what the ids of its calls are made of."""

    def __init__(self, name: str, out: list[bytes]) -> None:
        self._name = name
        self._events = out
        self._begun = 0
        self._open: _Key | None = None
        self._waiting: dict[_Key, list[str]] = {}
        self._fragments = CallFragments()
        self._ids = CallIds()
        self._calls: list[_CallBlock] = []

    @property
    def called(self) -> bool:
        """Whether a tool is called."""
        return bool(self._calls)

    @property
    def whole(self) -> bool:
        """Whether the arguments of every call are whole; none at all are."""
        return not any(block.call.scan.open for block in self._calls)

    def say(self, key: str, piece: str) -> None:
        """A piece of `TEXT` or `THINKING`."""
        if piece:
            self._begin(self._fragments.due())
            self._add(key, piece)

    def call(self, piece: CallPiece, position: int) -> None:
        """A fragment of a call; `position` is its place among those of its chunk, for servers that count none."""
        call = self._fragments.take(piece, position)
        if call.number == len(self._calls):
            self._calls.append(_CallBlock(call))
        if piece.arguments:
            self._calls[call.number].kept.append(piece.arguments)
        if call.told:
            self._pass_call(call.number)
        elif call.ready:
            self._begin(self._fragments.due(call))

    def close(self) -> None:
        """The answer is complete: whatever waits follows, and the last block ends. A message has at least one."""
        self._begin(self._fragments.rest())
        while self._waiting:
            self._open_next()
        if not self._begun:
            self._start(TEXT)
        self._stop()

    def _begin(self, calls: list[StreamedCall]) -> None:
        for call in calls:
            self._pass_call(call.number)

    def _pass_call(self, number: int) -> None:
        block = self._calls[number]
        piece = "".join(block.kept)
        if not block.begun:
            # Space and null are no arguments, and clients fail over them.
            piece = piece.lstrip()
            block.begun = not _NONE.startswith(piece.rstrip())
        block.kept = [] if block.begun else [piece]
        piece = piece if block.begun else ""
        # What follows a whole call that is closed is no part of its arguments: white space, of some servers.
        if not block.closed:
            self._add(number, piece)

    def _add(self, key: _Key, piece: str) -> None:
        if key == self._open:
            self._delta(key, piece)
        else:
            self._waiting.setdefault(key, []).append(piece)
        while self._waiting and self._may_stop():
            self._open_next()

    def _may_stop(self) -> bool:
        return not isinstance(self._open, int) or self._calls[self._open].call.scan.whole

    def _open_next(self) -> None:
        key = next(iter(self._waiting))
        self._stop()
        self._start(key)
        self._delta(key, "".join(self._waiting.pop(key)))

    def _start(self, key: _Key) -> None:
        if isinstance(key, int):
            call = self._calls[key].call
            given = self._ids.take(call.id, call_id(self._name, key))
            block: dict[str, object] = {"type": "tool_use", "id": given, "name": call.name, "input": {}}
        else:
            block = _BEGIN[key]
        event = {"type": "content_block_start", "index": self._begun, "content_block": block}
        self._events.append(named_event("content_block_start", _encode(event)))
        self._begun += 1
        self._open = key

    def _delta(self, key: _Key, piece: str) -> None:
        if piece:
            field = _JSON_FIELD if isinstance(key, int) else _FIELD[key]
            self._events.append(_DELTA % (self._begun - 1, field, _encode(piece)))

    def _stop(self) -> None:
        if self._open is None:
            return
        if isinstance(self._open, int):
            self._calls[self._open].closed = True
        elif self._open == THINKING:
            self._events.append(_DELTA % (self._begun - 1, _SIGNATURE, b'""'))
        event = {"type": "content_block_stop", "index": self._begun - 1}
        self._events.append(named_event("content_block_stop", _encode(event)))
        self._open = None
