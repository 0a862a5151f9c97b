"""Requests to try on real engines, in every dialect.

    tests/data/corpora, data/hard.jsonl, $REQUESTS --> bodies           as clients send them
    a chat                                         --> in_dialect       the same conversation in other dialects
    a chat of several turns                        --> conversations    its growing prefixes, one request a turn

`REQUESTS` may name a folder with more files of the same form. What a dialect cannot say is left out.
"""

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.edge.splice import add_fields
from tests.gateway.corpora import NotConvertible, as_messages, as_responses, rows, rows_of

HARD = Path(__file__).with_name("data") / "hard.jsonl"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
DIALECTS = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)

_SHORT = {
    CHAT: {"max_tokens": b"1", "max_completion_tokens": b"1", "stream_options": b"null"},
    COMPLETIONS: {"max_tokens": b"1", "stream_options": b"null"},
    MESSAGES: {"max_tokens": b"1"},
    RESPONSES: {"max_output_tokens": b"1"},
}
_TALKS = ("mtbench", "glaive", "tau", "sweagent")
_CONVERT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {MESSAGES: as_messages, RESPONSES: as_responses}


@dataclass(frozen=True, slots=True)
class Body:
    """One request: its name in the corpora, the route, and the bytes a client would send."""

    name: str
    path: str
    raw: bytes

    def decoded(self) -> dict[str, Any]:
        """The body as Python; raises `ValueError` for what is no JSON."""
        value: dict[str, Any] = json.loads(self.raw.decode("utf-8-sig"))
        return value


@functools.cache
def bodies() -> tuple[Body, ...]:
    """All requests; of rows with one id the first counts."""
    found = [*rows(""), *rows_of(HARD)]
    if more := os.environ.get("REQUESTS"):
        found += [row for path in sorted(Path(more).glob("*.jsonl*")) for row in rows_of(path)]
    first: dict[str, Body] = {}
    for row in found:
        if row.endpoint in DIALECTS:
            first.setdefault(row.id, Body(row.id, row.endpoint, row.raw))
    return tuple(first.values())


@functools.cache
def in_dialect(path: str) -> tuple[Body, ...]:
    """The requests of one dialect: those that are written in it, and the chats that can be said in it."""
    own = tuple(body for body in bodies() if body.path == path)
    if path not in _CONVERT:
        return own
    return own + tuple(said for chat in in_dialect(CHAT) if (said := _said(chat, path)) is not None)


def one_token(body: Body) -> bytes:
    """The bytes of a request, with an answer of one token and no stream. Bytes that are no object stay as they are."""
    if not body.raw.rstrip().endswith(b"}") or b":" not in body.raw:
        return body.raw
    return add_fields(body.raw, {**_SHORT[body.path], "stream": b"false"})


def conversations(longest_bytes: int) -> Iterator[tuple[Body, ...]]:
    """Chats of several turns, each as the requests that led to it: one at every point where an answer follows."""
    for chat in in_dialect(CHAT):
        if not chat.name.startswith(_TALKS) or len(chat.raw) > longest_bytes:
            continue
        request = chat.decoded()
        messages = request["messages"]
        ends = [end for end in range(1, len(messages) + 1) if _answer_follows(messages, end)]
        if len(ends) > 1:
            yield tuple(
                Body(f"{chat.name}#{turn}", CHAT, _encoded({**request, "messages": messages[:end]}))
                for turn, end in enumerate(ends)
            )


def _answer_follows(messages: list[dict[str, Any]], end: int) -> bool:
    following = messages[end]["role"] if end < len(messages) else "assistant"
    return messages[end - 1]["role"] in ("user", "tool") and following == "assistant"


def _said(chat: Body, path: str) -> Body | None:
    try:
        raw = _encoded(_CONVERT[path](chat.decoded()))
    except (NotConvertible, ValueError, KeyError, TypeError, AttributeError):
        return None  # no conversation, or one that the dialect or JSON has no words for
    return Body(f"{chat.name}@{path.rpartition('/')[2]}", path, raw)


def _encoded(request: dict[str, Any]) -> bytes:
    """As most clients write it; with escapes where UTF-8 cannot spell the text."""
    try:
        return json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return json.dumps(request, allow_nan=False).encode()
