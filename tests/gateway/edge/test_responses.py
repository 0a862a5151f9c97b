"""Requests of the Responses dialect: what chat they are, what is refused, what no chat server can serve."""

import copy
import json
from pathlib import Path

import pytest

from gateway.edge.responses import ResponsesTranslation, untranslatable
from gateway.errors import BadRequest

BODIES = Path(__file__).parents[2] / "data" / "prompts" / "responses_bodies.jsonl"
ROWS = [json.loads(line) for line in BODIES.read_text(encoding="utf-8").splitlines()]
USER = {"role": "user", "content": "Hi"}
CALL = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
FUNCTION = {"type": "function", "name": "find", "parameters": {"type": "object"}}


def form(**body: object) -> dict[str, object]:
    return ResponsesTranslation().chat_form({"model": "m", "input": "Hi", **body})


def messages(*items: object, **body: object) -> object:
    return form(input=list(items), **body)["messages"]


def said_by(message: dict[str, object]) -> dict[str, object]:
    """A message as templates tell it from others: texts as a list, media by their kind, ids and names."""
    content = message.get("content")
    parts = [{"text": content}] if isinstance(content, str) else content or []
    assert isinstance(parts, list)
    texts = [part.get("text") if "text" in part else part["type"].removeprefix("input_")[:5] for part in parts]
    kept = ("role", "reasoning", "tool_calls", "tool_call_id", "name")
    return {"content": texts, **{key: message[key] for key in kept if key in message}}


def shown_tools(chat: dict[str, object]) -> object:
    """The tools of a chat as vLLM writes them into prompts: what is not said is null, but for `strict`."""
    tools = chat.get("tools", [])
    assert isinstance(tools, list)
    unsaid = {"name": None, "description": None, "parameters": None}
    return [{"type": tool["type"], "function": unsaid | tool["function"]} for tool in tools]


@pytest.mark.parametrize("row", [row for row in ROWS if row["vllm"]], ids=lambda row: row["id"])
def test_a_template_sees_what_vllm_shows_it_for_the_same_request(row: dict[str, dict[str, object]]) -> None:
    vllm = row["vllm"]
    chat = ResponsesTranslation().chat_form(row["body"])
    ours, theirs, kwargs = chat["messages"], vllm["messages"], vllm["template_kwargs"]
    assert isinstance(ours, list)
    assert isinstance(theirs, list)
    assert isinstance(kwargs, dict)
    assert [said_by(message) for message in ours] == [said_by(message) for message in theirs]
    # Compared as text: the order of keys is part of the prompt.
    assert json.dumps(shown_tools(chat)) == json.dumps(vllm["tools"] or [])
    assert chat.get("add_generation_prompt", True) == kwargs["add_generation_prompt"]
    assert chat.get("continue_final_message", False) == kwargs["continue_final_message"]
    assert chat.get("reasoning_effort") == kwargs.get("reasoning_effort")
    assert row["body"].get("chat_template_kwargs", {}).items() <= kwargs.items()  # type: ignore[attr-defined]  # a body


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_body_is_not_changed(row: dict[str, dict[str, object]]) -> None:
    before = copy.deepcopy(row["body"])
    ResponsesTranslation().chat_form(row["body"])
    untranslatable(row["body"])
    ResponsesTranslation().translator(row["body"])
    assert row["body"] == before


def test_instructions_come_first_and_text_is_the_users() -> None:
    assert form(instructions="Be brief.")["messages"] == [{"role": "system", "content": "Be brief."}, USER]


def test_one_turn_of_the_model_is_one_message() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    turn = {"role": "assistant", "reasoning": "so", "reasoning_content": "so", "content": "I look."}
    turn["tool_calls"] = [CHAT_CALL, {**CHAT_CALL, "id": "c2"}]  # type: ignore[assignment]  # a message is of any shape
    assert messages(USER, reasoning, said, CALL, {**CALL, "call_id": "c2"}, output) == [
        USER,
        turn,
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
    ]


