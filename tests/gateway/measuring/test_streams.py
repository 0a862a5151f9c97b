"""Reading a streamed answer: the same whatever the chunks it comes in."""

import json
from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.measuring.streams import Stream


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}}])


USAGE = event(
    choices=[],
    usage={"prompt_tokens": 30, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}},
)
BODY = event(choices=[{"delta": {"role": "assistant", "content": ""}}]) + piece("a") + piece("b") + USAGE
DONE = b"data: [DONE]\n\n"


def read(*chunks: bytes) -> tuple[Stream, "array[float]"]:
    gaps = array("d")
    stream = Stream(gaps)
    for at_s, chunk in enumerate(chunks):
        stream.came(chunk, float(at_s))
    return stream, gaps


@given(st.lists(st.integers(0, len(BODY + DONE))))
def test_counts_do_not_depend_on_the_chunks(cuts: list[int]) -> None:
    body = BODY + DONE
    places = [0, *sorted(cuts), len(body)]
    stream, gaps = read(*(body[a:b] for a, b in pairwise(places)))
    assert stream.is_whole
    assert (stream.prompt_tokens, stream.cached_tokens, stream.output_tokens) == (30, 16, 2)
    assert stream.pieces == 2
    assert len(gaps) == 1
    assert gaps[0] == (stream.last_s or 0) - (stream.first_s or 0)


def test_the_first_token_is_the_first_text_not_the_role() -> None:
    role, a, b = event(choices=[{"delta": {"role": "assistant"}}]), piece("a"), piece("b")
    stream, gaps = read(role, a, b, DONE)
    assert (stream.first_s, stream.last_s) == (1.0, 2.0)
    assert list(gaps) == [1.0]


def test_reasoning_tool_calls_and_plain_completions_are_text_too() -> None:
    for choice in (
        {"delta": {"reasoning_content": "x"}},
        {"delta": {"reasoning": "x"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"text": "x"},
    ):
        assert read(event(choices=[choice]), DONE)[0].is_whole


def test_a_stream_without_its_end_with_an_error_or_without_text_is_not_whole() -> None:
    assert not read(piece("a"))[0].is_whole
    assert not read(piece("a"), event(error={"message": "out of memory"}), DONE)[0].is_whole
    assert not read(piece("a"), b"data: {broken\n\n", DONE)[0].is_whole
    assert not read(DONE)[0].is_whole


def test_a_usage_that_cannot_be_is_not_told_and_the_answer_is_whole() -> None:
    for usage in ({"prompt_tokens": -1}, {"prompt_tokens": 1.5}, {"prompt_tokens": "3"}, {"prompt_tokens": True}, "3"):
        stream, _ = read(piece("a"), event(choices=[], usage=usage), DONE)
        assert stream.is_whole
        assert stream.is_odd
        assert stream.prompt_tokens is None
    details = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    stream, _ = read(piece("a"), event(choices=[], usage=details), DONE)
    assert (stream.prompt_tokens, stream.cached_tokens, stream.is_odd) == (3, None, True)


def test_whole_numbers_with_a_point_null_choices_and_content_in_parts_are_read() -> None:
    parts = event(choices=[{"delta": {"content": [{"type": "text", "text": "a"}]}}], error=None)
    stream, _ = read(parts, event(choices=None, usage={"prompt_tokens": 3.0}), b"data:\n\n", DONE)
    assert stream.is_whole
    assert (stream.prompt_tokens, stream.is_odd) == (3, False)


def test_an_event_without_an_end_is_not_kept() -> None:
    stream, _ = read(*[b"data: " + b"x" * (1 << 16)] * 20)
    assert stream.is_overlong
    assert stream.is_broken


def test_what_usage_does_not_say_is_none() -> None:
    stream, _ = read(piece("a"), event(choices=[], usage={"prompt_tokens": 3}), DONE)
    assert (stream.prompt_tokens, stream.cached_tokens, stream.output_tokens) == (3, None, None)
    stream, _ = read(piece("a"), event(choices=[], usage={"prompt_tokens": 3, "prompt_cache_hit_tokens": 1}), DONE)
    assert stream.cached_tokens == 1
