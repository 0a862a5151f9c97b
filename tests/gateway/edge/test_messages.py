"""A body of the Messages dialect becomes the chat that vLLM itself would make of it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.edge.messages import MessagesTranslation, untranslatable
from gateway.errors import BadRequest

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
RECORDED = [json.loads(line) for line in (CAPTURES / "vllm-0.32-messages-chat-form.jsonl").read_text().splitlines()]
SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "thinking_token_budget")
PROMPT = ("reasoning_effort", "chat_template_kwargs", "response_format")


def chat_form(body: dict[str, Any], **options: Any) -> dict[str, Any]:
    return MessagesTranslation(**options).chat_form(body)


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}], **fields}


def said_by_user(*blocks: object) -> dict[str, Any]:
    return asking(messages=[{"role": "user", "content": list(blocks)}])


def as_vllm_reads_it(message: dict[str, Any]) -> dict[str, Any]:
    """A chat message as vLLM's chat endpoint reads it: the older name of reasoning is folded into the newer, and no
    content is the same as none."""
    return {
        key: value
        for key, value in message.items()
        if key != "reasoning_content" and not (key == "content" and value is None)
    }


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['name']}, {row['merge_inline_system']}")
def test_the_chat_is_the_one_that_vllm_makes(row: dict[str, Any]) -> None:
    form, expected = chat_form(row["body"], merge_inline_system=row["merge_inline_system"]), row["chat"]
    assert [as_vllm_reads_it(message) for message in form["messages"]] == expected["messages"]
    tools = [{**tool, "function": {"description": None, **tool["function"]}} for tool in form.get("tools", ())]
    assert json.dumps([_in_order(tool) for tool in tools]) == json.dumps(expected.get("tools", []))
    for key in (*SAMPLING, *PROMPT):
        assert form.get(key) == expected.get(key), key
    assert form.get("stop", []) == (expected.get("stop") or [])
    assert form.get("stream", False) == expected.get("stream", False)
    if tools:
        assert form.get("tool_choice", "auto") == expected["tool_choice"]
        assert form.get("parallel_tool_calls", True) == expected["parallel_tool_calls"]


def _in_order(tool: dict[str, Any]) -> dict[str, Any]:
    order = ("name", "description", "parameters", "strict", "defer_loading")
    return {"type": tool["type"], "function": {key: tool["function"][key] for key in order if key in tool["function"]}}


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["name"])
def test_a_body_is_not_changed_by_its_translation(row: dict[str, Any]) -> None:
    before = copy.deepcopy(row["body"])
    chat_form(row["body"])
    assert row["body"] == before


def test_a_stream_reports_its_usage() -> None:
    form = chat_form(asking(stream=True, stream_options={"include_usage": False}))
    assert form["stream"] is True
    assert form["stream_options"] == {"include_usage": True}
    assert "stream_options" not in chat_form(asking(stream=False, stream_options={"include_usage": True}))


def test_fields_that_the_dialect_does_not_know_pass() -> None:
    extensions: dict[str, Any] = {"min_p": 0.1, "seed": 7, "cache_salt": "s", "vllm_xargs": {"a": [1]}}
    assert {key: chat_form(asking(**extensions))[key] for key in extensions} == extensions


@pytest.mark.parametrize(
    "field",
    [
        "add_generation_prompt",
        "best_of",
        "chat_template",
        "documents",
        "function_call",
        "functions",
        "mcp_servers",
        "n",
        "reasoning_effort",
        "service_tier",
    ],
)
def test_fields_that_mean_nothing_to_a_server_of_messages_or_only_to_anthropic_do_not_pass(field: str) -> None:
    assert field not in chat_form(asking(**{field: "x"}))


def test_a_model_need_not_be_named() -> None:
    body = asking()
    del body["model"]
    assert "model" not in chat_form(body)
    assert chat_form(asking())["model"] == "m"


TOOL = {"name": "f", "input_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({}, None),
        ({"mcp_servers": [], "container": None, "tools": [], "system": "Be brief."}, None),
        ({"tools": [TOOL, {**TOOL, "type": "custom"}, {"type": "function", "function": {"name": "g"}}]}, None),
        ({"system": [{"type": "text", "text": "a"}]}, None),
        ({"tools": [5], "messages": [5, {"role": "user", "content": [5]}], "system": [5]}, None),
        ({"mcp_servers": [{"type": "url", "url": "u", "name": "n"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, "tools[0].type"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}]}, "tools[0].type"),
        ({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "n"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"system": [{"type": "document"}]}, "system[0].type"),
        ({"max_tokens": None}, "max_tokens"),
    ],
)
def test_what_no_chat_can_ask_for_is_named(fields: dict[str, Any], place: str | None) -> None:
    assert untranslatable(asking(**fields)) == place
    assert MessagesTranslation().untranslatable(asking(**fields)) == place


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({"type": "text", "text": "a"}, None),
        ({"type": "image", "source": {"type": "url", "url": "u"}}, None),
        ({"type": "image_url", "image_url": {"url": "u"}}, None),
        ({"type": "thinking", "thinking": "so"}, None),
        ({"type": "redacted_thinking", "data": "x"}, None),
        ({"type": "tool_use", "id": "a", "name": "f", "input": {}}, None),
        ({"type": "tool_result", "tool_use_id": "a", "content": "x"}, None),
        ({"type": "tool_result", "content": [{"type": "text", "text": "a"}, {"type": "tool_reference"}]}, None),
        ({"type": "document", "source": {"type": "text", "data": "x"}}, "type"),
        ({"type": "file", "file": {}}, "type"),
        ({"type": "search_result", "content": []}, "type"),
        ({"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}}, "type"),
        ({"type": "web_search_tool_result", "tool_use_id": "a", "content": []}, "type"),
        ({"type": "hologram"}, "type"),
        ({"type": ["text"]}, "type"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source.type"),
        ({"type": "tool_result", "content": [{"type": "text"}, {"type": "search_result"}]}, "content[1].type"),
    ],
)
def test_what_no_chat_can_say_is_named(block: dict[str, Any], place: str | None) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "user", "content": [{"type": "text", "text": "b"}, block]}]
    expected = None if place is None else f"messages[1].content[1].{place}"
    assert untranslatable(asking(messages=messages)) == expected


def test_system_messages_may_change_the_tools() -> None:
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}
    assert untranslatable(asking(messages=[{"role": "system", "content": [removal]}])) is None
    picture = {"type": "image", "source": {"type": "url", "url": "u"}}
    body = asking(messages=[{"role": "system", "content": [removal, picture]}])
    assert untranslatable(body) == "messages[0].content[1].type"


def test_a_choice_among_no_tools_is_left_out() -> None:
    for body in (asking(), asking(tools=[])):
        form = chat_form({**body, "tool_choice": {"type": "any"}})
        assert form.keys().isdisjoint({"tools", "tool_choice", "parallel_tool_calls"})


def test_parallel_calls_are_spoken_of_only_where_the_client_does() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    assert "parallel_tool_calls" not in chat_form(asking(tools=tools, tool_choice={"type": "auto"}))
    form = chat_form(asking(tools=tools, tool_choice={"type": "auto", "disable_parallel_tool_use": True}))
    assert form["parallel_tool_calls"] is False


def test_thinking_has_both_of_its_names() -> None:
    blocks = [{"type": "thinking", "thinking": "Well."}]
    (message,) = chat_form(asking(messages=[{"role": "assistant", "content": blocks}]))["messages"]
    assert message["reasoning"] == message["reasoning_content"] == "Well."


def test_blocks_and_tools_that_only_some_servers_know_pass_as_they_are() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "x"}, "title": "y", "content": 7}
    picture = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    (message,) = chat_form(said_by_user(document, picture))["messages"]
    assert message["content"] == [document, picture]
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    assert chat_form(asking(tools=[search]))["tools"] == [search]


def test_a_call_without_an_id_gets_one() -> None:
    calls = [{"type": "tool_use", "name": "f", "input": {}}] * 2
    (message,) = chat_form(asking(messages=[{"role": "assistant", "content": calls}]))["messages"]
    assert [call["id"] for call in message["tool_calls"]] == ["call_0", "call_1"]


def test_turning_thinking_off_says_what_the_template_understands() -> None:
    body = asking(thinking={"type": "disabled"})
    assert chat_form(body)["reasoning_effort"] == "none"
    assert chat_form(body, disabled_thinking_effort="low")["reasoning_effort"] == "low"


def test_a_limit_of_tokens_may_be_absent_or_null() -> None:
    body = asking()
    del body["max_tokens"]
    assert "max_tokens" not in chat_form(body)
    assert "max_tokens" not in chat_form(asking(max_tokens=None))


SECRET = "kept-to-itself"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "m"}, "messages"),
        ({"model": [SECRET], "messages": []}, "model"),
        ({"model": "m", "messages": SECRET}, "messages"),
        ({"model": "m", "messages": {SECRET: 1}}, "messages"),
        (asking(messages=[SECRET]), "messages[0]"),
        (asking(messages=[{"content": SECRET}]), "messages[0].role"),
        (asking(messages=[{"role": "user"}]), "messages[0].content"),
        (asking(messages=[{"role": "user", "content": {SECRET: 1}}]), "messages[0].content"),
        (asking(messages=[{"role": "user", "content": None}]), "messages[0].content"),
        (said_by_user(SECRET), "messages[0].content[0]"),
        (said_by_user({"text": SECRET}), "messages[0].content[0].type"),
        (said_by_user({"type": "text", "text": [SECRET]}), "messages[0].content[0].text"),
        (said_by_user({"type": "image", "source": SECRET}), "messages[0].content[0].source"),
        (said_by_user({"type": "tool_result", "content": {SECRET: 1}}), "messages[0].content[0].content"),
        (said_by_user({"type": "tool_result", "content": [SECRET]}), "messages[0].content[0].content[0]"),
        (
            said_by_user({"type": "tool_result", "content": [{"type": "text", "text": [SECRET]}]}),
            "messages[0].content[0].content[0].text",
        ),
        (asking(max_tokens=SECRET), "max_tokens"),
        (asking(max_tokens=True), "max_tokens"),
        (asking(stream=SECRET), "stream"),
        (asking(system={SECRET: 1}), "system"),
        (asking(stop_sequences=[[SECRET]]), "stop_sequences[0]"),
        (asking(tools={SECRET: 1}), "tools"),
        (asking(tools=[{"name": "f", "input_schema": SECRET}]), "tools[0].input_schema"),
        (asking(tools=[{"input_schema": {SECRET: 1}}]), "tools[0].name"),
        (asking(tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": SECRET}), "tool_choice.type"),
        (asking(tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": "tool"}), "tool_choice.name"),
        (asking(thinking={"type": "enabled", "budget_tokens": SECRET}), "thinking.budget_tokens"),
        (
            asking(
                messages=[
                    {
                        "role": "system",
                        "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": SECRET}}],
                    }
                ]
            ),
            "messages[0].content[0].tool.name",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "body",
)
def test_a_form_that_no_server_takes_is_refused_by_its_place_and_not_its_content(
    body: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        chat_form(body)
    assert refused.value.param == param
    assert SECRET not in refused.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "input", "source", "tool", "id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
block_types = st.sampled_from(["text", "image", "thinking", "tool_use", "tool_result", "tool_addition", "document"])
blocks = st.dictionaries(st.sampled_from(["text", "content", "source", "input", "tool", "name"]), json_values).flatmap(
    lambda fields: block_types.map(lambda kind: {"type": kind, **fields})
)
roles = st.sampled_from(["user", "assistant", "system"])
odd_messages = st.fixed_dictionaries({"role": roles, "content": st.lists(blocks | json_values, max_size=3)})


@given(st.lists(odd_messages, max_size=3), json_values, json_values)
def test_whatever_a_body_holds_becomes_a_chat_or_is_refused(
    messages: list[object], system: object, tools: object
) -> None:
    body = {"model": "m", "messages": messages, "system": system, "tools": tools}
    untranslatable(body)
    try:
        form = chat_form(body)
    except BadRequest:
        return
    assert all(isinstance(message["role"], str) for message in form["messages"])
    json.dumps(form)


def test_tools_without_a_proper_name_stay_where_others_are_added() -> None:
    odd: list[dict[str, Any]] = [{"name": ["f"], "type": "x"}, {"type": "y"}, {"type": "z"}]
    definition = {"name": "g", "input_schema": {"type": "object"}}
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    form = chat_form(asking(tools=odd, messages=[{"role": "system", "content": [added]}]))
    assert form["tools"][:3] == odd
    assert form["tools"][3]["function"]["name"] == "g"


def test_a_long_tool_that_is_added_often_takes_no_square_of_the_body() -> None:
    tool = {"name": "f", "defer_loading": True, **{f"x{number}": 0 for number in range(20_000)}}
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}
    body = asking(tools=[tool], messages=[{"role": "system", "content": [added] * 20_000}])
    assert chat_form(body)["tools"] == [{key: value for key, value in tool.items() if key != "defer_loading"}]


def test_input_too_deep_to_be_written_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(BadRequest) as refused:
        chat_form(
            asking(messages=[{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": deep}]}])
        )
    assert refused.value.param == "messages[0].content[0].input"
    while deep:  # taken apart, for Python's own end of it goes as deep
        deep = deep["x"]
