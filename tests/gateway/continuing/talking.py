"""Engines that write one text, word by word, and go on with it where a request says that they have begun."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.scripted_engine import event
from tests.hostile import Behaviour, Peer

WORDS = ("The", " books", " on", " gravity", " stand", ' in "B"', "\n\nnext", " to 💡", ".")
TEXT = "".join(WORDS)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


@dataclass(frozen=True)
class Dialect:
    """Chats, or completions."""

    chat: bool = True

    def said(self, body: dict[str, Any]) -> str:
        """What the request says has been written."""
        if not self.chat:
            return str(body["prompt"]).removeprefix("Where?")
        return str(body["messages"][-1]["content"]) if body.get("continue_final_message") else ""

    def chunk(self, name: str, says: dict[str, Any] | str, finish: str | None = None) -> bytes:
        """One event with a choice."""
        text = {"text": says} if isinstance(says, str) and not self.chat else {}
        delta = {"delta": {"content": says} if isinstance(says, str) else says} if self.chat else {}
        choice = {"index": 0, **text, **delta, "logprobs": None, "finish_reason": finish}
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return event({"id": name, "object": kind, "created": len(name), "model": "m", "choices": [choice]})


def events(name: str, dialect: Dialect, body: dict[str, Any], words: Sequence[str] = WORDS) -> list[bytes]:
    """The events of an answer that goes on behind what the body says was written; words must have been cut whole."""
    said, left = dialect.said(body), list(words)
    while said:
        assert said.startswith(left[0]), (said, left)
        said = said.removeprefix(left.pop(0))
    told = [dialect.chunk(name, {"role": "assistant", "content": ""})] if dialect.chat else []
    told += [dialect.chunk(name, word) for word in left]
    told.append(dialect.chunk(name, {} if dialect.chat else "", "stop"))
    prompt = 40 + len(words) - len(left)
    usage = {"prompt_tokens": prompt, "completion_tokens": len(left), "total_tokens": prompt + len(left)}
    usage_event = {"id": name, "created": len(name), "choices": [], "usage": usage}
    if (body.get("stream_options") or {}).get("include_usage"):
        told.append(event({**usage_event, "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 16}}}))
    return [*told, b"data: [DONE]\n\n"]


@dataclass
class Scene:
    """Two or more engines that know of each other: the first request of each client dies after `cut` bytes of its
    stream, `cuts` has the ends of further ones. `bodies` are those of all requests, in order."""

    dialect: Dialect = field(default_factory=Dialect)
    cuts: list[int | None] = field(default_factory=list)
    by_reset: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def engine(self, name: str) -> Behaviour:
        """The script of one engine."""

        async def behave(peer: Peer) -> None:
            request = await peer.read_request()
            body = json.loads(request.partition(b"\r\n\r\n")[2])
            self.bodies.append(body)
            stream = b"".join(events(name, self.dialect, body))
            cut = self.cuts.pop(0) if self.cuts else None
            await peer.send(HEAD + chunked(stream if cut is None else stream[:cut]))
            if cut is not None and self.by_reset:
                return
            await peer.send(b"0\r\n\r\n")

        return behave


@dataclass
class Heard:
    """What a client makes of a stream, by the letter of server-sent events."""

    text: str = ""
    ids: set[str] = field(default_factory=set)
    created: set[int] = field(default_factory=set)
    roles: int = 0
    finishes: list[str] = field(default_factory=list)
    usages: list[dict[str, Any]] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    done: int = 0
    errors: list[Any] = field(default_factory=list)


def heard(stream: bytes) -> Heard:
    """Read a whole stream; every line must be one that a client knows, every event whole."""
    found = Heard()
    assert stream.endswith(b"\n\n") or not stream
    for block in stream.decode().split("\n\n"):
        for line in filter(None, block.split("\n")):
            if line.startswith(":"):
                found.comments.append(line)
                continue
            assert line.startswith("data: "), line
            data = line.removeprefix("data: ")
            if data == "[DONE]":
                found.done += 1
                continue
            assert not found.done
            _take(found, json.loads(data))
    return found


def _take(found: Heard, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        found.errors.append(chunk["error"])
        return
    found.ids.add(chunk["id"])
    found.created.add(chunk["created"])
    if chunk.get("usage"):
        found.usages.append(chunk["usage"])
    for choice in chunk["choices"]:
        delta = choice.get("delta") or {}
        found.roles += "role" in delta
        found.text += delta.get("content") or choice.get("text") or ""
        if choice["finish_reason"] is not None:
            found.finishes.append(choice["finish_reason"])
