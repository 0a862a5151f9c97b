"""Bytes between a gateway and an engine become exchanges, however they are cut."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from bench.faults.types import Computed, Counts
from bench.faults.wire import Wire, read_answer

ASKED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nx-request-id: ID%d\r\ncontent-length: 2\r\n\r\n{}"
USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
EVENTS = [{"id": "chatcmpl-1", "choices": [{"delta": {"content": text}}]} for text in ("~a.0", "~a.1")]
BODY = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in [*EVENTS, {"choices": [], "usage": USAGE}])
BODY += b"data: [DONE]\n\n"


def chunked(body: bytes, size: int = 7) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY)
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
PAGE = b"GET /metrics HTTP/1.1\r\nhost: e\r\n\r\n"


def heard(*said: tuple[bool, bytes]) -> list[Computed]:
    kept: list[Computed] = []
    ticks = itertools.count()
    wire = Wire("gateway-0", "engine-0", lambda: float(next(ticks)), kept.append)
    for is_sent, data in said:
        (wire.sent if is_sent else wire.got)(data)
    wire.ended()
    return kept


def cut_up(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(st.lists(st.integers(0, 10_000), max_size=8), st.lists(st.integers(0, 10_000), max_size=8), st.booleans())
def test_exchanges_are_the_same_however_their_bytes_are_cut(
    sent_at: list[int], got_at: list[int], is_plain: bool
) -> None:
    answer = PLAIN if is_plain else STREAM
    said: list[tuple[bool, bytes]] = []
    for number in range(2):
        said += [(True, piece) for piece in cut_up(ASKED % number, sent_at)]
        said += [(False, piece) for piece in cut_up(answer, got_at)]
        said += [(True, PAGE), (False, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]
    found = heard(*said)
    assert [one.request_id for one in found] == ["ID0", "ID1"]
    for one in found:
        assert (one.status, one.is_whole, one.body) == (200, True, BODY)
        assert (one.usage, one.events, one.answer_id) == (Counts(9, 4, 2), 2, "chatcmpl-1")


@given(st.integers(0, len(STREAM) - 1))
def test_an_answer_that_broke_off_is_not_whole(at: int) -> None:
    [one] = heard((True, ASKED % 7), (False, STREAM[:at])) if at else heard((True, ASKED % 7))
    assert not one.is_whole
    assert BODY.startswith(one.body)
    assert one.status in (None, 200)


def test_a_stream_is_under_way_between_its_first_and_its_last_byte() -> None:
    wire = Wire("gateway-0", "engine-0", lambda: 0.0, lambda _: None)
    wire.sent(ASKED % 1)
    seen = [wire.is_answering]
    for piece in (STREAM[:-5], STREAM[-5:]):
        wire.got(piece)
        seen.append(wire.is_answering)
    wire.sent(PAGE)
    wire.got(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n123")
    assert [*seen, wire.is_answering] == [False, True, False, False]


def test_a_plain_answer_is_read_too() -> None:
    said = {"id": "1", "choices": [{"message": {"content": "~a.0~a.1"}}], "usage": USAGE}
    assert read_answer(json.dumps(said).encode()) == (Counts(9, 4, 2), 1, "~a.0~a.1")
    assert read_answer(b'{"error": ') == (Counts(), 0, "")
