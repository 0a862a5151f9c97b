"""The answer on its way to the client: bytes pass as they come, a tee looks for usage and for the end.

    upstream chunk --> [ complete events | begun event ]
                          |                   `-- waits for its blank line (if longer than such an event can be: passes)
                          |-- none of its format's marks in it --> to the client at once, unparsed
                          `-- else, from the first marked event on, one by one (stream_format.py):
                                content               --> to the client
                                usage                 --> held (or dropped, if only the gateway asked for it)
                                the end               --> held

Only the usage event and the end are held back, never content: they are released when the ledger has the usage.

Cost: under 1 µs for a chunk of whole events without marks, which is nearly every chunk there is: it is searched for
the marks in C, appended to the copy, and handed on as it is. Each byte is searched once. A begun event grows in place;
of what it was before only the last three bytes are looked at again, since a blank line may have begun there. It used to
be joined to each chunk and searched anew, which for an event of 16 MiB in chunks of 64 KiB was 2 GiB of copying and
searching.
Memory: one begun event, and a bounded copy of the answer from which a cut stream is counted: its bytes in one piece and
an eighth more at most, where a list of chunks needed half as much again for events of 80 bytes.
"""

from collections import deque
from typing import Final

from billing import UsageMerger
from gateway.sse import LONGEST_BLANK_LINE_BYTES, end_of_last_event, event_data, event_ends, split_events
from gateway.stream_format import (
    CONTENT,
    AnswerPart,
    KiB,
    Kind,
    MiB,
    Seen,
    StreamFormat,
    as_usage,
    decode_answer,
    usage_at_end,
)
from gateway.surrogates import UNREADABLE

MOST_KEPT_BYTES: Final = MiB
"""How much of an answer is kept, to count one that is cut and to learn from any; a longer one is neither counted nor
learned from."""
MOST_PLAIN_BYTES: Final = 16 * MiB
"""A plain answer up to this is kept and read as a whole: 1,000 embeddings of 1,000 dimensions, or a million tokens of
text four times over. Of a longer one only the tail is kept, where engines put the usage."""
PLAIN_TAIL_BYTES: Final = 64 * KiB
LOOP_SAFE_ANSWER_BYTES: Final = 512 * KiB
"""A plain answer that may be joined and read on the event loop: under 1 ms."""
_USUAL_ENDS: Final = (b"\n\n", b"\r\n\r\n")
_MOST_BEGUN_BLANK_LINE_BYTES: Final = LONGEST_BLANK_LINE_BYTES - 1


