"""The tee: bytes pass unchanged however they are cut, usage is found, only usage and the end are held back."""

import json
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import sse
from gateway.relay import LOOP_SAFE_ANSWER_BYTES, MOST_PLAIN_BYTES, PLAIN_TAIL_BYTES, PlainTee, StreamTee
from gateway.stream_format import ChatFormat, ResponsesFormat, StreamFormat, format_of
from gateway.translated import WholeChatEvents
from gateway.types import Route

USAGE = {"prompt_tokens": 369, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 256}}


def event(content: object, end: bytes = b"\n\n") -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + end


def delta(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


USAGE_EVENT = event({"choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"


def run(tee: StreamTee | PlainTee, chunks: list[bytes]) -> tuple[list[bytes], bytes]:
    passed = [tee.feed(chunk) for chunk in chunks]
    return passed, tee.held()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[a:b] for a, b in pairwise(borders)]


line_ends = st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"])
contents = st.builds(lambda t, e: event(delta(t), e), st.text(max_size=12), line_ends)
odd_events = st.sampled_from(
    [b": keep-alive\n\n", b"event: x\ndata: {}\n\n", b"data: {broken\n\n", b"\n", b"data:\n\n"]
)
tails = st.sampled_from([b"", DONE, USAGE_EVENT + DONE, USAGE_EVENT, b"data: [DONE]\r\n\r\n"])
streams = st.builds(lambda events, tail: b"".join(events) + tail, st.lists(contents | odd_events, max_size=8), tails)


@given(streams, st.lists(st.integers(0, 10_000), max_size=30))
def test_a_client_who_asked_for_usage_gets_the_upstreams_bytes_for_any_chunking(
    stream: bytes, places: list[int]
) -> None:
    passed, held = run(StreamTee(ChatFormat(), keep_usage=True), cut(stream, places))
    assert b"".join(passed) + held == stream


@given(st.lists(contents | odd_events, max_size=8), st.lists(st.integers(0, 10_000), max_size=30))
def test_a_client_who_did_not_ask_gets_all_but_the_usage_event(events: list[bytes], places: list[int]) -> None:
    stream = b"".join(events)
    tee = StreamTee(ChatFormat(), keep_usage=False)
    passed, held = run(tee, cut(stream + USAGE_EVENT + DONE, places))
    relayed = b"".join(passed) + held
    assert relayed == stream + DONE
    usage = tee.usage.result().usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (369, 256, 8)


@given(st.lists(st.integers(0, 10_000), max_size=40))
def test_content_is_never_held_back_once_its_event_is_whole(places: list[int]) -> None:
    stream = b"".join(event(delta(word)) for word in ("The", " books", " 日本語", " 👩‍👩‍👧"))
    passed, held = run(StreamTee(ChatFormat(), keep_usage=False), cut(stream, places))
    assert b"".join(passed) == stream
    assert held == b""


def test_the_usage_event_and_the_end_are_held_until_the_ledger_has_them() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    assert tee.feed(event(delta("Hi")) + USAGE_EVENT + DONE) == event(delta("Hi"))
    assert tee.complete
    assert tee.held() == USAGE_EVENT + DONE


def test_usage_that_is_not_the_last_word_goes_on_when_content_follows() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    assert tee.feed(USAGE_EVENT) == b""
    assert tee.feed(event(delta("more"))) == USAGE_EVENT + event(delta("more"))


def test_cumulative_usage_on_every_chunk_is_never_added_up() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    for output in (1, 2, 3):
        tee.feed(event({**delta("x"), "usage": {"prompt_tokens": 10, "completion_tokens": output}}))
    usage = tee.usage.result().usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.output_tokens) == (10, 3)


def test_text_that_looks_like_usage_or_an_end_stays_text() -> None:
    tricky = event(delta('"usage": {"prompt_tokens": 1} [DONE] data: [DONE]'))
    tee = StreamTee(ChatFormat(), keep_usage=False)
    assert tee.feed(tricky) == tricky
    assert not tee.complete
    assert not tee.usage.seen


def test_an_event_of_ten_megabytes_passes_without_being_kept() -> None:
    large = event(delta("x" * 10_000_000))
    tee = StreamTee(ChatFormat(), keep_usage=False)
    passed = [tee.feed(large[at : at + 50_000]) for at in range(0, len(large), 50_000)]
    assert b"".join(passed) == large
    assert max(map(len, passed)) <= ChatFormat.largest_event_bytes + 50_003
    assert tee.feed(USAGE_EVENT + DONE) == b""
    assert tee.usage.seen


class SmallEvents(ChatFormat):
    """So that what holds for long events is tried with short ones."""

    largest_event_bytes = 40


@given(streams, st.lists(st.integers(0, 10_000), max_size=30))
def test_bytes_keep_their_order_where_events_are_too_long_to_hold(stream: bytes, places: list[int]) -> None:
    passed, held = run(StreamTee(SmallEvents(), keep_usage=True), cut(stream, places))
    assert b"".join(passed) + held == stream


def test_a_long_event_passes_no_usage_by_that_was_held_before_it() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    large = event(delta("x" * 100_000))
    passed, held = run(tee, [USAGE_EVENT, large[:90_000], large[90_000:], DONE])
    assert b"".join(passed) == USAGE_EVENT + large
    assert held == DONE


@given(st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b"a"]), max_size=12), st.integers(0, 12))
def test_the_end_of_an_event_is_found_from_three_bytes_before_what_is_new(parts: list[bytes], place: int) -> None:
    stream = b"".join(parts)
    begun = max((stream[:at] for at in range(place + 1) if not list(sse.event_ends(stream[:at]))), key=len)
    tee = StreamTee(ChatFormat(), keep_usage=True)
    assert tee.feed(begun) == b""
    together = StreamTee(ChatFormat(), keep_usage=True).feed(stream)
    assert tee.feed(stream[len(begun) :]) == together


