"""Plain chat answers as responses, and refusals."""

import json

import pytest

from gateway.errors import UpstreamFailed
from tests.gateway.edge.responses_answers import Json, answer_to, decoded, plain, whole

CALL: Json = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}


def test_text_is_a_message_with_one_part() -> None:
    assert whole({"content": "Hi"})["output"] == [
        {
            "id": "msg_x_0",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
        }
    ]


def test_reasoning_text_and_calls_come_in_this_order() -> None:
    output = whole({"content": "I look.", "reasoning_content": "So", "tool_calls": [CALL]}, "tool_calls")["output"]
    assert output[0] == {
        "id": "rs_x_0",
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "So"}],
        "status": "completed",
    }
    assert output[1]["content"][0]["text"] == "I look."
    assert output[2] == {
        "id": "fc_x_2",
        "type": "function_call",
        "call_id": "c1",
        "name": "find",
        "arguments": '{"q": 1}',
        "status": "completed",
    }


@pytest.mark.parametrize(
    ("finish", "status", "why", "last_item"),
    [
        ("stop", "completed", None, "completed"),
        ("tool_calls", "completed", None, "completed"),
        ("eos_token", "completed", None, "completed"),
        (None, "completed", None, "completed"),
        ("length", "incomplete", {"reason": "max_output_tokens"}, "incomplete"),
        ("content_filter", "incomplete", {"reason": "content_filter"}, "incomplete"),
        ("abort", "failed", None, "incomplete"),
    ],
)
def test_the_finish_reason_is_the_status(finish: str | None, status: str, why: Json | None, last_item: str) -> None:
    response = whole({"content": "Hi", "reasoning": "So"}, finish)
    assert (response["status"], response["incomplete_details"]) == (status, why)
    assert [item["status"] for item in response["output"]] == ["completed", last_item]
    assert (response["error"] is not None) == (status == "failed")


def test_what_was_asked_is_said_back() -> None:
    tools = [{"type": "function", "name": "find", "parameters": {}}]
    asked: Json = {"instructions": "Be brief.", "tools": tools, "temperature": 0.5, "metadata": {"k": "v"}, "user": "u"}
    response = whole({"content": "Hi"}, **asked, store=True)
    assert {name: response[name] for name in asked} == asked
    assert (response["id"], response["object"], response["created_at"]) == ("resp_x", "response", 5)
    assert (response["model"], response["store"]) == ("m", False)


def test_what_was_not_asked_is_what_the_api_says_of_it_or_null() -> None:
    response = whole({"content": "Hi"})
    unsaid = {
        name: response[name] for name in ("tools", "tool_choice", "parallel_tool_calls", "truncation", "metadata")
    }
    assert unsaid == {
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "truncation": "disabled",
        "metadata": {},
    }
    assert response["text"] == {"format": {"type": "text"}}
    assert [response[name] for name in ("temperature", "top_p", "max_output_tokens")] == [None, None, None]


def test_usage_has_the_names_of_the_dialect() -> None:
    assert whole({"content": "Hi"})["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 16},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 27,
    }


@pytest.mark.parametrize(
    ("usage", "details"),
    [
        ({"prompt_tokens": 2, "completion_tokens": 1}, None),
        ({"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": None}, None),
        (
            {"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}},
            {"cached_tokens": 0},
        ),
        (
            {
                "prompt_tokens": 2,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 2},
            },
            {"cached_tokens": 0, "cache_write_tokens": 2},
        ),
    ],
)
def test_unknown_cached_tokens_are_not_zero(usage: Json, details: Json | None) -> None:
    told = whole({"content": "Hi"}, usage=usage)["usage"]
    assert (told["input_tokens_details"], told["output_tokens_details"]) == (details, None)
    assert told["total_tokens"] == 3


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}])
def test_no_usage_is_null(usage: Json | None) -> None:
    told = whole({"content": "Hi"}, usage=usage)["usage"]
    assert told is None or told["input_tokens"] is None


def test_an_unknown_half_of_the_usage_makes_no_total() -> None:
    assert whole({"content": "Hi"}, usage={"prompt_tokens": 2})["usage"]["total_tokens"] is None


def test_a_call_of_a_custom_tool_carries_its_text() -> None:
    call = {"id": "c1", "function": {"name": "shell", "arguments": '{"input": "ls\\n"}'}}
    (item,) = whole({"tool_calls": [call]}, tools=[{"type": "custom", "name": "shell"}])["output"]
    assert item == {"id": "ctc_x_0", "type": "custom_tool_call", "call_id": "c1", "name": "shell", "input": "ls\n"}