def test_an_assistants_text_in_parts_is_kept_whole() -> None:
    parts = [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert messages({"type": "message", "role": "assistant", "content": parts}) == [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}
    ]


@pytest.mark.parametrize(
    ("part", "chat"),
    [
        ({"type": "input_image", "image_url": "u"}, {"type": "image_url", "image_url": {"url": "u"}}),
        (
            {"type": "input_image", "image_url": "u", "detail": "low"},
            {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
        ),
        (
            {"type": "input_file", "file_data": "d", "filename": "f"},
            {"type": "file", "file": {"file_data": "d", "filename": "f"}},
        ),
        ({"type": "input_file", "file_id": "f"}, {"type": "file", "file": {"file_id": "f"}}),
        ({"type": "input_file", "file_url": "u"}, {"type": "input_file", "file_url": "u"}),
        ({"type": "input_image", "file_id": "f"}, {"type": "input_image", "file_id": "f"}),
        ({"type": "input_audio", "input_audio": {}}, {"type": "input_audio", "input_audio": {}}),
        ({"type": "hologram", "x": 1}, {"type": "hologram", "x": 1}),
    ],
)
def test_parts_are_said_in_the_chats_words_or_pass_as_they_are(part: object, chat: object) -> None:
    assert messages({"role": "user", "content": [part]}) == [{"role": "user", "content": [chat]}]


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"max_output_tokens": 5}, {"max_tokens": 5}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning_effort": "low"}),
        ({"reasoning": None, "text": None, "tools": None}, {}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {}, "strict": True},
                }
            },
        ),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        (
            {"stream": True, "stream_options": {"include_obfuscation": False}},
            {"stream": True, "stream_options": {"include_usage": True}},
        ),
        ({"stream": False}, {"stream": False}),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ({"include": ["reasoning.encrypted_content"], "top_logprobs": 2}, {}),
        ({"store": True, "truncation": "auto", "max_tool_calls": 3, "context_management": []}, {}),
        ({"n": 2, "best_of": 2, "messages": "x", "functions": [], "function_call": "f"}, {}),
        ({"temperature": 0.1, "wild": {"a": [1]}, "top_k": 3}, {"temperature": 0.1, "wild": {"a": [1]}, "top_k": 3}),
        ({"user": "u", "metadata": {"k": "v"}}, {"user": "u", "metadata": {"k": "v"}}),
        ({"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
    ],
)
def test_fields_become_the_chats_or_nothing(fields: dict[str, object], chat: dict[str, object]) -> None:
    assert form(**fields) == {"model": "m", "messages": [USER], **chat}


@pytest.mark.parametrize(
    ("choice", "chat"),
    [
        ("auto", "auto"),
        ({"type": "function", "name": "find"}, {"type": "function", "function": {"name": "find"}}),
        ({"type": "custom", "name": "find"}, {"type": "function", "function": {"name": "find"}}),
        ({"type": "function", "name": "add"}, {"type": "function", "function": {"name": "crm__add"}}),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "find"}]},
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "find"}}],
                },
            },
        ),
        ({"type": "hosted"}, {"type": "hosted"}),
    ],
)
def test_a_choice_of_a_tool_names_it_as_the_chat_does(choice: object, chat: object) -> None:
    namespace = {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "add"}]}
    got = form(tools=[FUNCTION, namespace], tool_choice=choice, parallel_tool_calls=False)
    assert (got["tool_choice"], got["parallel_tool_calls"]) == (chat, False)


