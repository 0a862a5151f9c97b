"""Chat answers for the tests of the Responses dialect, plain and as the streams that say the same."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.edge.responses import ResponsesTranslation
from gateway.edge.responses_stream import ResponsesAnswer
from gateway.sse import event_data, split_events

Json = dict[str, Any]
USAGE: Json = {
    "prompt_tokens": 20,
    "completion_tokens": 7,
    "total_tokens": 27,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
DONE = b"data: [DONE]\n\n"


def answer_to(**body: object) -> ResponsesAnswer:
    """The translator of the answer to this request, with a clock and ids that stand still."""
    translation = ResponsesTranslation(clock=lambda: 17.9, new_name=lambda: "made")
    return translation.translator({"model": "asked", "input": "Hi", **body})


def event(chunk: object) -> bytes:
    """A chunk as an event."""
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def chunk(delta: Json, finish: str | None = None, index: int = 0, **more: object) -> bytes:
    """A chunk of one choice as an event."""
    choice: Json = {"index": index, "delta": delta, "finish_reason": finish, **more}
    return event(
        {"id": "chatcmpl-x", "object": "chat.completion.chunk", "created": 5, "model": "m", "choices": [choice]}
    )


def usage_event(usage: Json = USAGE) -> bytes:
    """The event that ends a stream but for its mark."""
    return event({"id": "chatcmpl-x", "created": 5, "model": "m", "choices": [], "usage": usage})


def fragment(index: int, **fields: str) -> Json:
    """A delta with a piece of a call: `id`, `name`, `arguments`."""
    function = {key: fields[key] for key in ("name", "arguments") if key in fields}
    given = {"id": fields["id"], "type": "function"} if "id" in fields else {}
    return {"tool_calls": [{"index": index, **given, "function": function}]}


def plain(message: Json, finish: str | None = "stop", usage: Json | None = USAGE) -> Json:
    """A chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
    return {"id": "chatcmpl-x", "created": 5, "model": "m", "choices": [choice], "usage": usage}


def whole(message: Json, finish: str | None = "stop", usage: Json | None = USAGE, **body: object) -> Json:
    """The response to a plain chat completion."""
    return decoded(answer_to(**body).whole(json.dumps(plain(message, finish, usage)).encode()))


def streamed(chunks: Iterable[bytes], usage: bytes | None = None, **body: object) -> list[Json]:
    """The events that a whole stream of these chunks becomes; each is checked to be named after its type."""
    answer = answer_to(**body)
    said = answer.feed(b"".join(chunks)) + answer.end((usage_event() if usage is None else usage) + DONE)
    return events_of(said)


def events_of(said: bytes) -> list[Json]:
    """Events as JSON."""
    events = []
    for one in split_events(said):
        parsed = decoded(event_data(one))
        assert one.startswith(b"event: %s\n" % parsed["type"].encode())
        events.append(parsed)
    return events


def kinds(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Their types without the common word."""
    return [one["type"].removeprefix("response.") for one in events]


def decoded(answer: bytes) -> Json:
    """An object from JSON."""
    parsed = json.loads(answer)
    assert isinstance(parsed, dict)
    return parsed
