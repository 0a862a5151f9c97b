"""However a stream is cut, the tee finds out the same and holds the same; it keeps little more than its bytes."""

import re
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.relay import StreamTee
from gateway.sse import end_of_last_event, event_data, event_ends, split_events
from gateway.stream_format import ChatFormat, Seen, format_of
from gateway.types import Route
from tests.gateway.test_relay import DONE, USAGE_EVENT, cut, delta, event, line_ends, run

NULLS = [(b"Hi", b""), (b"\xf0\x9f\x91\xa9", b',"usage":null'), (b"", b', "usage": null,"error":null')]


def known(tee: StreamTee) -> tuple[object, ...]:
    """All that a tee has found out."""
    return tee.began, tee.complete, tee.failed, tee.uncounted, tee.response_id, tee.usage.result(), tee.kept()


said = st.sampled_from(
    [
        *(b'data: {"choices":[{"delta":{"content":"%s"}}]%s}' % (text, null) for text, null in NULLS),
        b'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}',
        b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}',
        b'data: {"choices":[{"delta":{"content":"\\"usage\\":null, [DONE]"}}]}',
        b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"\xe6\x97\xa5"}}',
        b'data: {"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}',
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3}}',
        b'data: {"type":"message_stop"}',
        b'data: {"type":"response.created","response":{"id":"resp_1","usage":null}}',
        b'data: {"type":"response.output_text.delta","delta":"x"}',
        b'data: {"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":3}}}',
        b'data: {"error":{"message":"out of memory"}}',
        b"data: [DONE]",
        b": still here",
        b"data: {broken",
    ]
)
talks = st.lists(st.tuples(said, line_ends).map(b"".join), max_size=8)


@pytest.mark.parametrize("route", [Route.CHAT, Route.MESSAGES, Route.RESPONSES])
@given(events=talks, keep_usage=st.booleans(), places=st.lists(st.integers(0, 10_000), max_size=30))
@example(
    events=[b"data: [DONE]\r\n\r\n", USAGE_EVENT.replace(b"\n", b"\r\n")],
    keep_usage=False,
    places=[len(USAGE_EVENT) + 17],
)
def test_what_is_known_and_held_does_not_depend_on_how_the_bytes_came(
    route: Route, events: list[bytes], keep_usage: bool, places: list[int]
) -> None:
    one_by_one, cut_up = (StreamTee(format_of(route), keep_usage=keep_usage) for _ in range(2))
    passed, held = run(cut_up, cut(b"".join(events), places))
    whole_passed, whole_held = run(one_by_one, events)
    assert known(cut_up) == known(one_by_one)
    if keep_usage:
        assert b"".join(passed) + held == b"".join(events)
    # A `\r` ends a line: a blank line may be over before the `\n` that belongs to it has come, which then stands alone,
    # before what is held or, where the event that it belongs to was dropped, behind it.
    assert held.strip(b"\r\n") == whole_held.strip(b"\r\n")
    assert (b"".join(passed) + held).split() == (b"".join(whole_passed) + whole_held).split()


def test_a_stream_that_says_on_every_event_that_there_is_no_usage_is_not_parsed() -> None:
    parsed: list[bytes] = []

    class Watched(ChatFormat):
        def look(self, data: bytes) -> Seen:
            parsed.append(data)
            return super().look(data)

    content = event({**delta("Hi"), "usage": None, "error": None})
    tee = StreamTee(Watched(), keep_usage=False)
    assert [tee.feed(chunk) for chunk in (content, content * 5, content + USAGE_EVENT + DONE)] == [
        content,
        content * 5,
        content,
    ]
    assert tee.usage.seen
    assert len(parsed) == 2


def test_of_a_stream_of_short_events_hardly_more_is_kept_than_its_bytes() -> None:
    tee = StreamTee(ChatFormat(), keep_usage=True)
    tracemalloc.start()
    try:
        for at in range(10_000):
            tee.feed(b'data: {"choices":[{"delta":{"content":"%05d"}}]}\n\n' % at)
        kept_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(30_000):
            tee.feed(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n')
        given_up_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Other threads of the process may allocate a little meanwhile.
    assert kept_bytes < 1.3 * 10_000 * 51
    assert given_up_bytes < 50_000
    assert tee.kept() is None


@given(
    st.lists(st.sampled_from([b"data: ", b"data:", b"a", b" ", b":", b"\n", b"\r", b"\n\n"]), max_size=9).map(b"".join)
)
def test_the_data_of_an_event_is_that_of_its_lines(event: bytes) -> None:
    lines = re.split(rb"\r\n|\n|\r", event)
    data = [line.removeprefix(b"data:").removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    assert event_data(event) == b"\n".join(data).strip()
    assert b"".join(split_events(event)) == event
    assert end_of_last_event(event) == max(event_ends(event), default=0)
