"""What passes between a gateway and an engine on one connection, cut into exchanges and read: HTTP/1.1, no pipelining.

    gateway --- bytes ---> engine        the first bytes after an answer begin an exchange
    gateway <-- bytes ---- engine        read when the next begins, or when the connection ends

Only what computes is kept: POST requests that carry the gateway's request id.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from bench.faults.types import Computed, Counts

_ID: Final = re.compile(rb"^x-request-id: *(\S+)", re.IGNORECASE | re.MULTILINE)
_LENGTH: Final = re.compile(rb"^content-length: *(\d+)", re.IGNORECASE | re.MULTILINE)
_CHUNKED: Final = re.compile(rb"^transfer-encoding: *chunked", re.IGNORECASE | re.MULTILINE)
_ANSWER: Final = re.compile(rb'"id": ?"([^"]+)"')
_HEAD_END: Final = b"\r\n\r\n"
_COMPUTES: Final = re.compile(rb"POST \S*/(?:chat/completions|completions|responses|messages|generate\S*|api/\w+) ")


class Wire:
    """Listens to one connection; tells `keep` of each exchange that has ended."""

    def __init__(
        self, gateway: str, endpoint: str, clock: Callable[[], float], keep: Callable[[Computed], None]
    ) -> None:
        self._gateway = gateway
        self._endpoint = endpoint
        self._clock = clock
        self._keep = keep
        self._sent = bytearray()
        self._got = bytearray()
        self._began_s = self._last_s = 0.0

    @property
    def is_answering(self) -> bool:
        """Whether a stream is under way of which the client may have seen something."""
        head, separator, rest = bytes(self._got).partition(_HEAD_END)
        return bool(separator and rest) and _COMPUTES.match(self._sent) is not None and not read_body(head, rest)[1]

    def sent(self, data: bytes) -> None:
        """Bytes towards the engine."""
        if self._got:
            self.ended()
        if not self._sent:
            self._began_s = self._last_s = self._clock()
        self._sent += data

    def got(self, data: bytes) -> None:
        """Bytes of the engine."""
        self._got += data
        self._last_s = self._clock()

    def ended(self) -> None:
        """The exchange is over, or the connection."""
        sent, got = bytes(self._sent), bytes(self._got)
        self._sent, self._got = bytearray(), bytearray()
        found = _ID.search(sent.partition(_HEAD_END)[0])
        if found is None or not _COMPUTES.match(sent):
            return
        head, separator, rest = got.partition(_HEAD_END)
        if not separator:  # of a head that is not whole nothing is believed
            head = rest = b""
        body, is_whole = read_body(head, rest)
        usage, events, _ = read_answer(body)
        name = _ANSWER.search(body)
        self._keep(
            Computed(
                gateway=self._gateway,
                endpoint=self._endpoint,
                request_id=found.group(1).decode(),
                began_s=self._began_s,
                ended_s=self._last_s,
                status=int(head.split(b" ", 2)[1]) if head else None,
                body=body,
                is_whole=bool(head) and is_whole,
                usage=usage,
                events=events,
                answer_id=None if name is None else name.group(1).decode(),
            )
        )


def read_body(head: bytes, rest: bytes) -> tuple[bytes, bool]:
    """The body as far as it came, and whether that is all of it. O(bytes)."""
    if _CHUNKED.search(head):
        return _dechunked(rest)
    length = _LENGTH.search(head)
    if length is None:
        return rest, False
    return rest, len(rest) >= int(length.group(1))


def _dechunked(rest: bytes) -> tuple[bytes, bool]:
    at = 0
    parts: list[bytes] = []
    while True:
        line_end = rest.find(b"\r\n", at)
        if line_end < 0:
            return b"".join(parts), False
        size = int(rest[at:line_end].partition(b";")[0] or b"0", 16)
        if not size:
            return b"".join(parts), rest.endswith(_HEAD_END)
        parts.append(rest[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2
        if at > len(rest):
            return b"".join(parts), False


def read_answer(body: bytes) -> tuple[Counts, int, str]:
    """Usage, number of events with text, and the text, of a stream or a plain answer of the chat or completions kind.

    What cannot be read (an event that was cut) is left out.
    """
    usage, events, texts = Counts(), 0, []
    pieces = [line[5:].strip() for line in body.splitlines() if line.startswith(b"data:")] or [body]
    for piece in pieces:
        try:
            said = json.loads(piece)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if isinstance(said.get("usage"), dict):
            usage = counts_of(said["usage"])
        text = "".join(_text_of(choice) for choice in said.get("choices") or ())
        if text:
            events += 1
            texts.append(text)
    return usage, events, "".join(texts)


def counts_of(usage: Mapping[str, object]) -> Counts:
    """Usage as an engine says it."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    prompt, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Counts(*(value if isinstance(value, int) else None for value in (prompt, cached, output)))


def _text_of(choice: Mapping[str, object]) -> str:
    for name in ("delta", "message"):
        part = choice.get(name)
        if isinstance(part, Mapping):
            content = part.get("content")
            return content if isinstance(content, str) else ""
    text = choice.get("text")
    return text if isinstance(text, str) else ""