@pytest.mark.parametrize("format", [ResponsesFormat(), WholeChatEvents()])
def test_one_event_in_a_thousand_chunks_is_searched_once(format: StreamFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    searched_bytes = 0

    def counted(data: bytes | bytearray, start: int = 0) -> int:
        nonlocal searched_bytes
        searched_bytes += len(data) - start
        return sse.end_of_last_event(data, start)

    monkeypatch.setattr("gateway.relay.end_of_last_event", counted)
    tee = StreamTee(format, keep_usage=True)
    chunks = [b'data: {"x":"', *[b"a" * 4096] * 1000]
    assert b"".join(map(tee.feed, chunks)) == b""
    assert searched_bytes < sum(map(len, chunks)) + 4 * len(chunks)


def test_what_is_no_part_of_a_long_event_is_told_to_begin_with_a_blank_line() -> None:
    large = event(delta("x" * 100_000))
    tee = StreamTee(ChatFormat(), keep_usage=False)
    inside = []
    for chunk in (large[:50_000], large[50_000:80_000], large[80_000:], b"data: {"):
        tee.feed(chunk)
        inside.append(tee.inside_event)
    assert inside == [False, True, False, False]  # of the last one nothing has passed


def test_an_engine_that_goes_on_after_its_end_fills_no_memory() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    more = [event(delta("x" * 1000))] * 300
    passed, held = run(tee, [DONE, *more])
    assert b"".join(passed) + held == DONE + b"".join(more)
    assert len(held) <= 3 * ChatFormat.largest_event_bytes


def test_an_error_inside_the_stream_is_seen_and_passed_on() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=False)
    failure = b'data: {"error":{"message":"out of memory","code":500}}\n\ndata: [DONE]\n\n'
    assert tee.feed(failure) == failure.removesuffix(DONE)
    assert tee.failed


def test_a_broken_event_passes_and_breaks_nothing() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=False)
    assert tee.feed(b'data: {"usage": {"prompt\n\n') == b'data: {"usage": {"prompt\n\n'
    assert not tee.usage.seen


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
@settings(max_examples=300)
def test_no_bytes_whatever_are_lost_or_make_it_fail(stream: bytes, places: list[int]) -> None:
    passed, held = run(StreamTee(ChatFormat(), keep_usage=True), cut(stream, places))
    assert b"".join(passed) + held == stream


def test_a_plain_answer_passes_whole_with_its_last_chunk_held() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Hi"}}], "usage": USAGE}).encode()
    tee = PlainTee()
    passed, held = run(tee, [body[:10], body[10:40], body[40:]])
    assert passed == [b"", body[:10], body[10:40]]
    assert held == body[40:]
    usage = tee.usage.result().usage
    assert usage is not None
    assert usage.cached_tokens == 256