def test_a_name_in_two_namespaces_is_left_as_it_is() -> None:
    inner = [{"type": "function", "name": "add"}, {"type": "custom"}]
    tools = [{"type": "namespace", "name": name, "tools": inner} for name in ("a", "b")]
    choice = form(tools=tools, tool_choice={"type": "function", "name": "add"})["tool_choice"]
    assert choice == {"type": "function", "function": {"name": "add"}}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": {}}, "input"),
        ({"input": ["Hi"]}, "input[0]"),
        ({"input": [USER, {}]}, "input[1]"),
        ({"input": [{"type": 5}]}, "input[0]"),
        ({"input": [{"type": "message", "role": 5}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["Hi"]}]}, "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": []}]}]}, "input[0].content[0].type"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
        ({"input": [{**CALL, "call_id": None}]}, "input[0].call_id"),
        ({"input": [{**CALL, "name": 1}]}, "input[0].name"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "n"}]}, "input[0].input"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 1}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "content": [{"text": 1}]}]}, "input[0].content[0].text"),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"instructions": 5}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "tools[0].tools[0].name"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"text": "json"}, "text"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"reasoning": "high"}, "reasoning"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
    ],
)
def test_a_form_that_no_server_takes_is_refused_by_its_place(body: dict[str, object], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        form(**body)
    assert refused.value.param == param
    assert param in refused.value.message


def test_a_refusal_quotes_nothing() -> None:
    with pytest.raises(BadRequest) as refused:
        messages({"role": "user", "content": [{"type": "input_text", "text": ["secret"]}]})
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, None),
        ({"background": False, "store": True, "previous_response_id": None}, None),
        ({"tools": [FUNCTION, {"type": "custom", "name": "c"}], "tool_choice": "auto"}, None),
        ({"tools": [5], "input": [5, USER, CALL]}, None),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"tools": [FUNCTION, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar"}}]}, "tools[0].format"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"input": [USER, {"type": "item_reference", "id": "msg_1"}]}, "input[1].type"),
        ({"input": [{"id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
    ],
)
def test_what_a_server_without_a_store_cannot_serve_is_named(body: dict[str, object], field: str | None) -> None:
    assert untranslatable(body) == field
    assert ResponsesTranslation().untranslatable(body) == field


def test_an_item_that_no_chat_has_makes_the_prompt_unknown_and_not_wrong() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    assert messages(USER, search) == [USER, {"role": "assistant", "content": [search]}]


def test_a_request_that_continues_a_stored_one_needs_no_input() -> None:
    assert form(input=None, previous_response_id="resp_1")["messages"] == []


def test_a_message_of_no_parts_is_empty() -> None:
    assert messages({"role": "assistant", "content": []}) == [{"role": "assistant", "content": ""}]


def test_instructions_may_be_items() -> None:
    assert messages(USER, instructions=[{"role": "developer", "content": "Be brief."}]) == [
        {"role": "developer", "content": "Be brief."},
        USER,
    ]


def test_allowed_tools_are_named_by_their_place_and_found_among_many() -> None:
    many = [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": f"f{i}"} for i in range(20_000)]}]
    allowed = [{"type": "function", "name": f"f{i}"} for i in range(20_000)]
    choice = form(tools=many, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": allowed})["tool_choice"]
    assert isinstance(choice, dict)
    names = [tool["function"]["name"] for tool in choice["allowed_tools"]["tools"]]
    assert names == [f"n__f{i}" for i in range(20_000)]
    with pytest.raises(BadRequest) as refused:
        form(tools=many, tool_choice={"type": "allowed_tools", "tools": [{"type": "function"}]})
    assert refused.value.param == "tool_choice.tools[0].name"


def test_reasoning_and_custom_calls_are_read_as_vllm_reads_them() -> None:
    summary = [{"type": "summary_text", "text": "a summary"}]
    told = {"type": "reasoning", "summary": summary, "content": [{"type": "reasoning_text", "text": ""}]}
    call = {"type": "custom_tool_call", "call_id": "z", "name": "c", "namespace": "n", "input": "q"}
    function = {"name": "c", "arguments": '{"input": "q"}'}
    assert messages(told, call) == [
        {
            "role": "assistant",
            "reasoning": "",
            "reasoning_content": "",
            "tool_calls": [{"id": "z", "type": "function", "function": function}],
        }
    ]
