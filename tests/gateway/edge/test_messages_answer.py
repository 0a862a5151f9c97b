"""A chat completion becomes a message, and a refusal of a chat server one of the Messages dialect."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.messages_errors import error_body
from gateway.errors import UpstreamFailed
from tests.gateway.edge.messages_samples import USAGE, Answer, answers, translator


def whole(answer: Answer | dict[str, Any]) -> dict[str, Any]:
    body = answer.plain() if isinstance(answer, Answer) else json.dumps(answer).encode()
    message = json.loads(translator().whole(body))
    assert isinstance(message, dict)
    return message


def completion(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    chosen = {"index": 0, "message": message, "finish_reason": "stop", **choice}
    return {"id": "chatcmpl-1", "model": "m", "choices": [chosen], "usage": USAGE}


def test_a_chat_completion_becomes_a_message() -> None:
    calls = [("call_a", "weather", {"city": "Zürich"})]
    assert whole(Answer("Well.", "Let me see.", calls, "tool_calls")) == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Well.", "signature": ""},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"city": "Zürich"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 7},
    }


@pytest.mark.parametrize(
    ("choice", "calls", "stop"),
    [
        ({"finish_reason": "stop"}, None, ("end_turn", None)),
        ({"finish_reason": "stop", "stop_reason": None}, None, ("end_turn", None)),
        ({"finish_reason": "stop", "stop_reason": 128001}, None, ("end_turn", None)),
        ({"finish_reason": "stop", "matched_stop": 2}, None, ("end_turn", None)),
        ({"finish_reason": "stop", "stop_reason": "END"}, None, ("stop_sequence", "END")),
        ({"finish_reason": "stop", "matched_stop": "END"}, None, ("stop_sequence", "END")),
        ({"finish_reason": "length", "stop_reason": "END"}, None, ("max_tokens", None)),
        ({"finish_reason": "length"}, "{}", ("max_tokens", None)),
        ({"finish_reason": "tool_calls"}, "{}", ("tool_use", None)),
        ({"finish_reason": "stop"}, "{}", ("tool_use", None)),
        ({"finish_reason": "stop", "stop_reason": "END"}, "{}", ("tool_use", None)),
        ({"finish_reason": "stop", "stop_reason": "END"}, '{"a": ', ("stop_sequence", "END")),
        ({"finish_reason": "eos_token"}, None, ("end_turn", None)),
        ({"finish_reason": "content_filter"}, None, ("refusal", None)),
        ({"finish_reason": "abort"}, None, (None, None)),
        ({"finish_reason": None}, None, (None, None)),
    ],
)
def test_the_reason_of_the_end_is_said_in_the_dialect(
    choice: dict[str, Any], calls: str | None, stop: tuple[str | None, str | None]
) -> None:
    message: dict[str, Any] = {"content": "x"}
    if calls is not None:
        message["tool_calls"] = [{"id": "c", "function": {"name": "f", "arguments": calls}}]
    said = whole(completion(message, **choice))
    assert (said["stop_reason"], said["stop_sequence"]) == stop


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, {"input_tokens": 10, "output_tokens": 2}),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": None},
            {"input_tokens": 10, "output_tokens": 2},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
            {"input_tokens": 10, "cache_read_input_tokens": 0, "output_tokens": 2},
        ),
        (
            {
                "prompt_tokens": 369,
                "completion_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 256, "created_cache_tokens": 13},
            },
            {
                "input_tokens": 100,
                "cache_creation_input_tokens": 13,
                "cache_read_input_tokens": 256,
                "output_tokens": 8,
            },
        ),
        (
            {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6, "completion_tokens": 2},
            {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 2},
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 11}},
            {"input_tokens": 0, "cache_read_input_tokens": 10, "output_tokens": 2},
        ),
        (None, {"input_tokens": 0, "output_tokens": 0}),
        ("none", {"input_tokens": 0, "output_tokens": 0}),
    ],
)
def test_input_excludes_what_was_cached_and_what_is_unknown_is_absent(usage: object, expected: dict[str, int]) -> None:
    assert whole({**completion({"content": "x"}), "usage": usage})["usage"] == expected


def test_an_older_name_of_reasoning_is_thinking_too() -> None:
    said = whole(completion({"content": None, "reasoning_content": "Well."}))
    assert said["content"] == [{"type": "thinking", "thinking": "Well.", "signature": ""}]


def test_a_refusal_in_words_is_text() -> None:
    assert whole(completion({"content": None, "refusal": "No."}))["content"] == [{"type": "text", "text": "No."}]


def test_an_answer_that_says_nothing_is_one_empty_text() -> None:
    assert whole(completion({"content": None}))["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, "{}"),
        ("", "{}"),
        ("  ", "{}"),
        ("null", "{}"),
        ('{"a": ', "{}"),
        ('{"a":1.0,"n":123456789012345678901234567890}', '{"a":1.0,"n":123456789012345678901234567890}'),
        ({"city": "A"}, '{"city":"A"}'),
    ],
)
def test_arguments_become_an_object_and_keep_their_numbers(arguments: object, expected: str) -> None:
    calls = [{"id": "c", "function": {"name": "f", "arguments": arguments}}]
    answer = translator().whole(json.dumps(completion({"content": None, "tool_calls": calls})).encode())
    assert f'"input":{expected}'.encode() in answer


def test_a_call_without_an_id_gets_one_that_no_other_answer_has() -> None:
    calls = [{"function": {"name": "f", "arguments": "{}"}}] * 2
    found = whole(completion({"content": None, "tool_calls": calls}))["content"]
    assert [block["id"] for block in found] == ["toolu_1_0", "toolu_1_1"]


def test_of_several_choices_the_first_is_told() -> None:
    choices = [
        {"index": 1, "message": {"content": "second"}, "finish_reason": "length"},
        {"index": 0, "message": {"content": "first"}, "finish_reason": "stop"},
    ]
    said = whole({"id": "x", "choices": choices})
    assert said["content"] == [{"type": "text", "text": "first"}]
    assert (said["id"], said["model"], said["stop_reason"]) == ("msg_x", "asked", "end_turn")


@pytest.mark.parametrize(
    "answer",
    [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"index":0}]}', b"\xff", b"[" * 100_000],
    ids=lambda answer: answer[:12].decode(errors="replace"),
)
def test_what_is_no_chat_completion_is_a_failure_of_the_endpoint(answer: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        translator().whole(answer)


@given(answers())
def test_every_part_of_any_answer_is_found_in_its_message(answer: Answer) -> None:
    content = whole(answer)["content"]
    kinds = [block["type"] for block in content]
    assert kinds == sorted(kinds, key=["thinking", "text", "tool_use"].index)
    assert "".join(block.get("thinking", "") for block in content) == answer.thinking
    assert "".join(block.get("text", "") for block in content) == answer.text
    calls = [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"]
    assert calls == list(answer.calls)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_the_status_tells_the_type_of_an_error(status: int, kind: str) -> None:
    expected = {"type": "error", "error": {"type": kind, "message": "No."}}
    assert json.loads(error_body(status, "No.")) == expected
    assert json.loads(translator().refusal(status, b'{"error":{"message":"No.","type":"odd","code":1}}')) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"too long","code":400}}', "too long"),
        (b'{"error":"too long"}', "too long"),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"type":"error","error":{"type":"x","message":"too long"}}', "too long"),
        (b'{"detail":"too long"}', "too long"),
        (b'{"detail":[{"loc":["body"],"msg":"too long"}]}', "too long"),
        (b"too long\n", "too long"),
        (b'"too long"', "too long"),
        (b"", "the server answered with status 400"),
        (b"{}", "the server answered with status 400"),
        (b'{"detail":[]}', "the server answered with status 400"),
        (b'{"error":{"message":7}}', "the server answered with status 400"),
        (b"<html>" * 1000, "the server answered with status 400"),
        (b"[" * 100_000, "the server answered with status 400"),
    ],
)
def test_a_refusal_keeps_the_words_of_the_server(body: bytes, message: str) -> None:
    assert json.loads(translator().refusal(400, body))["error"]["message"] == message


@given(st.binary(max_size=40))
def test_any_bytes_of_an_error_become_an_error(body: bytes) -> None:
    assert msgspec.json.decode(translator().refusal(500, body))["error"]["type"] == "api_error"


def test_half_a_character_takes_nothing_else_with_it() -> None:
    answer = b'{"id": "c", "choices": [{"index": null, "message": {"content": "a\\ud83db"}, "finish_reason": "stop"}]}'
    assert json.loads(translator().whole(answer))["content"] == [{"type": "text", "text": "a\ufffdb"}]
    refused = json.loads(translator().refusal(400, b'{"error": {"message": "not \\ud83d"}}'))
    assert refused["error"]["message"] == "not \ufffd"
