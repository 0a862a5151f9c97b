"""A chat stream becomes a Messages stream: block after block, and nothing of the end before `end`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import split_events
from tests.gateway.edge.messages_samples import (
    DONE,
    Answer,
    call,
    chunk,
    content_of,
    event,
    said,
    streams,
    translator,
    usage_event,
)

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
TEXT = {"type": "text"}


def translated(events: Sequence[bytes], *, held: int = 2) -> bytes:
    """The stream as the relay feeds it: the last `held` events come to `end`."""
    answer = translator()
    fed = b"".join(answer.feed(one) for one in events[: len(events) - held])
    return fed + answer.end(b"".join(events[len(events) - held :]))


def blocks(*events: bytes) -> list[dict[str, Any]]:
    return content_of(said(translated([*events, chunk({}, finish_reason="stop"), DONE])))


def last_of(*events: bytes) -> dict[str, Any]:
    """The `message_delta` of a stream."""
    return next(one for one in said(translated(events)) if one["type"] == "message_delta")


def test_a_stream_is_said_event_by_event() -> None:
    events = said(translated([chunk({"role": "assistant", "content": ""}), chunk({"content": "Hi"}), *Answer().end()]))
    assert events == [
        {
            "type": "message_start",
            "message": {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 0, "output_tokens": 0},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 7},
        },
        {"type": "message_stop"},
    ]


@pytest.mark.parametrize(
    ("capture", "text", "usage"),
    [
        (
            "vllm-0.32-chat-stream-include_usage.sse",
            "The books on gravity are located in the",
            {
                "input_tokens": 113,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 256,
                "output_tokens": 8,
            },
        ),
        (
            "vllm-0.32-chat-stream-continuous_usage.sse",
            "The books on gravity",
            {
                "input_tokens": 113,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 256,
                "output_tokens": 4,
            },
        ),
        (
            "llamacpp-chat-stream-include_usage.sse",
            "The books on gravity are",
            {"input_tokens": 1, "cache_read_input_tokens": 367, "output_tokens": 5},
        ),
    ],
)
def test_recorded_streams_are_told_as_their_servers_would(capture: str, text: str, usage: dict[str, int]) -> None:
    events = said(translated(list(split_events((CAPTURES / capture).read_bytes()))))
    assert content_of(events) == [{**TEXT, "text": text}]
    assert events[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert events[-2]["usage"] == usage


def test_a_first_chunk_that_tells_usage_is_told_at_once() -> None:
    answer = translator()
    first = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"role": "assistant"}}], "usage": {}}
    first["usage"] = {"prompt_tokens": 9, "completion_tokens": 0}
    (start,) = said(answer.feed(event(first)))
    assert start["message"]["usage"] == {"input_tokens": 9, "output_tokens": 0}


def test_nothing_of_the_end_is_said_before_the_end() -> None:
    answer = translator()
    events = [chunk({"content": "Hi"}), *Answer().end()]
    fed = said(b"".join(answer.feed(one) for one in events))
    assert [one["type"] for one in fed] == ["message_start", "content_block_start", "content_block_delta"]
    assert [one["type"] for one in said(answer.end(b""))] == ["content_block_stop", "message_delta", "message_stop"]
    assert answer.end(b"") == b""


def test_thinking_text_and_calls_are_blocks_one_after_the_other() -> None:
    found = blocks(
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning": "Well, "}),
        chunk({"reasoning_content": "so."}),
        chunk({"content": "Let me "}),
        chunk({"content": "see."}),
        call(0, "call_a", "weather", ""),
        call(0, arguments='{"city"'),
        call(0, arguments=': "A"}'),
        call(1, "call_b", "news", "{}"),
    )
    assert found == [
        {"type": "thinking", "thinking": "Well, so.", "signature": ""},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_a", "name": "weather", "input": '{"city": "A"}'},
        {"type": "tool_use", "id": "call_b", "name": "news", "input": "{}"},
    ]


def test_pieces_of_calls_that_come_mixed_are_sorted() -> None:
    answer = translator()
    fed = answer.feed(call(0, "a", "f", '{"x"') + call(1, "b", "g", '{"y"') + call(2, "c", "h", "{}"))
    fed += answer.feed(chunk({"content": "Done."}) + call(1, arguments=": 2"))
    assert [one["type"] for one in said(fed)].count("content_block_start") == 1
    fed += answer.feed(call(0, arguments=": 1}"))
    assert [one["type"] for one in said(fed)].count("content_block_start") == 2, "the second is not whole yet"
    fed += answer.end(call(1, arguments="}") + chunk({}, finish_reason="tool_calls") + DONE)
    assert content_of(said(fed)) == [
        {"type": "tool_use", "id": "a", "name": "f", "input": '{"x": 1}'},
        {"type": "tool_use", "id": "b", "name": "g", "input": '{"y": 2}'},
        {"type": "tool_use", "id": "c", "name": "h", "input": "{}"},
        {"type": "text", "text": "Done."},
    ]


def test_calls_one_after_the_other_never_wait() -> None:
    answer = translator()
    for number in range(3):
        answer.feed(call(number, f"call_{number}", "f"))
        assert b'{\\"a\\"' in answer.feed(call(number, arguments='{"a"'))
        assert b"}" in answer.feed(call(number, arguments=':"}"}'))


@pytest.mark.parametrize(
    "fragments",
    [
        [call(0, "a"), call(0, name="f"), call(0, arguments="{}")],
        [call(0, "a"), call(0, arguments="{"), call(0, name="f", arguments="}")],
        [call(0, "a"), call(0, arguments="{}"), call(0, name="f")],
        [call(0, name="f"), call(0, "a"), call(0, arguments="{}")],
        [call(0, "a", "f"), call(0, "a", "f", "{"), call(0, "a", "f", "}")],
        [call(0, "a", "f", {})],
        [call(None, "a", "f", "{}")],
        [call(0, "a", "", ""), call(0, "", "f", "{}"), call(0, "", "", "")],
    ],
)
def test_a_call_whose_name_id_and_arguments_come_in_any_order_is_one_call(fragments: list[bytes]) -> None:
    assert blocks(*fragments) == [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]


def test_what_else_comes_before_the_name_of_a_call_does_not_wait() -> None:
    found = blocks(call(0, "a"), chunk({"content": "Hi"}), call(1, "b", "g", "{}"), call(0, name="f", arguments="{}"))
    assert [block.get("text", block.get("name")) for block in found] == ["Hi", "g", "f"]


def test_calls_that_a_server_numbers_alike_are_told_apart_by_their_ids() -> None:
    found = blocks(call(0, "a", "f", "{}"), call(0, "b", "f", "{}"))
    assert [block["id"] for block in found] == ["a", "b"]


def test_a_call_that_never_gets_a_name_or_an_id_is_told_at_the_end() -> None:
    (block,) = blocks(call(0, arguments="{}"))
    assert block == {"type": "tool_use", "id": "toolu_1_0", "name": "", "input": "{}"}
    (block,) = blocks(call(0, name="f"))
    assert block == {"type": "tool_use", "id": "toolu_1_0", "name": "f", "input": ""}


def test_space_after_a_whole_call_is_dropped_where_another_has_begun() -> None:
    found = blocks(call(0, "a", "f", "{}"), call(1, "b", "g", "{}"), call(0, arguments="\n"))
    assert [block["input"] for block in found] == ["{}", "{}"]


def test_an_answer_that_says_nothing_is_one_empty_text() -> None:
    assert blocks(chunk({"role": "assistant"})) == [{"type": "text", "text": ""}]
    assert blocks() == [{"type": "text", "text": ""}]
    assert content_of(said(translator().end(DONE))) == [{"type": "text", "text": ""}]


def test_of_several_choices_only_the_first_is_told() -> None:
    events = [chunk({"content": "no"}, index=1), chunk({"content": "yes"}), chunk({}, index=1, finish_reason="length")]
    found = said(translated([*events, *Answer().end()]))
    assert content_of(found) == [{**TEXT, "text": "yes"}]
    assert found[-2]["delta"]["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("finish", "matched", "arguments", "stop"),
    [
        ("stop", None, None, ("end_turn", None)),
        ("stop", 128001, None, ("end_turn", None)),
        ("stop", "END", None, ("stop_sequence", "END")),
        ("length", None, '{"a', ("max_tokens", None)),
        ("tool_calls", None, "{}", ("tool_use", None)),
        ("stop", None, "{}", ("tool_use", None)),
        ("stop", "END", '{"}"', ("stop_sequence", "END")),
        ("stop", "END", "{}", ("tool_use", None)),
        ("content_filter", None, None, ("refusal", None)),
        ("abort", None, None, (None, None)),
    ],
)
def test_the_reason_of_the_end_is_said_in_the_dialect(
    finish: str, matched: object, arguments: str | None, stop: tuple[str | None, str | None]
) -> None:
    events = [chunk({"content": "x"})] if arguments is None else [call(0, "a", "f", arguments)]
    delta = last_of(*events, chunk({}, finish_reason=finish, stop_reason=matched), usage_event(), DONE)["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == stop


def test_an_end_without_a_reason_is_still_an_end() -> None:
    assert last_of(chunk({"content": "x"}), DONE)["delta"]["stop_reason"] == "end_turn"
    assert last_of(call(0, "a", "f", "{}"), DONE)["delta"]["stop_reason"] == "tool_use"


def test_a_reason_without_the_end_is_an_end_whose_usage_may_be_unknown() -> None:
    assert last_of(chunk({"content": "x"}), chunk({}, finish_reason="stop")) == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


@pytest.mark.parametrize("rest", [b"", b'data: {"id":"chatcmpl-1","choices":[{"ind', usage_event()])
def test_a_stream_that_breaks_off_has_no_end(rest: bytes) -> None:
    answer = translator()
    assert answer.feed(chunk({"content": "Hi"}))
    assert answer.end(rest) == b""


def test_a_last_event_without_its_blank_line_counts_if_it_is_whole() -> None:
    answer = translator()
    answer.feed(chunk({"content": "Hi"}))
    assert said(answer.end(b"data: [DONE]"))[-1] == {"type": "message_stop"}


@pytest.mark.parametrize(
    ("sent", "kind", "message"),
    [
        ({"error": {"message": "No.", "type": "BadRequestError", "code": 400}}, "invalid_request_error", "No."),
        ({"error": {"message": "No.", "type": "overloaded_error", "code": None}}, "overloaded_error", "No."),
        ({"error": {"message": "No.", "type": "server_error", "code": "upstream_failed"}}, "api_error", "No."),
        ({"error": "No."}, "api_error", "No."),
        ({"object": "error", "message": "No."}, "api_error", "No."),
        ({"error": {}}, "api_error", "the server broke off the answer"),
    ],
)
def test_an_error_in_a_stream_ends_it_as_one(sent: object, kind: str, message: str) -> None:
    answer = translator()
    fed = said(answer.feed(chunk({"content": "Hi"}) + event(sent) + chunk({"content": "ignored"})))
    assert [one["type"] for one in fed] == ["message_start", "content_block_start", "content_block_delta"]
    assert said(answer.end(DONE)) == [{"type": "error", "error": {"type": kind, "message": message}}]


def test_an_error_before_anything_else_stands_alone() -> None:
    assert [one["type"] for one in said(translator().end(event({"error": "No."}) + DONE))] == ["error"]


@given(streams(), st.data())
def test_how_events_are_grouped_makes_no_difference(stream: tuple[Answer, list[bytes]], data: st.DataObject) -> None:
    _, events = stream
    one_by_one = translated(events)
    answer, out, left = translator(), b"", list(events)
    held = data.draw(st.integers(0, len(events)), label="events that come to end")
    while len(left) > held:
        size = data.draw(st.integers(1, len(left) - held), label="events in a group")
        out += answer.feed(b"".join(left[:size]))
        left = left[size:]
    assert out + answer.end(b"".join(left)) == one_by_one


@given(streams())
def test_every_piece_of_any_stream_is_said_once_and_in_order(stream: tuple[Answer, list[bytes]]) -> None:
    answer, events = stream
    content = content_of(said(translated(events)))
    assert "".join(block.get("thinking", "") for block in content) == answer.thinking
    assert "".join(block.get("text", "") for block in content) == answer.text
    calls = [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    assert calls == [(id, name, json.dumps(given)) for id, name, given in answer.calls]


pieces = st.lists(
    st.sampled_from([("thinking", "t"), ("text", "x"), ("call", '{"a"'), ("call", ":1}"), ("call", "[")]), max_size=12
)


@given(pieces)
def test_pieces_in_any_order_lose_nothing(said_pieces: list[tuple[str, str]]) -> None:
    keys = {"thinking": "reasoning", "text": "content"}
    events = [
        call(number % 2, f"c{number % 2}", "f", piece) if kind == "call" else chunk({keys[kind]: piece})
        for number, (kind, piece) in enumerate(said_pieces)
    ]
    found = blocks(*events)
    for kind in keys:
        expected = "".join(piece for said_kind, piece in said_pieces if said_kind == kind)
        assert "".join(block.get(kind, "") for block in found) == expected


def test_half_a_character_in_a_chunk_takes_nothing_else_with_it() -> None:
    half = b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "a\\ud83d"}}]}\n\n'
    assert blocks(half, chunk({"content": "b"}, finish_reason="stop")) == [{"type": "text", "text": "a\ufffdb"}]


@pytest.mark.parametrize("pieces", [[" "], [" ", "\n"], ["null"], ["nu", "ll"], ["  null "]])
def test_space_and_null_are_no_arguments_as_in_a_plain_answer(pieces: list[str]) -> None:
    calls = [
        call(0, "a", "f"),
        *(call(0, arguments=piece) for piece in pieces),
        call(1, "b", "g", " "),
        call(1, arguments="{}"),
    ]
    assert [(block["name"], block["input"]) for block in blocks(*calls, chunk({}, finish_reason="tool_calls"))] == [
        ("f", ""),
        ("g", "{}"),
    ]


def test_a_blank_line_before_a_comment_neither_passes_nor_keeps_it_back() -> None:
    assert translator().feed(b"\r\n: still here\n\n") == b": still here\n\n"