def embeddings(size_bytes: int) -> list[bytes]:
    """A plain answer of at least this size, in chunks, with its usage at the end."""
    row = b'{"object":"embedding","embedding":[' + b"0.0123," * 9000 + b"0]},"
    rows = [row] * (size_bytes // len(row) + 1)
    return [b'{"id":"e1","data":[', *rows, b'{}],"usage":{"prompt_tokens":4,"total_tokens":4}}']


@pytest.mark.parametrize(
    ("size_bytes", "is_long", "name"),
    [(0, False, "e1"), (LOOP_SAFE_ANSWER_BYTES, True, "e1"), (MOST_PLAIN_BYTES + 1, False, None)],
)
def test_a_plain_answer_of_any_length_is_metered_and_no_long_one_is_kept(
    size_bytes: int, is_long: bool, name: str | None
) -> None:
    tee, chunks = PlainTee(), embeddings(size_bytes)
    passed = b"".join(map(tee.feed, chunks))
    assert tee.is_long is is_long
    assert passed + tee.held() == b"".join(chunks)
    assert tee.response_id == name
    usage = tee.usage.result().usage
    assert usage is not None
    assert usage.prompt_tokens == 4


def test_of_an_answer_without_end_the_tail_alone_is_kept() -> None:
    tee = PlainTee()
    tracemalloc.start()
    try:
        for _ in range(MOST_PLAIN_BYTES // 4096 + 100):
            tee.feed(bytes(4096))
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(1000):
            tee.feed(bytes(4096))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert before < 2 * PLAIN_TAIL_BYTES
    assert peak < before + PLAIN_TAIL_BYTES


@pytest.mark.parametrize("body", [b"", b"not json", b'{"usage": 5}', b"[1]", b'{"error": {"message": "no"}}', b"\xff"])
def test_a_plain_answer_without_usage_leaves_it_unknown(body: bytes) -> None:
    tee = PlainTee()
    passed, held = run(tee, [body])
    assert b"".join(passed) + held == body
    assert tee.usage.result().usage is None


def test_the_text_of_a_cut_stream_is_all_choices_and_the_reasoning() -> None:
    stream = (
        event({"choices": [{"index": 0, "delta": {"reasoning_content": "think "}}]})
        + event(delta("Hello"))
        + event({"choices": [{"index": 1, "delta": {"content": "other"}}]})
        + event({"choices": [{"index": 0, "text": " world"}]})
        + b"data: {bro"
    )
    assert ChatFormat().texts(stream) == ["think Hello world", "other"]


def test_a_real_stream_of_vllm_is_metered_and_its_usage_taken_out() -> None:
    stream = (Path(__file__).parents[1] / "data/captures/vllm-0.32-chat-stream-include_usage.sse").read_bytes()
    tee = StreamTee(ChatFormat(), keep_usage=False)
    passed, held = run(tee, [stream[at : at + 700] for at in range(0, len(stream), 700)])
    usage = tee.usage.result().usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.output_tokens) == (369, 256, 8)
    assert b'"usage"' not in b"".join(passed) + held
    assert held.endswith(b"[DONE]\n\n")


PING = b": ping\n\n"
CREATED = b'event: response.created\ndata: {"type":"response.created"}\n\n'
MESSAGE_START = b'event: message_start\ndata: {"type":"message_start","message":{"usage":{}}}\n\n'


@pytest.mark.parametrize(
    ("route", "before", "token"),
    [
        (Route.CHAT, b'data: {"error": {"message": "no \\"text\\""}}\n\n', b'data: {"choices":[{"delta":{}}]}\n\n'),
        (Route.COMPLETIONS, PING, b'data: {"choices":[{"text":"a"}]}\n\n'),
        (Route.MESSAGES, MESSAGE_START, b'data: {"type":"content_block_start"}\n\n'),
        (Route.RESPONSES, CREATED, b'data: {"type":"response.output_item.added"}\n\n'),
    ],
)
def test_an_answer_has_begun_once_it_shows_a_token_and_not_before(route: Route, before: bytes, token: bytes) -> None:
    tee = StreamTee(format_of(route), keep_usage=True)
    tee.feed(before)
    assert not tee.began
    tee.feed(token)
    assert tee.began


@pytest.mark.parametrize(
    ("body", "began"),
    [
        (b'{"object":"error","message":"no"}', False),
        (b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}', True),
        (b'{"choices":[{"text":"an engine that counts nothing"}]}', True),
        (b'{"content":[{"type":"text","text":"Hi"}]}', True),
        (b'{"output":[{"type":"message"}]}', True),
        (b'{"choices":[{"text":"x"}],"error":{"message":"half way"}}', False),
        (b'{"choices":[ ]}', False),
        (b"not JSON", False),
    ],
)
def test_a_plain_answer_has_begun_where_it_is_one(body: bytes, began: bool) -> None:
    tee = PlainTee()
    tee.feed(body)
    tee.held()
    assert tee.began is began
