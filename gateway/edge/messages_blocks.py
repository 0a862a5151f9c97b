"""The content blocks of a streamed message: one after the other, however mixed their pieces come.

    chat deltas      text  call 0 {"a"   call 1 {"b"   call 0 :1}    call 1 :2}     finish
    open block       text  call 0        call 0        call 0, 1     call 1
    waiting                              {"b"
    events           start delta stop start delta      delta stop start delta  delta   stop

Clients of the dialect expect a block to end before the next begins. Text and thinking may end at any piece; a call
only where its arguments are whole JSON, and until then the pieces of others wait. Servers that send one call after the
other, as nearly all do, therefore never make a piece wait. Linear in the pieces; kept are the calls, not their text.
"""

import re
from typing import Final

import msgspec

from gateway.edge.messages_chat import Call, call_id
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


class JsonScan:
    """Follows JSON text in fragments: is the value whole? Linear, and keeps three numbers."""

    _MARK = re.compile(r'[{}\[\]"\\]')

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begun = False

    @property
    def whole(self) -> bool:
        """An object, a list or a string has begun and ended."""
        return self._begun and not self.open

    @property
    def open(self) -> bool:
        """An object, a list or a string has begun and not ended."""
        return self._in_string or self._depth > 0

    def add(self, piece: str) -> None:
        """Take the next fragment."""
        passed = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        for found in self._MARK.finditer(piece):
            at, mark = found.start(), found[0]
            if at < passed:
                continue
            if mark == "\\":
                passed = at + 2
                self._escaped = passed > len(piece)
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
            self._begun = True


class _StreamedCall:
    """A call of a tool as far as it is known; pieces of its arguments are kept until it has a name
    and there are arguments in them."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.scan = JsonScan()
        self.kept: list[str] = []
        self.ready = False
        self.begun = False
        self.closed = False


class Blocks:
    """Writes the events of the blocks of one message; `message` is its id."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._events: list[bytes] = []
        self._begun = 0
        self._open: _Key | None = None
        self._waiting: dict[_Key, list[str]] = {}
        self._calls: list[_StreamedCall] = []
        self._number_at: dict[int, int] = {}

    @property
    def called(self) -> bool:
        """Whether a tool is called."""
        return bool(self._calls)

    @property
    def whole(self) -> bool:
        """Whether the arguments of every call are whole; none at all are."""
        return not any(call.scan.open for call in self._calls)

    def say(self, key: str, piece: str) -> None:
        """A piece of `TEXT` or `THINKING`."""
        if piece:
            self._add(key, piece)

    def call(self, call: Call, position: int) -> None:
        """A fragment of a call; `position` is its place among those of its chunk, for servers that count none."""
        number = self._number_of(call, position)
        known, function = self._calls[number], call.function
        piece = function.text() if function is not None else ""
        known.id = known.id or call.id or ""
        known.name = known.name or (function.name if function is not None else None) or ""
        if piece:
            known.scan.add(piece)
            known.kept.append(piece)
        # An id may come after the name, but hardly after the first of the arguments.
        known.ready = known.ready or bool(known.name and (known.id or piece))
        if known.ready:
            self._pass_call(number)

    def close(self) -> None:
        """The answer is complete: whatever waits follows, and the last block ends. A message has at least one."""
        for number, call in enumerate(self._calls):
            if not call.ready:
                call.ready = True
                self._pass_call(number)
        while self._waiting:
            self._open_next()
        if not self._begun:
            self._start(TEXT)
        self._stop()

    def taken(self) -> bytes:
        """The events since the last call."""
        events = b"".join(self._events)
        self._events.clear()
        return events

    def _number_of(self, call: Call, position: int) -> int:
        index = position if call.index is None else call.index
        number = self._number_at.get(index)
        if number is None or self._is_another(self._calls[number], call):
            # Some servers count every call 0, and tell them apart by their ids.
            number = self._number_at[index] = len(self._calls)
            self._calls.append(_StreamedCall())
        return number

    @staticmethod
    def _is_another(known: _StreamedCall, call: Call) -> bool:
        named = call.function is not None and bool(call.function.name)
        return bool(named and call.id and known.id and known.id != call.id)

    def _pass_call(self, number: int) -> None:
        call = self._calls[number]
        piece = "".join(call.kept)
        if not call.begun:
            # Space and null are no arguments, and clients fail over them.
            piece = piece.lstrip()
            call.begun = not _NONE.startswith(piece.rstrip())
        call.kept = [] if call.begun else [piece]
        piece = piece if call.begun else ""
        # What follows a whole call that is closed is no part of its arguments: white space, of some servers.
        if not call.closed:
            self._add(number, piece)

    def _add(self, key: _Key, piece: str) -> None:
        if key == self._open:
            self._delta(key, piece)
        else:
            self._waiting.setdefault(key, []).append(piece)
        while self._waiting and self._may_stop():
            self._open_next()

    def _may_stop(self) -> bool:
        return not isinstance(self._open, int) or self._calls[self._open].scan.whole

    def _open_next(self) -> None:
        key = next(iter(self._waiting))
        self._stop()
        self._start(key)
        self._delta(key, "".join(self._waiting.pop(key)))

    def _start(self, key: _Key) -> None:
        if isinstance(key, int):
            call = self._calls[key]
            name = call.id or call_id(self._message, key)
            block: dict[str, object] = {"type": "tool_use", "id": name, "name": call.name, "input": {}}
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
