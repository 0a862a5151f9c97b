"""Two streams as one: what another endpoint goes on with looks to the client like more of what it has.

    first    id A   role   "Hel" "lo"                                   died
    second   id B   role   " wor" "ld"  finish  usage (its prompt was ours and "Hello")  [DONE]
    client   id A   role   "Hel" "lo"   : prefixgate-continued 1   " wor" "ld"  finish  usage, of all  [DONE]

The mark is a comment: a line that readers of server-sent events pass over. Chunks pass with the first stream's id and
time in place of the second's, replaced as bytes; only those that name a role, a usage, or the ids of the prompt are
read and written anew. In JSON a quote inside a text is escaped, so what is replaced is never a client's text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gateway.continuing.reading import is_clients_fault
from gateway.continuing.types import Said
from gateway.edge.translation import AnswerTranslator
from gateway.errors import UpstreamFailed
from gateway.relay import StreamTee
from gateway.sse import event_data, split_events
from gateway.stream_format import END_MARK, ChatFormat, Kind, Seen, decode_answer
from gateway.surrogates import UNREADABLE, decode

Composed = Callable[[Mapping[str, Any]], dict[str, Any]]
"""The usage of the second stream as that of all of the answer."""

_MARKS: Final = (b'"role"', b'"usage"', b'"prompt_token_ids"')
_KEPT: Final = ("id", "created")
"""Of the first stream, in all chunks."""
_object: Final = msgspec.json.Decoder(dict[str, Any])


def mark(number: int) -> bytes:
    """What stands in a stream where another endpoint has gone on with it, for the `number`-th time."""
    return b": prefixgate-continued %d\n\n" % number


class FailuresHeld(ChatFormat):
    """Chat completions and completions whose engine's own failure is no content: it is held back like the end, so that
    another endpoint can go on in its place. A fault of the client's (4xx) passes."""

    def look(self, data: bytes) -> Seen:
        """As `ChatFormat`, but for failures."""
        seen = super().look(data)
        if not seen.failed or is_clients_fault(decode_answer(data).error):
            return seen
        return Seen(Kind.END, seen.usage, failed=True)


class Joined:
    """Chunks of a second stream as chunks of the first. Keeps what names it, once that is known."""

    def __init__(self, said: Said, composed: Composed) -> None:
        self._said = said
        self._composed = composed
        self._first = _object_of(said.opening)
        self._renames: list[tuple[bytes, bytes]] | None = None if self._first else []

    def chunks(self, events: bytes) -> bytes:
        """Whole events of the second stream, as they go to the client. O(bytes) in C, but for events with a mark."""
        if not self._said.opening:
            return events  # the client has nothing that these would have to go with
        if self._renames is None:
            self._learn(events)
        for theirs, ours in self._renames or ():
            events = events.replace(theirs, ours)
        if any(one in events for one in _MARKS):
            return b"".join(map(self._mended, split_events(events)))
        return events

    def _learn(self, events: bytes) -> None:
        """How the second stream spells what the first one named, from its first chunk."""
        for event in split_events(events):
            data = event_data(event)
            if data and data != END_MARK:
                theirs = _object_of(data)
                found = [_spelled(data, name, theirs.get(name)) for name in _KEPT]
                ours = [_spelled(self._said.opening, name, self._first.get(name)) for name in _KEPT]
                pairs = zip(found, ours, strict=True)
                self._renames = [(one, other) for one, other in pairs if one and other and one != other]
                return

    def _mended(self, event: bytes) -> bytes:
        """One event, without what the client has been told already."""
        data = event_data(event)
        if not any(one in data for one in _MARKS):
            return event
        chunk = _object_of(data)
        if not chunk:
            return event
        chunk.pop("prompt_token_ids", None)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            chunk["usage"] = self._composed(usage)
        listed = chunk.get("choices")
        choices = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        told = [self._without_role(one) for one in choices]
        if choices and not any(told) and not isinstance(usage, dict):
            return b""
        return b"data: %s\n\n" % msgspec.json.encode(chunk)

    def _without_role(self, choice: dict[str, Any]) -> bool:
        """Take the role out of a choice; whether something is left that says anything."""
        choice.pop("prompt_token_ids", None)
        delta = choice.get("delta")
        if not isinstance(delta, dict) or "role" not in delta:
            return True
        if self._said.role:
            del delta["role"]
        left = any(value for name, value in delta.items() if name != "role")
        return left or not self._said.role or choice.get("finish_reason") is not None


class ContinuedStream:
    """The way to the client of what another endpoint goes on with: an outlet as the others (`relay`, `translated`).

    `tee` is what the settler reads: the second stream alone. `translator` is the one that has read the first, where the
    answer goes out in another dialect; `head` goes out before all else.
    """

    content_type: Final = None
    is_long: Final = False

    def __init__(self, tee: StreamTee, joined: Joined, translator: AnswerTranslator | None, head: bytes) -> None:
        self.tee = tee
        self._joined = joined
        self.translator = translator
        self._head = head

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of the engine's, give what may go to the client now.

        Raises `UpstreamFailed` where an event is too long to be translated.
        """
        passed = self.tee.feed(chunk)
        if self.translator is not None and self.tee.inside_event:
            raise UpstreamFailed("an event of the answer is too long to be translated")
        return self._through(passed) if passed else b""

    def held(self) -> bytes:
        """The usage event, composed, and the end."""
        held = self._joined.chunks(self.tee.held())
        return self._through_head() + (held if self.translator is None else self.translator.end(held))

    def _through(self, passed: bytes) -> bytes:
        chunks = self._joined.chunks(passed)
        said = chunks if self.translator is None or not chunks else self.translator.feed(chunks)
        return self._through_head() + said if said else b""

    def _through_head(self) -> bytes:
        head, self._head = self._head, b""
        return head


def ending(said: Said, usage: Mapping[str, Any] | None, *, limit_reached: bool) -> bytes:
    """The events that are missing at the end of a stream: that it reached its limit, its usage (None: it is not asked
    for), that it is done. In the words of the stream that died."""
    events = []
    opening = _object_of(said.opening)
    head = {name: value for name, value in opening.items() if name not in ("choices", "usage", "prompt_token_ids")}
    if limit_reached:
        is_chat = any("delta" in one for one in opening.get("choices") or () if isinstance(one, dict))
        says: dict[str, object] = {"delta": {}} if is_chat else {"text": ""}
        events.append(head | {"choices": [{"index": 0, **says, "logprobs": None, "finish_reason": "length"}]})
    if usage is not None:
        events.append(head | {"choices": [], "usage": usage})
    return b"".join(b"data: %s\n\n" % msgspec.json.encode(event) for event in events) + b"data: [DONE]\n\n"


def _object_of(data: bytes) -> dict[str, Any]:
    """A chunk as JSON, empty where it is none."""
    try:
        return decode(_object, data) if data else {}
    except UNREADABLE:
        return {}


def _spelled(data: bytes, name: str, value: object) -> bytes | None:
    """A member of a chunk as it is written there, key and all; None where it is not there, or written in a way of its
    own."""
    if not isinstance(value, str | int):
        return None
    written = rb'"%s"\s*:\s*%s' % (name.encode(), re.escape(msgspec.json.encode(value)))
    found = re.search(written + (b"" if isinstance(value, str) else rb"(?=\s*[,}])"), data)
    return None if found is None else found[0]
