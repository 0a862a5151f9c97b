"""The dialects that chat answers are translated into, told in words that they have in common.

chat answer, plain or as events  -->  translator of one dialect  -->  Told: what its client hears
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.edge.messages import MessagesTranslation
from gateway.edge.responses import ResponsesTranslation
from gateway.edge.translation import AnswerTranslator
from gateway.sse import event_data, split_events

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What a client hears. `calls` are id, name and arguments, decoded; `ending` is `whole`, `cut`, `failed`, or None
    where the stream has no end; `error` is its message."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[tuple[str, str, object], ...] = ()
    ending: str | None = "whole"
    error: str | None = None

    @property
    def called(self) -> list[tuple[str, object]]:
        """The calls without their ids."""
        return [(name, arguments) for _, name, arguments in self.calls]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One dialect: how its translators are made, and how its answers are heard."""

    name: str
    translator: Callable[[], AnswerTranslator]
    hear_plain: Callable[[Json], Told]
    hear_stream: Callable[[list[Json]], Told]

    def plain(self, answer: bytes) -> Told:
        """A plain answer, translated and heard."""
        return self.hear_plain(json.loads(self.translator().whole(answer)))

    def stream(self, events: Iterable[bytes]) -> Told:
        """A stream, fed event by event, translated and heard."""
        translator = self.translator()
        said = b"".join([translator.feed(one) for one in events])
        return self.hear_stream(decoded_events(said + translator.end(b"")))

    def refused(self, status: int, answer: bytes) -> str:
        """The words of a refusal."""
        message = json.loads(self.translator().refusal(status, answer))["error"]["message"]
        assert isinstance(message, str)
        return message


def decoded_events(said: bytes) -> list[Json]:
    """Events without comments."""
    return [json.loads(event_data(one)) for one in split_events(said) if not one.startswith(b":")]


def arguments_of(text: str) -> object:
    """Arguments from their text; none at all are an empty object."""
    return json.loads(text) if text else {}


_MESSAGE_ENDINGS = {"end_turn": "whole", "tool_use": "whole", "stop_sequence": "whole", "max_tokens": "cut"}


def _message(message: Mapping[str, Any]) -> Told:
    blocks: list[Json] = message["content"]
    return Told(
        "".join(block.get("thinking", "") for block in blocks),
        "".join(block.get("text", "") for block in blocks),
        tuple((block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"),
        _MESSAGE_ENDINGS.get(message["stop_reason"]),
    )


def _message_stream(events: list[Json]) -> Told:
    blocks: list[Json] = []
    reason, error = None, None
    for one in events:
        match one["type"]:
            case "content_block_start":
                blocks.append({**one["content_block"], "json": ""})
            case "content_block_delta":
                for key, piece in one["delta"].items():
                    name = {"partial_json": "json"}.get(key, key)
                    if name in ("text", "thinking", "json"):
                        blocks[one["index"]][name] += piece
            case "message_delta":
                reason = one["delta"]["stop_reason"]
            case "error":
                error = one["error"]["message"]
    for block in blocks:
        if block["type"] == "tool_use" and error is None:
            block["input"] = arguments_of(block["json"])
    heard = _message({"content": blocks, "stop_reason": reason})
    ended = any(one["type"] == "message_stop" for one in events)
    ending = heard.ending if ended else "failed" if error is not None else None
    return Told(heard.reasoning, heard.text, heard.calls, ending, error)


_RESPONSE_ENDINGS = {"completed": "whole", "incomplete": "cut", "failed": "failed"}


def _response(response: Json) -> Told:
    reasoning, text, calls = "", "", []
    for item in response["output"]:
        parts = item.get("content") or ()
        said = "".join(part.get("text", part.get("refusal", "")) for part in parts)
        if item["type"] == "reasoning":
            reasoning += said
        elif item["type"] == "message":
            text += said
        else:
            calls.append((item["call_id"], item["name"], arguments_of(item["arguments"])))
    error = response["error"]
    ending = _RESPONSE_ENDINGS[response["status"]]
    return Told(reasoning, text, tuple(calls), ending, None if error is None else error["message"])


def _response_stream(events: list[Json]) -> Told:
    final = [one for one in events if one["type"].removeprefix("response.") in _RESPONSE_ENDINGS]
    return _response(final[0]["response"]) if final else Told(ending=None)


MESSAGES = Dialect("messages", lambda: MessagesTranslation().translator({"model": "m"}), _message, _message_stream)
RESPONSES = Dialect(
    "responses", lambda: ResponsesTranslation().translator({"model": "m", "input": "Hi"}), _response, _response_stream
)
DIALECTS = (MESSAGES, RESPONSES)
