"""A chat answer as it is read for all dialects."""

import json

import pytest

from gateway.edge.chat_answer import (
    CallPiece,
    ChatAnswer,
    Choice,
    Comment,
    Done,
    Said,
    chat_events,
    new_name,
    read_completion,
)
from gateway.errors import UpstreamFailed


def test_a_completion_is_read_whole() -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"reasoning": "so", "content": "Hi", "refusal": "No.", "tool_calls": [call]}
    tokens = [{"token": "Hi", "logprob": -0.5}]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "stop",
        "stop_reason": 7,
        "matched_stop": "END",
        "logprobs": {"content": tokens},
    }
    usage: dict[str, object] = {"prompt_tokens": 1}
    answer = {"id": "chatcmpl-x", "model": "m", "created": 5.5, "choices": [choice], "usage": usage}
    said = Said("so", "Hi", "No.", (CallPiece(0, "a", "f", "{}"),))
    read = Choice(said, "stop", "END", [*tokens])
    assert read_completion(json.dumps(answer).encode()) == (ChatAnswer("x", "m", 5, read, usage), read)


def test_only_the_choice_with_index_0_or_without_one_is_read() -> None:
    choices = [{"index": 1, "message": {"content": "b"}}, {"message": {"content": "a"}}]
    _, choice = read_completion(json.dumps({"choices": choices}).encode())
    assert choice.said.text == "a"


@pytest.mark.parametrize("created", ["5", -1, 1e300, 10**30, None, []])
def test_what_is_no_time_is_unknown(created: object) -> None:
    chat, _ = read_completion(json.dumps({"created": created, "choices": [{"message": {}}]}).encode())
    assert chat.created is None


@pytest.mark.parametrize("index", [1.0, "1", [], {}])
def test_an_index_that_is_no_integer_is_none(index: object) -> None:
    message = {"tool_calls": [{"index": index, "function": []}]}
    _, choice = read_completion(json.dumps({"choices": [{"message": message}]}).encode())
    assert choice.said.calls == (CallPiece(),)


def test_a_completion_with_a_delta_alone_is_none() -> None:
    with pytest.raises(UpstreamFailed):
        read_completion(b'{"choices":[{"delta":{"content":"Hi"}}]}')


def test_events_are_read_in_order_and_a_cut_one_is_not() -> None:
    events = b': ping\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\nevent: x\n\ndata: [DONE]\n\ndata: {"choices'
    first, second, third = chat_events(events)
    assert first == Comment(b": ping\n\n")
    assert isinstance(second, ChatAnswer)
    assert second.choice == Choice(Said(text="a"))
    assert third == Done()


def test_an_event_that_lacks_only_its_blank_line_is_read() -> None:
    assert list(chat_events(b"data: [DONE]")) == [Done()]
    (last,) = chat_events(b'data: {"choices":[{"finish_reason":"stop"}]}')
    assert isinstance(last, ChatAnswer)
    assert last.choice == Choice(finish_reason="stop")


def test_names_differ() -> None:
    assert new_name() != new_name()
