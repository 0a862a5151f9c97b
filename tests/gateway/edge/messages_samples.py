"""Chat answers to translate: one answer, as a plain completion and as the events of a stream that says the same."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from gateway.edge.messages import MessagesTranslation
from gateway.edge.translation import AnswerTranslator
from gateway.sse import event_data, split_events

DONE = b"data: [DONE]\n\n"
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 7,
    "total_tokens": 107,
    "prompt_tokens_details": {"cached_tokens": 64},
}


def translator() -> AnswerTranslator:
    return MessagesTranslation().translator({"model": "asked"})


def chunk(delta: Mapping[str, object] | None, *, index: int = 0, **fields: object) -> bytes:
    """One event with one choice; `fields` go into the choice."""
    choice = {"index": index, "delta": delta, "finish_reason": None, **fields}
    return event({"id": "chatcmpl-1", "model": "m", "choices": [choice]})


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def usage_event(usage: object = USAGE) -> bytes:
    return event({"id": "chatcmpl-1", "model": "m", "choices": [], "usage": usage})


def call(index: int | None = 0, id: str | None = None, name: str | None = None, arguments: object = None) -> bytes:
    """One event with a fragment of a call; what is None is absent."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment = {"index": index, "id": id, "function": function}
    return chunk({"tool_calls": [{key: value for key, value in fragment.items() if value is not None}]})


def said(events: bytes) -> list[dict[str, Any]]:
    """The events of a Messages stream, decoded, without comments; each must carry its type as its name."""
    found = []
    for one in split_events(events):
        if one.startswith(b":"):
            continue
        data = json.loads(event_data(one))
        assert one.startswith(b"event: " + data["type"].encode() + b"\n")
        found.append(data)
    return found


def content_of(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content blocks that a stream says, one after the other; arguments as their text."""
    blocks: list[dict[str, Any]] = []
    open_index: int | None = None
    for one in events:
        match one["type"]:
            case "content_block_start":
                assert open_index is None, "a block begins before the last ended"
                open_index = one["index"]
                assert open_index == len(blocks)
                blocks.append({**one["content_block"]})
                if blocks[-1]["type"] == "tool_use":
                    blocks[-1]["input"] = ""
            case "content_block_delta":
                assert one["index"] == open_index
                key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
                name = key.get(one["delta"]["type"], "signature")
                blocks[-1]["input" if name == "partial_json" else name] += one["delta"][name]
            case "content_block_stop":
                assert one["index"] == open_index
                open_index = None
    assert open_index is None
    return blocks


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: `calls` are id, name and arguments."""

    thinking: str = ""
    text: str = ""
    calls: Sequence[tuple[str, str, Mapping[str, object]]] = ()
    finish: str = "stop"
    matched: str | None = None
    usage: Mapping[str, object] | None = field(default_factory=lambda: USAGE)

    def plain(self) -> bytes:
        """As a chat completion."""
        message: dict[str, object] = {"role": "assistant", "content": self.text or None}
        if self.thinking:
            message["reasoning"] = self.thinking
        if self.calls:
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for id, name, arguments in self.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self.finish, "stop_reason": self.matched}
        whole = {"id": "chatcmpl-1", "model": "m", "choices": [choice]}
        return json.dumps(whole if self.usage is None else {**whole, "usage": self.usage}).encode()

    def end(self) -> list[bytes]:
        """The last events of its stream."""
        last = [chunk({}, finish_reason=self.finish, stop_reason=self.matched)]
        return [*last, *([] if self.usage is None else [usage_event(self.usage)]), DONE]


def cut(text: str, at: Iterable[int]) -> list[str]:
    """`text` in pieces."""
    cuts = [0, *sorted({place % (len(text) + 1) for place in at}), len(text)]
    return [text[start:end] for start, end in pairwise(cuts)]


words = st.text(max_size=12)
places = st.lists(st.integers(min_value=0, max_value=200), max_size=4)
arguments = st.dictionaries(
    st.sampled_from(['"', "\\", "{", "city", "é"]),
    st.recursive(
        st.integers(-9, 9) | st.text(alphabet='a"\\{}[]é\n', max_size=4) | st.none(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
NOISE = (
    b": still here\n\n",
    b"\r\n",
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": None, "reasoning": None, "tool_calls": None}),
    chunk({}),
    chunk({"content": "of another choice"}, index=1, finish_reason="length"),
)
EARLY_USAGE = event({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 1}})


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any answer."""
    names = draw(st.lists(st.sampled_from(["weather", "news"]), max_size=3))
    calls = [(f"call_{number}", name, draw(arguments)) for number, name in enumerate(names)]
    finish = "tool_calls" if calls else draw(st.sampled_from(["stop", "length"]))
    matched = draw(st.sampled_from([None, "END"])) if finish == "stop" else None
    return Answer(draw(words), draw(words), calls, finish, matched, draw(st.sampled_from([USAGE, None])))


@st.composite
def streams(draw: st.DrawFn) -> tuple[Answer, list[bytes]]:
    """An answer and the events of a stream that says it: pieces of calls interleaved, noise between."""
    answer = draw(answers())
    key = draw(st.sampled_from(["reasoning", "reasoning_content"]))
    events = [chunk({key: piece}) for piece in cut(answer.thinking, draw(places))]
    events += [chunk({"content": piece}) for piece in cut(answer.text, draw(places))]
    queues = [
        [call(index, id, name), *(call(index, arguments=piece) for piece in cut(json.dumps(given), draw(places)))]
        for index, (id, name, given) in enumerate(answer.calls)
    ]
    events += [queue.pop(0) for queue in queues]
    while any(queues):
        events.append(draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    noises = NOISE if answer.usage is None else (*NOISE, EARLY_USAGE)
    for noise in draw(st.lists(st.sampled_from(noises), max_size=4)):
        events.insert(draw(st.integers(0, len(events))), noise)
    if draw(st.booleans()):
        events = [one.replace(b"data: ", b"data:").replace(b"\n", b"\r\n") for one in events]
    return answer, [*events, *answer.end()]
