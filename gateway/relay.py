"""The answer on its way to the client: bytes pass as they come, a tee looks for usage and for the end.

    upstream chunk --> [ complete events | begun event ]
                          |                   `-- waits for its blank line (if longer than a usage event can be: passes)
                          |-- no "usage", no [DONE] in it  --> to the client at once, unparsed
                          `-- else, event by event:
                                content               --> to the client
                                usage, no choices     --> held (or dropped, if only the gateway asked for it)
                                [DONE]                --> held

Only the usage event and the end are held back, never content: they are released when the ledger has the usage.
An event is looked into only where a byte search finds one of three marks; inside JSON strings these cannot stand
unescaped, so a client's text never looks like usage. Memory: one event under `LARGEST_USAGE_EVENT_BYTES`, and a
bounded copy of the answer from which a cut stream is counted.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

import msgspec

from billing import UsageMerger

KiB = 1024
LARGEST_USAGE_EVENT_BYTES = 64 * KiB
"""A begun event longer than this is content and passes before it is whole."""
MOST_KEPT_BYTES = 1024 * KiB
"""How much of a stream is kept to count a cut one; beyond it the output of a cut stream is unknown."""
MOST_PLAIN_BYTES = 64 * 1024 * KiB
"""A plain answer longer than this is relayed, but its usage is not looked for."""

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_MARKS = (b'"usage"', b"[DONE]", b'"error"')
END_MARK = b"[DONE]"


class _EventPart(msgspec.Struct):
    usage: dict[str, Any] | None = None
    choices: list[msgspec.Raw] | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_EventPart)


class _Kind(Enum):
    CONTENT = auto()
    USAGE = auto()
    END = auto()


class StreamTee:
    """Looks at a server-sent event stream. `complete` once the end was seen; `failed` if the engine sent an error.

    Concatenating all that `feed` and `held` return gives the upstream's bytes, less the usage event where
    `keep_usage` is false. O(bytes) in C, plus a parse of each marked event.
    """

    def __init__(self, *, keep_usage: bool) -> None:
        self.usage = UsageMerger()
        self.complete = False
        self.failed = False
        self._keep_usage = keep_usage
        self._begun = b""
        self._inside_large = False
        self._held: list[bytes] = []
        self._kept: list[bytes] | None = []
        self._kept_bytes = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk, give what may pass now; often the chunk itself."""
        self._keep(chunk)
        data = self._begun + chunk if self._begun else chunk
        cut = _end_of_last_event(data)
        if self._inside_large:
            first = _BLANK_LINE.search(data)
            if first is None:
                return self._pass_all_but_tail(data)
            self._inside_large = False
            return data[: first.end()] + self._events(data[first.end() : cut], data[cut:])
        return self._events(data[:cut], data[cut:])

    def held(self) -> bytes:
        """The usage event and the end, and a begun event that never was finished."""
        rest = b"".join(self._held) + self._begun
        self._held, self._begun = [], b""
        return rest

    def relayed(self) -> bytes | None:
        """The stream so far, to count what it held; None where it was too long to keep."""
        return None if self._kept is None else b"".join(self._kept)

    def _events(self, events: bytes, begun: bytes) -> bytes:
        out = self._look_into(events) if self._held or any(mark in events for mark in _MARKS) else events
        self._begun = begun
        if len(begun) > LARGEST_USAGE_EVENT_BYTES:
            self._inside_large = True
            return out + self._pass_all_but_tail(begun)
        return out

    def _pass_all_but_tail(self, data: bytes) -> bytes:
        """Inside an event too long to hold: keep only what could be the first half of a blank line."""
        self._begun = data[-3:]
        return data[:-3]

    def _look_into(self, events: bytes) -> bytes:
        passed: list[bytes] = []
        for event in _split(events):
            kind = self._kind(event)
            if kind is _Kind.USAGE and not self._keep_usage:
                continue
            if kind is _Kind.CONTENT and not self.complete:
                passed += self._held
                self._held = []
                passed.append(event)
            else:
                self._held.append(event)
        return b"".join(passed)

    def _kind(self, event: bytes) -> _Kind:
        if not any(mark in event for mark in _MARKS):
            return _Kind.CONTENT
        data = event_data(event)
        if data == END_MARK:
            self.complete = True
            return _Kind.END
        try:
            part = _decode_event.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return _Kind.CONTENT
        self.failed = self.failed or part.error is not None
        if part.usage is None:
            return _Kind.CONTENT
        self.usage.add(part.usage)
        return _Kind.USAGE if part.choices == [] else _Kind.CONTENT

    def _keep(self, chunk: bytes) -> None:
        if self._kept is not None:
            self._kept.append(chunk)
            self._kept_bytes += len(chunk)
            if self._kept_bytes > MOST_KEPT_BYTES:
                self._kept = None


class PlainTee:
    """Looks at a plain JSON answer: passes all but the last chunk, reads usage from the whole."""

    def __init__(self) -> None:
        self.usage = UsageMerger()
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._last = b""

    def feed(self, chunk: bytes) -> bytes:
        """Give the chunk before this one; this one is the last until another comes."""
        passed, self._last = self._last, chunk
        self._size_bytes += len(chunk)
        if self._size_bytes <= MOST_PLAIN_BYTES:
            self._pieces.append(chunk)
        else:
            self._pieces = []
        return passed

    def held(self) -> bytes:
        """The last chunk; reads the usage of the answer on the way."""
        try:
            part = _decode_event.decode(b"".join(self._pieces))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._last
        if part.usage is not None:
            self.usage.add(part.usage)
        return self._last


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None


class _ContentEvent(msgspec.Struct):
    choices: list[_Choice] = []


_decode_content = msgspec.json.Decoder(_ContentEvent)


def answer_texts(stream: bytes) -> list[str]:
    """The text of each choice in a recorded stream, reasoning included; what is no content event is passed over."""
    texts: dict[int, list[str]] = {}
    for event in _split(stream):
        try:
            choices = _decode_content.decode(event_data(event)).choices
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        for choice in choices:
            delta = choice.delta or _Delta()
            pieces = (delta.reasoning, delta.reasoning_content, delta.content, choice.text)
            texts.setdefault(choice.index, []).extend(piece for piece in pieces if piece)
    return ["".join(pieces) for pieces in texts.values()]


def event_data(event: bytes) -> bytes:
    """The data of one event: its `data:` lines without the field name and one leading space, joined by newlines."""
    lines = (line for line in _LINE.split(event) if line.startswith(b"data:"))
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines).strip()


def error_event(body: bytes) -> bytes:
    """An error inside a stream that has begun, and its end, as the engines send it."""
    return b"data: " + body + b"\n\ndata: [DONE]\n\n"


def _end_of_last_event(data: bytes) -> int:
    if data.endswith(b"\n\n"):
        return len(data)
    end = 0
    for found in _BLANK_LINE.finditer(data):
        end = found.end()
    return end


def _split(events: bytes) -> Iterator[bytes]:
    start = 0
    for found in _BLANK_LINE.finditer(events):
        yield events[start : found.end()]
        start = found.end()
    if start < len(events):
        yield events[start:]
