"""The answer on its way to the client: bytes pass as they come, a tee looks for usage and for the end.

    upstream chunk --> [ complete events | begun event ]
                          |                   `-- waits for its blank line (if longer than such an event can be: passes)
                          |-- none of its format's marks in it --> to the client at once, unparsed
                          `-- else, event by event (stream_format.py):
                                content               --> to the client
                                usage                 --> held (or dropped, if only the gateway asked for it)
                                the end               --> held

Only the usage event and the end are held back, never content: they are released when the ledger has the usage.
Memory: one begun event, and a bounded copy of the answer from which a cut stream is counted.
"""

from typing import Final

from billing import UsageMerger
from gateway.sse import BLANK_LINE, event_data, split_events
from gateway.stream_format import CONTENT, Kind, MiB, Seen, StreamFormat, as_usage, decode_answer
from gateway.surrogates import UNREADABLE

MOST_KEPT_BYTES: Final = MiB
"""How much of a stream is kept to count a cut one; beyond it the output of a cut stream is unknown."""
MOST_PLAIN_BYTES: Final = 64 * MiB
"""A plain answer longer than this is relayed, but its usage is not looked for."""


class StreamTee:
    """Looks at a server-sent event stream. `complete` once the end was seen; `failed` if the engine sent an error;
    `response_id` once the engine named what it keeps.

    Concatenating all that `feed` and `held` return gives the upstream's bytes, less the usage event where
    `keep_usage` is false. O(bytes) in C, plus a parse of each marked event.
    """

    def __init__(self, format: StreamFormat, *, keep_usage: bool) -> None:
        self.usage = UsageMerger()
        self.complete = False
        self.failed = False
        self.response_id: str | None = None
        self._format = format
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
            first = BLANK_LINE.search(data)
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

    def texts(self) -> list[str] | None:
        """The text of each choice so far; None where the stream was too long to keep. Linear, once it was cut."""
        return None if self._kept is None else self._format.texts(b"".join(self._kept))

    def _events(self, events: bytes, begun: bytes) -> bytes:
        out = self._look_into(events) if self._held or self._marked(events) else events
        self._begun = begun
        if len(begun) > self._format.largest_event_bytes:
            self._inside_large = True
            return out + self._pass_all_but_tail(begun)
        return out

    def _pass_all_but_tail(self, data: bytes) -> bytes:
        """Inside an event too long to hold: keep only what could be the first half of a blank line."""
        self._begun = data[-3:]
        return data[:-3]

    def _marked(self, data: bytes) -> bool:
        return any(mark in data for mark in self._format.marks)

    def _look_into(self, events: bytes) -> bytes:
        passed: list[bytes] = []
        for event in split_events(events):
            seen = self._format.look(event_data(event)) if self._marked(event) else CONTENT
            self._note(seen)
            if seen.kind is Kind.USAGE and not self._keep_usage:
                continue
            if seen.kind is Kind.CONTENT and not self.complete:
                passed += self._held
                self._held = []
                passed.append(event)
            else:
                self._held.append(event)
        return b"".join(passed)

    def _note(self, seen: Seen) -> None:
        if seen.usage is not None:
            self.usage.add(seen.usage)
        self.complete = self.complete or seen.kind is Kind.END
        self.failed = self.failed or seen.failed
        self.response_id = self.response_id or seen.response_id

    def _keep(self, chunk: bytes) -> None:
        if self._kept is not None:
            self._kept.append(chunk)
            self._kept_bytes += len(chunk)
            if self._kept_bytes > MOST_KEPT_BYTES:
                self._kept = None


class PlainTee:
    """Looks at a plain JSON answer: passes all but the last chunk, reads usage (and the answer's id) from the whole."""

    def __init__(self) -> None:
        self.usage = UsageMerger()
        self.response_id: str | None = None
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
            part = decode_answer(b"".join(self._pieces))
        except UNREADABLE:
            return self._last
        usage = as_usage(part.usage)
        if usage is not None:
            self.usage.add(usage)
        self.response_id = part.id if isinstance(part.id, str) else None
        return self._last


def _end_of_last_event(data: bytes) -> int:
    if data.endswith(b"\n\n"):
        return len(data)
    end = 0
    for found in BLANK_LINE.finditer(data):
        end = found.end()
    return end