class StreamTee:
    """Looks at a server-sent event stream. `began` once a token was seen, `complete` once the end was; `failed` if the
    engine sent an error; `response_id` once the engine named what it keeps; `uncounted` while text has passed since the
    engine last told its usage.

    Concatenating all that `feed` and `held` return gives the upstream's bytes, less the usage event where
    `keep_usage` is false. O(bytes) in C whatever the chunks, plus a parse of each marked event.
    """

    __slots__ = (
        "_begun",
        "_format",
        "_held",
        "_held_bytes",
        "_inside_large",
        "_keep_usage",
        "_kept",
        "_marks",
        "_null_marks",
        "began",
        "complete",
        "failed",
        "response_id",
        "uncounted",
        "usage",
    )

    content_type: Final = None
    """The client gets the engine's."""
    is_long: Final = False
    """`held` costs nothing."""

    def __init__(self, format: StreamFormat, *, keep_usage: bool) -> None:
        self.usage = UsageMerger()
        self.began = False
        self.complete = False
        self.failed = False
        self.uncounted = False
        self.response_id: str | None = None
        self._format = format
        self._marks = format.marks
        self._null_marks = format.null_marks
        self._keep_usage = keep_usage
        self._begun = bytearray()
        self._inside_large = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._kept: bytearray | None = bytearray()

    @property
    def inside_event(self) -> bool:
        """Whether a part of an event has passed that is not whole yet: what is not of it must follow a blank line."""
        return self._inside_large

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk, give what may pass now; often the chunk itself."""
        if self._kept is not None:
            self._keep(chunk)
        if self._inside_large:
            return self._leave_large(chunk)
        if not self._begun:
            cut = _end_of_last_event(chunk)
            if cut == len(chunk) and not self._held and self._first_mark(chunk) == cut:
                if not self.uncounted:  # else a token was seen already, and no usage since
                    self._note_tokens(chunk)
                return chunk
            return self._events(chunk[:cut], chunk[cut:])
        unsearched = max(0, len(self._begun) - _MOST_BEGUN_BLANK_LINE_BYTES)
        self._begun += chunk
        cut = _end_of_last_event(self._begun, unsearched)
        if not cut:
            return self._pass_if_large(b"")
        whole = bytes(self._begun)
        return self._events(whole[:cut], whole[cut:])

    def held(self) -> bytes:
        """The usage event and the end, and a begun event that never was finished."""
        rest = self._released() + self._begun
        self._begun = bytearray()
        return rest

    def end_here(self, events: bytes) -> None:
        """The engine is gone, and the end was all that was missing: what has begun is dropped, `events` end the stream.
        It has `failed` where it did not even say its usage."""
        self._begun = bytearray()
        self._held.append(events)
        self.complete, self.failed = True, not self.usage.seen

    def texts(self) -> list[str] | None:
        """The text of each choice so far; None where the stream was too long to keep. Linear, once it was cut."""
        kept = self.kept()
        return None if kept is None else self._format.texts(kept)

    def kept(self) -> bytes | None:
        """The stream so far, as it came; None where it was too long to keep. At most `MOST_KEPT_BYTES` are copied."""
        return None if self._kept is None else bytes(self._kept)

    def _leave_large(self, chunk: bytes) -> bytes:
        """The rest of an event of which the beginning has passed, and what follows it."""
        self._begun += chunk
        end = next(event_ends(self._begun), None)
        if end is None:
            return self._pass_all_but_tail()
        self._inside_large = False
        whole = bytes(self._begun)
        cut = _end_of_last_event(whole)
        return whole[:end] + self._events(whole[end:cut], whole[cut:])

    def _events(self, events: bytes, begun: bytes) -> bytes:
        """Whole events, and the beginning of the next."""
        if self._held:
            out = self._look_into(events)
        elif (first := self._first_mark(events)) < len(events):
            out = self._look_from(first, events)
        else:
            out = events
            self._note_tokens(events)
        if begun or self._begun:
            self._begun = bytearray(begun)
        return self._pass_if_large(out)

    def _pass_if_large(self, out: bytes) -> bytes:
        if len(self._begun) <= self._format.largest_event_bytes:
            return out
        self._inside_large = self.began = self.uncounted = True
        return out + self._released() + self._pass_all_but_tail()

    def _pass_all_but_tail(self) -> bytes:
        """Inside an event too long to hold: keep only what could be the first half of a blank line."""
        tail = self._begun[-_MOST_BEGUN_BLANK_LINE_BYTES:]
        passed = bytes(self._begun[:-_MOST_BEGUN_BLANK_LINE_BYTES])
        self._begun = tail
        return passed

    def _first_mark(self, data: bytes) -> int:
        """Where the first mark stands that says something, the end of the data where none does."""
        first = len(data)
        for mark in self._marks:
            at = data.find(mark, 0, first)
            while at >= 0 and data.startswith(self._null_marks, at):
                at = data.find(mark, at + len(mark), first)
            if at >= 0:
                first = at
        return first

    def _look_from(self, first: int, events: bytes) -> bytes:
        """Nothing is held: what stands before the event with the first mark passes as it is."""
        start = _end_of_last_event(events[:first])
        self._note_tokens(events[:start])
        return events[:start] + self._look_into(events[start:])

    def _look_into(self, events: bytes) -> bytes:
        passed: list[bytes] = []
        for event in split_events(events):
            seen = self._format.look(event_data(event)) if self._first_mark(event) < len(event) else CONTENT
            self._note_tokens(event)
            self._note(seen)
            if seen.kind is Kind.CONTENT and not self.complete:
                passed += (self._released(), event)
            else:
                dropped = seen.kind is Kind.USAGE and not self._keep_usage
                self._held.append(_line_ends_before(event) if dropped else event)
                self._held_bytes += len(self._held[-1])
                if self._held_bytes > 2 * self._format.largest_event_bytes:  # no end looks like this
                    passed.append(self._released())
        return b"".join(passed)

    def _released(self) -> bytes:
        """What was held, as it came; nothing is held any more."""
        released = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        return released

    def _note(self, seen: Seen) -> None:
        if seen.usage is not None:
            self.usage.add(seen.usage)
            self.uncounted = False
        self.complete = self.complete or seen.kind is Kind.END
        self.failed = self.failed or seen.failed
        self.response_id = self.response_id or seen.response_id

    def _note_tokens(self, events: bytes) -> None:
        if not self.uncounted and any(mark in events for mark in self._format.token_marks):
            self.began = self.uncounted = True

    def _keep(self, chunk: bytes) -> None:
        assert self._kept is not None
        self._kept += chunk
        if len(self._kept) > MOST_KEPT_BYTES:
            self._kept = None


class PlainTee:
    """Looks at a plain JSON answer: passes all but the last chunk, reads usage (and the answer's id) from the whole.
    `began`: it is an answer and no error.

    Of an answer longer than `MOST_PLAIN_BYTES` only the tail is looked into: its id stays unknown, and its usage is
    found where it stands among the last `PLAIN_TAIL_BYTES`. `feed` is O(chunk), `held` O(bytes kept).
    """

    content_type: Final = None
    """The client gets the engine's."""

    def __init__(self) -> None:
        self.usage = UsageMerger()
        self.began = False
        self.response_id: str | None = None
        self._pieces: deque[bytes] = deque()
        self._kept_bytes = 0
        self._overlong = False
        self._last = b""

    @property
    def is_long(self) -> bool:
        """Whether `held` takes so long that it belongs in a thread."""
        return self._kept_bytes > LOOP_SAFE_ANSWER_BYTES

    def feed(self, chunk: bytes) -> bytes:
        """Give the chunk before this one; this one is the last until another comes."""
        passed, self._last = self._last, chunk
        self._pieces.append(chunk)
        self._kept_bytes += len(chunk)
        self._overlong = self._overlong or self._kept_bytes > MOST_PLAIN_BYTES
        if self._overlong:
            while self._kept_bytes - len(self._pieces[0]) >= PLAIN_TAIL_BYTES:
                self._kept_bytes -= len(self._pieces.popleft())
        return passed

    def held(self) -> bytes:
        """The last chunk; reads the usage of the answer on the way. May run in a thread while nothing is fed."""
        part = self._read(b"".join(self._pieces))
        usage = as_usage(part.usage)
        if usage is not None:
            self.usage.add(usage)
        self.began = usage is not None or part.says_something or self._overlong
        self.response_id = part.id if isinstance(part.id, str) else None
        return self._last

    def kept(self) -> bytes | None:
        """The answer so far, as it came; None where it is longer than `MOST_KEPT_BYTES`, which are copied at most."""
        too_long = self._overlong or self._kept_bytes > MOST_KEPT_BYTES
        return None if too_long else b"".join(self._pieces)

    def _read(self, kept: bytes) -> AnswerPart:
        if self._overlong:
            return AnswerPart(usage=usage_at_end(kept[-PLAIN_TAIL_BYTES:]))
        try:
            return decode_answer(kept)
        except UNREADABLE:
            return AnswerPart()


def _line_ends_before(event: bytes) -> bytes:
    """What of an event belongs to the one before it: the rest of a blank line that was cut."""
    return event[: len(event) - len(event.lstrip(b"\r\n"))]


def _end_of_last_event(data: bytes | bytearray, unsearched: int = 0) -> int:
    """Where the last whole event ends, 0 where none does; before `unsearched` there is no blank line."""
    if data.endswith(_USUAL_ENDS):
        return len(data)
    return end_of_last_event(data, unsearched)
