"""Calls that the client forces: their shape, plain and streamed, and that they cost what was generated."""

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from backends.reference.embedded import RunningEngine
from backends.reference.tool_calls import CALL_TEXT_TOKENS
from tests.backends.reference.test_server import CHAT, Json, events, post

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
PATH = "/v1/chat/completions"


def tool(name: str, **properties: object) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


SEARCH = tool("search", limit={"type": "integer"}, mode={"type": "string", "enum": ["a"]}, größe={"type": "string"})
NOW = tool("now")
FORCED = {key: value for key, value in CHAT.items() if key != "max_tokens"} | {"tools": [SEARCH, NOW]}
REQUIRED = FORCED | {"tool_choice": "required"}


def named(name: str) -> Json:
    return FORCED | {"tool_choice": {"type": "function", "function": {"name": name}}}


async def test_a_required_call_fills_the_first_free_string_of_the_first_tool(
    shared_client: httpx.AsyncClient,
) -> None:
    body = (await post(shared_client, PATH, REQUIRED | {"return_token_ids": True})).json()
    [choice] = body["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    assert (call["type"], call["function"]["name"]) == ("function", "search")
    assert call["id"].startswith("chatcmpl-tool-")
    arguments = json.loads(call["function"]["arguments"])
    text = (await post(shared_client, "/detokenize", {"tokens": choice["token_ids"]})).json()["prompt"]
    assert arguments == {"größe": text}
    assert body["usage"]["completion_tokens"] == len(choice["token_ids"]) == CALL_TEXT_TOKENS


async def test_a_named_call_is_of_that_tool_and_ends_as_vllms_does(shared_client: httpx.AsyncClient) -> None:
    body = (await post(shared_client, PATH, named("now"))).json()
    [choice] = body["choices"]
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("body", [REQUIRED, named("search"), named("now")])
async def test_a_streamed_call_is_its_head_and_then_pieces_of_its_arguments(
    shared_client: httpx.AsyncClient, body: Json
) -> None:
    [whole] = (await post(shared_client, PATH, body)).json()["choices"]
    lines = await events(shared_client, PATH, body | {"stream_options": {"include_usage": True}})
    *chunks, usage = [json.loads(line) for line in lines[:-1]]
    role, head, *rest = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert role == {"role": "assistant", "content": ""}
    [begun] = head["tool_calls"]
    expected = whole["message"]["tool_calls"][0]
    assert begun.keys() == {"index", "id", "type", "function"}
    assert begun["function"] == {"name": expected["function"]["name"]}
    pieces = [delta["tool_calls"] for delta in rest]
    assert all(len(piece) == 1 and piece[0].keys() == {"index", "function"} for piece in pieces)
    assert "".join(piece[0]["function"]["arguments"] for piece in pieces) == expected["function"]["arguments"]
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + [whole["finish_reason"]]
    assert usage["usage"]["completion_tokens"] == len(pieces) - 1


def shape(value: object) -> object:
    """What a client can see of an event without its values: keys, and where null stands."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    return [shape(one) for one in value] if isinstance(value, list) else value is None


async def test_a_streamed_call_has_the_shape_that_was_recorded_from_vllm(shared_client: httpx.AsyncClient) -> None:
    lines = (CAPTURES / "vllm-0.32-chat-tool-required-stream.sse").read_text().split("\n\n")
    recorded = [json.loads(line.removeprefix("data: ")) for line in lines if '"tool_calls":[' in line]
    mine = [json.loads(line) for line in (await events(shared_client, PATH, REQUIRED))[1:-1]]
    assert [shape(chunk["choices"][0]["delta"]) for chunk in mine[:3]] == [
        shape(chunk["choices"][0]["delta"]) for chunk in recorded[:3]
    ]
    assert {chunk["choices"][0]["finish_reason"] for chunk in mine} == {None, "tool_calls"}


async def test_the_clients_own_limit_cuts_a_call(shared_client: httpx.AsyncClient) -> None:
    limit = CALL_TEXT_TOKENS - 1
    [cut] = (await post(shared_client, PATH, REQUIRED | {"max_tokens": limit})).json()["choices"]
    assert cut["finish_reason"] == "length"
    with pytest.raises(ValueError, match="Unterminated string"):
        json.loads(cut["message"]["tool_calls"][0]["function"]["arguments"])
    [enough] = (await post(shared_client, PATH, REQUIRED | {"max_tokens": CALL_TEXT_TOKENS})).json()["choices"]
    assert enough["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("choice", ["auto", "none", None])
async def test_without_force_nothing_is_called(shared_client: httpx.AsyncClient, choice: object) -> None:
    body = FORCED | {"tool_choice": choice, "max_tokens": 3}
    [answer] = (await post(shared_client, PATH, body)).json()["choices"]
    assert "tool_calls" not in answer["message"]
    assert answer["message"]["content"]
    assert answer["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tools": None}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "tools"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": 3}, "body.tool_choice"),
    ],
)
async def test_a_choice_that_cannot_be_made_is_refused(
    shared_client: httpx.AsyncClient, change: Json, param: str
) -> None:
    error = (await post(shared_client, PATH, REQUIRED | change, 400)).json()["error"]
    assert error["param"] == param


async def test_parameters_of_any_shape_do_no_harm(shared_client: httpx.AsyncClient) -> None:
    schemas: list[object] = [
        None,
        [],
        {"properties": []},
        {"properties": {"a": True}},
        {"properties": {"a": {"type": []}}},
    ]
    for parameters in schemas:
        odd = {"type": "function", "function": {"name": "odd", "parameters": parameters}}
        body = (await post(shared_client, PATH, REQUIRED | {"tools": [odd]})).json()
        assert body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_the_official_client_reads_a_streamed_call(shared: RunningEngine) -> None:
    arguments: Any = CHAT | {"tools": [SEARCH], "tool_choice": "required", "max_tokens": 20}
    del arguments["ignore_eos"]
    async with (
        openai.AsyncOpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0) as client,
        client.chat.completions.stream(**arguments) as stream,
    ):
        done = [event async for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = await stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls or []
    assert [event.name for event in done] == [call.function.name] == ["search"]
    assert json.loads(call.function.arguments).keys() == {"größe"}
