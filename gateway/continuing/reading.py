"""What a client has got of a stream that broke off, read from the bytes that were kept of it.

    data: {role}   data: {"Hel"}   data: {"lo"}   data: {"wo      <-- died here
    `--------------- passed, whole ------------'  `-- held back by the tee: the client never saw it

Of an event that was not whole the client has got nothing, so nothing of it counts: the other endpoint computes it anew.
Linear in the stream, about 1 µs an event; made in a thread, once the stream has died.
"""

from typing import Any, Final

import msgspec

from gateway.continuing.types import CannotContinue, NotContinued, Said
from gateway.sse import end_of_last_event, event_data, split_events
from gateway.stream_format import END_MARK
from gateway.surrogates import UNREADABLE, decode

_REPLACED: Final = "\ufffd"


class _Delta(msgspec.Struct):
    role: str | None = None
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    refusal: Any = None
    audio: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_chunk: Final = msgspec.json.Decoder(_Chunk)


def said_in(stream: bytes) -> Said:
    """What the whole events of a stream of a chat or a completion say; a last one that is not whole says nothing.

    Raises `CannotContinue` where they say what no prompt can.
    """
    reader = _Reader()
    for event in split_events(stream[: end_of_last_event(stream)]):
        data = event_data(event)
        if data and data != END_MARK:
            reader.take(data)
    return reader.said()


def is_clients_fault(error: object) -> bool:
    """Whether an error that an engine tells in a stream is about the request."""
    code = error.get("code") if isinstance(error, dict) else None
    return isinstance(code, int) and 400 <= code < 500


class _Reader:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._ids: list[int] | None = []
        self._opening = b""
        self._role = self._finished = self._holds_back = False

    def take(self, data: bytes) -> None:
        """The next event's data."""
        try:
            chunk = decode(_chunk, data)
        except UNREADABLE:
            raise CannotContinue(NotContinued.UNREADABLE) from None
        if chunk.error is not None:
            if is_clients_fault(chunk.error):
                raise CannotContinue(NotContinued.BLAMED)
            return  # told instead of the answer's end; it is held back
        self._opening = self._opening or data
        if chunk.choices and isinstance(chunk.usage, dict):
            raise CannotContinue(NotContinued.USAGE_IN_CHUNKS)
        for choice in chunk.choices or ():
            if choice.index:
                raise CannotContinue(NotContinued.SEVERAL_CHOICES)
            self._add(choice)

    def said(self) -> Said:
        """What all of them say."""
        text = "".join(self._pieces)
        if text.endswith(_REPLACED) and not self._finished:
            raise CannotContinue(NotContinued.SPLIT_CHARACTER)
        ids = None if self._ids is None or self._holds_back else tuple(self._ids)
        return Said(text, self._opening, self._role, self._finished, ids)

    def _add(self, choice: _Choice) -> None:
        delta = choice.delta or _Delta()
        if delta.tool_calls or delta.function_call:
            raise CannotContinue(NotContinued.TOOL_CALL)
        if delta.reasoning or delta.reasoning_content:
            raise CannotContinue(NotContinued.REASONING)
        content = delta.content if delta.content is not None else choice.text
        if delta.refusal or delta.audio or not isinstance(content, str | None):
            raise CannotContinue(NotContinued.OTHER_CONTENT)
        self._role = self._role or delta.role is not None
        self._finished = self._finished or choice.finish_reason is not None
        if content:
            self._pieces.append(content)
        self._note_ids(choice.token_ids, content or "")

    def _note_ids(self, ids: list[int] | None, text: str) -> None:
        """Ids without a text stand for the beginning of a character, or of what may yet be the end: they are ahead of
        what was told."""
        if ids and self._ids is not None:
            self._ids += ids
            self._holds_back = not text
        elif text:
            self._ids = None