@pytest.mark.parametrize("arguments", ["ls", "{", '{"in": "ls"}', '{"input": 1}', "[]"])
def test_what_a_model_writes_instead_is_the_text(arguments: str) -> None:
    call = {"id": "c1", "function": {"name": "shell", "arguments": arguments}}
    (item,) = whole({"tool_calls": [call]}, tools=[{"type": "custom", "name": "shell"}])["output"]
    assert item["input"] == arguments


def test_a_call_into_a_namespace_has_its_own_name_again() -> None:
    tools = [{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "find"}]}]
    call = {"id": "c1", "function": {"name": "crm__find", "arguments": "{}"}}
    (item,) = whole({"tool_calls": [call]}, tools=tools)["output"]
    assert (item["namespace"], item["name"]) == ("crm", "find")


def test_calls_have_ids_of_their_own_whatever_the_server_says() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    calls = [{"id": "c", "function": function}, {"id": "c", "function": function}, {"function": function}]
    output = whole({"tool_calls": calls})["output"]
    assert [item["call_id"] for item in output] == ["c", "c_x_1", "call_x_2"]
    assert {item["arguments"] for item in output} == {'{"a":1}'}


def test_text_in_parts_and_refusals_are_text() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    first, second = whole({"content": content, "refusal": "No."})["output"]
    assert first["content"][0]["text"] == "ab"
    assert second["content"] == [{"type": "refusal", "refusal": "No."}]


def test_only_the_first_of_several_answers_is_told() -> None:
    chat = plain({"content": "one"})
    chat["choices"] = [{"index": 1, "message": {"content": "two"}}, *chat["choices"]]
    (item,) = decoded(answer_to().whole(json.dumps(chat).encode()))["output"]
    assert item["content"][0]["text"] == "one"


def test_log_probabilities_are_the_texts() -> None:
    logprobs = [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]
    chat = plain({"content": "Hi"})
    chat["choices"][0]["logprobs"] = {"content": logprobs}
    (item,) = decoded(answer_to().whole(json.dumps(chat).encode()))["output"]
    assert item["content"][0]["logprobs"] == logprobs


def test_an_answer_without_name_and_time_gets_both() -> None:
    chat = {"choices": [{"message": {"content": "Hi"}}]}
    response = decoded(answer_to().whole(json.dumps(chat).encode()))
    assert (response["id"], response["created_at"], response["model"]) == ("resp_made", 17, "asked")


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b'{"choices":5}', b"\xff"]
)
def test_what_is_no_chat_completion_is_a_failure_of_the_server(answer: bytes) -> None:
    with pytest.raises(UpstreamFailed):
        answer_to().whole(answer)


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (
            400,
            {"error": {"message": "too long", "type": "BadRequestError", "param": "messages", "code": 400}},
            ("too long", "BadRequestError", "messages", 400),
        ),
        (
            404,
            {"object": "error", "message": "no model", "type": "NotFoundError"},
            ("no model", "NotFoundError", None, None),
        ),
        (400, {"error": "bad"}, ("bad", "invalid_request_error", None, None)),
        (400, "bad", ("bad", "invalid_request_error", None, None)),
        (403, {"detail": "forbidden"}, ("forbidden", "invalid_request_error", None, None)),
        (422, {"detail": [{"msg": "a", "loc": []}, {"msg": "b"}]}, ("a; b", "invalid_request_error", None, None)),
        (
            503,
            {"error": {"code": 503, "message": "Loading", "type": "unavailable"}},
            ("Loading", "unavailable", None, 503),
        ),
    ],
)
def test_a_refusal_says_what_the_server_said(status: int, answer: object, error: tuple[object, ...]) -> None:
    told = decoded(answer_to().refusal(status, json.dumps(answer).encode()))
    assert tuple(told["error"][name] for name in ("message", "type", "param", "code")) == error


@pytest.mark.parametrize("answer", [b"", b"<html>Bad Gateway</html>", b"{}", b"null", b"5", b'{"error":{}}'])
def test_a_refusal_without_words_says_so(answer: bytes) -> None:
    error = decoded(answer_to().refusal(502, answer))["error"]
    assert (error["message"], error["type"]) == ("the model server answered 502 without saying why", "server_error")


def test_a_refusal_in_plain_text_is_quoted_in_part() -> None:
    assert decoded(answer_to().refusal(500, b"out of memory"))["error"]["message"] == "out of memory"
    assert len(decoded(answer_to().refusal(500, b"x" * 5000))["error"]["message"]) == 1000
