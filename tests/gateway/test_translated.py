"""Answers in another dialect, without a gateway around them: what is kept, what is refused, what the client is told."""

import json

import pytest

from gateway.edge.messages_answer import MessagesAnswer
from gateway.errors import UpstreamFailed
from gateway.relay import LOOP_SAFE_ANSWER_BYTES, MOST_PLAIN_BYTES
from gateway.translated import TranslatedPlain, TranslatedStream, WholeChatEvents, must_be_uncoded
from tests.gateway.scripted_engine import chat_stream, delta

CHAT = {"id": "c1", "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}


def test_a_page_of_html_becomes_an_error_of_the_dialect_and_is_called_json() -> None:
    outlet = TranslatedPlain(MessagesAnswer("m"), 502)
    assert outlet.feed(b"<html><h1>502 Bad Gateway</h1></html>") == b""
    assert outlet.content_type == b"application/json"
    assert json.loads(outlet.held())["type"] == "error"


def test_a_stream_stays_an_event_stream_and_is_never_inside_an_event() -> None:
    outlet = TranslatedStream(MessagesAnswer("m"))
    said = b"".join(map(outlet.feed, [delta("Hi"), delta(" you")[:9]]))
    assert b"content_block_delta" in said
    assert outlet.content_type is None
    assert not outlet.inside_event


def test_a_long_event_is_translated_whole() -> None:
    outlet = TranslatedStream(MessagesAnswer("m"))
    word = "x" * (WholeChatEvents.largest_event_bytes - 1000)
    stream = b"".join(chat_stream(word))
    said = b"".join(outlet.feed(stream[at : at + 65_536]) for at in range(0, len(stream), 65_536)) + outlet.held()
    assert word.encode() in said
    assert b"message_stop" in said


def test_an_event_too_long_to_keep_is_the_endpoints_failure() -> None:
    outlet = TranslatedStream(MessagesAnswer("m"))
    chunks = WholeChatEvents.largest_event_bytes // 65_536 + 2

    def feed_all() -> None:
        assert outlet.feed(delta("Hi") + b'data: {"choices":[{"delta":{"content":"')
        for _ in range(chunks):
            assert outlet.feed(b"x" * 65_536) == b""

    with pytest.raises(UpstreamFailed, match="longer than"):
        feed_all()


@pytest.mark.parametrize(("length", "is_long"), [(10, False), (LOOP_SAFE_ANSWER_BYTES, True)])
def test_a_long_answer_asks_for_a_thread(length: int, is_long: bool) -> None:
    outlet = TranslatedPlain(MessagesAnswer("m"), 200)
    outlet.feed(json.dumps({**CHAT, "padding": "x" * length}).encode())
    assert outlet.is_long is is_long
    assert json.loads(outlet.held())["content"] == [{"type": "text", "text": "Hi"}]


def test_an_answer_too_long_to_keep_is_the_endpoints_failure() -> None:
    outlet = TranslatedPlain(MessagesAnswer("m"), 200)
    outlet.feed(bytes(MOST_PLAIN_BYTES))
    with pytest.raises(UpstreamFailed, match="longer than"):
        outlet.feed(b"x")


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"GZIP", b"identity, gzip"])
def test_a_compressed_answer_is_refused_before_any_of_it_is_read(coding: bytes) -> None:
    with pytest.raises(UpstreamFailed, match="compressed"):
        must_be_uncoded(((b"content-type", b"text/event-stream"), (b"content-encoding", coding)))


@pytest.mark.parametrize("headers", [(), ((b"content-encoding", b" Identity "),), ((b"content-encoding", b""),)])
def test_an_answer_as_it_is_may_be_translated(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    must_be_uncoded(headers)
