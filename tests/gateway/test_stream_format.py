"""Streams of every dialect, as real engines sent them: what is held, what usage is read, what text is counted."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import Usage
from gateway.relay import StreamTee
from gateway.stream_format import StreamFormat, format_of, usage_at_end
from gateway.types import Route

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
RECORDED = {
    "vllm-0.32-chat-plain-stream": Route.CHAT,
    "vllm-0.32-chat-tool-named-stream": Route.CHAT,
    "vllm-0.32-messages-plain-stream": Route.MESSAGES,
    "vllm-0.32-messages-tool-any-stream": Route.MESSAGES,
    "vllm-0.32-responses-plain-stream": Route.RESPONSES,
    "vllm-0.32-responses-tool-required-stream": Route.RESPONSES,
    "llamacpp-11434-chat-plain-stream": Route.CHAT,
    "llamacpp-11434-messages-plain-stream": Route.MESSAGES,
    "llamacpp-11434-messages-tool-any-stream": Route.MESSAGES,
    "llamacpp-11434-responses-plain-stream": Route.RESPONSES,
    "llamacpp-11434-responses-tool-required-stream": Route.RESPONSES,
}
ENDS = {Route.CHAT: b"[DONE]", Route.MESSAGES: b"message_stop", Route.RESPONSES: b"response.completed"}


def recorded(name: str) -> bytes:
    return (CAPTURES / f"{name}.sse").read_bytes()


def run(name: str, places: list[int]) -> tuple[StreamTee, bytes, bytes]:
    stream, tee = recorded(name), StreamTee(format_of(RECORDED[name]), keep_usage=True)
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    passed = b"".join(tee.feed(stream[start:end]) for start, end in pairwise(bounds))
    return tee, passed, tee.held()


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_passes_byte_for_byte_and_only_its_end_is_held(name: str) -> None:
    tee, passed, held = run(name, [])
    assert passed + held == recorded(name)
    assert tee.complete
    assert not tee.failed
    assert ENDS[RECORDED[name]] in held
    assert ENDS[RECORDED[name]] not in passed


@pytest.mark.parametrize("name", RECORDED)
@given(places=st.lists(st.integers(0, 1 << 20), max_size=12))
@settings(max_examples=30)
def test_what_is_held_does_not_depend_on_how_the_bytes_came(name: str, places: list[int]) -> None:
    whole, pieces = run(name, []), run(name, places)
    assert pieces[1:] == whole[1:]
    assert pieces[0].usage.result() == whole[0].usage.result()


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("vllm-0.32-messages-plain-stream", Usage(39, 32, 8, 0)),
        ("llamacpp-11434-messages-plain-stream", Usage(39, 38, 8)),
        ("vllm-0.32-responses-plain-stream", Usage(39, 32, 8, 0, 0)),
        ("llamacpp-11434-responses-plain-stream", Usage(39, 38, 8)),
    ],
)
def test_usage_is_read_in_each_dialects_own_convention(name: str, usage: Usage) -> None:
    assert run(name, [])[0].usage.result().usage == usage


def test_what_counts_as_input_at_the_start_of_messages_is_replaced_by_what_is_known_at_the_end() -> None:
    """The engine counted all 39 tokens as input at first, and 7 of them when it knew that 32 had been cached."""
    tee = StreamTee(format_of(Route.MESSAGES), keep_usage=True)
    start, _, rest = recorded("vllm-0.32-messages-plain-stream").partition(b"\n\n")
    tee.feed(start + b"\n\n")
    assert not tee.usage.seen
    tee.feed(rest)
    usage = tee.usage.result().usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens) == (39, 32)


@pytest.mark.parametrize(
    ("at_start", "at_end", "usage"),
    [
        ({"input_tokens": 500}, {"input_tokens": 0}, Usage(500, None, 7)),
        (
            {"input_tokens": 500},
            {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            Usage(500, 0, 7, 0),
        ),
        ({"input_tokens": 1, "cache_read_input_tokens": 38}, {"input_tokens": 0}, Usage(39, 38, 7)),
        ({"input_tokens": 500}, {"input_tokens": 0, "cache_read_input_tokens": 500}, Usage(500, 500, 7)),
        ({"input_tokens": 500}, {"cache_read_input_tokens": 0}, Usage(500, 0, 7)),
        ({"input_tokens": 0}, {"input_tokens": 500}, Usage(500, None, 7)),
    ],
)
def test_a_zero_at_the_end_of_messages_takes_no_input_away_unless_the_cache_explains_it(
    at_start: dict[str, int], at_end: dict[str, int], usage: Usage
) -> None:
    tee = StreamTee(format_of(Route.MESSAGES), keep_usage=True)
    start = {"type": "message_start", "message": {"usage": {**at_start, "output_tokens": 0}}}
    delta = {"type": "message_delta", "delta": {}, "usage": {**at_end, "output_tokens": 7}}
    for event in (start, delta):
        tee.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    assert tee.usage.result().usage == usage


@pytest.mark.parametrize("engine", ["vllm-0.32", "llamacpp-11434"])
def test_the_engine_names_the_response_that_it_keeps_before_anything_else(engine: str) -> None:
    stream = recorded(f"{engine}-responses-plain-stream")
    tee = StreamTee(format_of(Route.RESPONSES), keep_usage=True)
    tee.feed(stream[: stream.index(b"\n\n") + 2])
    assert tee.response_id is not None
    assert tee.response_id.startswith("resp_")


@pytest.mark.parametrize(
    ("route", "event"),
    [
        (Route.MESSAGES, b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"gone"}}\n\n'),
        (Route.RESPONSES, b'event: error\ndata: {"type":"error","message":"gone"}\n\n'),
        (Route.RESPONSES, b'data: {"type":"response.failed","response":{"id":"resp_1","error":{"code":"x"}}}\n\n'),
        (Route.CHAT, b'data: {"error":{"message":"gone"}}\n\n'),
    ],
)
def test_an_error_inside_a_stream_is_seen_in_every_dialect(route: Route, event: bytes) -> None:
    tee = StreamTee(format_of(route), keep_usage=True)
    assert tee.feed(event) + tee.held() == event
    assert tee.failed


@pytest.mark.parametrize("name", [name for name in RECORDED if "plain" in name])
def test_the_text_of_a_stream_is_the_same_in_every_dialect(name: str) -> None:
    (text,) = format_of(RECORDED[name]).texts(recorded(name))
    engine, version, *_ = name.split("-")
    assert text.strip()
    assert format_of(Route.CHAT).texts(recorded(f"{engine}-{version}-chat-plain-stream")) == [text]


@pytest.mark.parametrize("route", [Route.CHAT, Route.MESSAGES, Route.RESPONSES])
@given(
    data=st.binary(max_size=80) | st.text(max_size=40).map(lambda text: b'{"usage":"response":[DONE]' + text.encode())
)
def test_nothing_that_can_stand_in_an_event_makes_a_format_fail(route: Route, data: bytes) -> None:
    reader: StreamFormat = format_of(route)
    reader.look(data)
    reader.texts(b"data: " + data + b"\n\n")


def test_text_cut_inside_an_emoji_still_leaves_the_usage_readable() -> None:
    tee = StreamTee(format_of(Route.CHAT), keep_usage=True)
    tee.feed(
        b'data: {"choices":[{"delta":{"content":"\\ud83d"}}],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
    )
    assert tee.usage.seen


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        (
            b'...0.25]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}',
            {"prompt_tokens": 3, "total_tokens": 3},
        ),
        (b'..."}],"usage": {"prompt_tokens":3}, "id":"x", "timings":{"a":[1]} }\n', {"prompt_tokens": 3}),
        (b'"tools":[{"properties":{"usage":{"type":"string"}}}]}', None),
        (b'"usage":{"prompt_tokens":3},"tools":[{"properties":{"usage":{"type":"string"}}}]}', {"prompt_tokens": 3}),
        (rb'"content":"\"usage\":{\"prompt_tokens\":1}}"}', None),
        (b'"usage":null}', None),
        (b'"usage":{"prompt_tokens":3}', None),
        (b"[" * 3000 + b'"usage":' + b"[" * 3000, None),
        (b'"usage"' * 2000, None),
        (b"", None),
    ],
)
def test_the_usage_of_a_long_answer_is_found_in_its_tail_where_it_is_of_the_top_level(
    tail: bytes, usage: dict[str, int] | None
) -> None:
    assert usage_at_end(tail) == usage
