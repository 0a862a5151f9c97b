import copy
import json

import pytest

from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt import ChatTemplate, ContentFormat, PromptView, Renderer, Unsupported
from prefix_index.prompt.render import ChatRenderer, plain_prompt
from prefix_index.prompt.types import Json
from prefix_index.prompt.vllm_chat import developer_as_system, vllm_tool
from prefix_index.token_bytes import unpack
from prefix_index.types import TokenIds
from tests.prefix_index.prompt_data import Chat, chats, template_messages

SHOW = ChatTemplate("{{ messages | tojson }}")


def chat_text(view: PromptView, template: ChatTemplate, renderer: Renderer) -> str:
    (piece,) = ChatRenderer(template, renderer).render(view).pieces
    assert isinstance(piece, str)
    return piece


def text(parts: object) -> dict[str, object]:
    return {"role": "user", "content": parts}


def seen(
    message: dict[str, object], wanted: ContentFormat = ContentFormat.STRING, renderer: Renderer = Renderer.VLLM
) -> Json:
    return template_messages([message], wanted, renderer)[0]


def test_text_parts_are_joined_with_a_newline_where_the_template_wants_text() -> None:
    parts = [
        {"type": "text", "text": "a"},
        "b",
        {"type": "input_text", "text": "c"},
        {"type": "refusal", "refusal": "d"},
    ]
    assert seen(text(parts))["content"] == "a\nb\nc\nd"


def test_text_becomes_one_part_where_the_template_wants_parts() -> None:
    assert seen(text("a"), ContentFormat.PARTS)["content"] == [{"type": "text", "text": "a"}]
    assert seen({"role": "tool", "content": [{"type": "text", "text": "a"}]}, ContentFormat.PARTS)["content"] == "a"


@pytest.mark.parametrize("content", [None, [], "", [{"type": "text", "text": None}]])
def test_no_content_is_empty_text(content: object) -> None:
    assert seen({"role": "assistant", "content": content}) == {"role": "assistant", "content": ""}


def call(arguments: object) -> dict[str, object]:
    return {"type": "function", "id": "c1", "function": {"name": "f", "arguments": arguments, "x": 1}, "y": 2}


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ('{"b": 1, "a": {"c": 2.50}}', {"b": 1, "a": {"c": 2.5}}),
        ({"b": 1}, {"b": 1}),
        ("{not json", {}),
        ("[1]", {}),
        ("", {}),
        (None, {}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_of_tool_calls_reach_the_template_as_objects(arguments: object, parsed: object) -> None:
    calls = seen({"role": "assistant", "content": None, "tool_calls": [call(arguments)]})["tool_calls"]
    assert json.dumps(calls) == json.dumps(
        [{"id": "c1", "function": {"arguments": parsed, "name": "f"}, "type": "function"}]
    )


def test_tool_calls_keep_their_form_where_the_engine_does_not_rewrite_them() -> None:
    calls = seen({"role": "assistant", "tool_calls": [call('{"a": 1}')]}, renderer=Renderer.PLAIN)["tool_calls"]
    assert json.dumps(calls) == json.dumps([call({"a": 1})])


def test_empty_tool_calls_are_left_out() -> None:
    assert "tool_calls" not in seen({"role": "assistant", "content": "a", "tool_calls": []})


def test_reasoning_has_both_of_its_names_and_only_on_assistant_messages() -> None:
    message: dict[str, object] = {"role": "assistant", "content": "b", "reasoning_content": "r"}
    assert seen(message)["reasoning"] == seen(message)["reasoning_content"] == "r"
    assert "reasoning" not in seen({**message, "role": "user"})
    assert seen({**message, "reasoning": "newer"})["reasoning_content"] == "newer"


def test_fields_unknown_to_engines_do_not_reach_the_template() -> None:
    message: dict[str, object] = {
        "role": "tool",
        "content": "a",
        "name": "n",
        "tool_call_id": "c",
        "task": "t",
        "cache_control": {},
    }
    assert seen(message) == {"role": "tool", "content": "a", "tool_call_id": "c", "name": "n", "task": "t"}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "image_url", "image_url": {"url": ""}}, Unsupported.IMAGE),
        ({"image_url": ""}, Unsupported.IMAGE),
        ({"type": "input_audio", "input_audio": {}}, Unsupported.AUDIO),
        ({"type": "video_url", "video_url": {}}, Unsupported.VIDEO),
        ({"type": "file", "file": {}}, Unsupported.FILE),
        ({"type": "prompt_embeds", "data": ""}, Unsupported.EMBEDS),
        ({"type": "text", "text": "a", "uuid": "u"}, Unsupported.OTHER_PART),
        ({"type": "hologram"}, Unsupported.OTHER_PART),
        ({"type": 3}, Unsupported.OTHER_PART),
        ({}, Unsupported.OTHER_PART),
    ],
)
def test_parts_that_are_not_text_are_named_and_not_guessed(part: object, kind: Unsupported) -> None:
    with pytest.raises(UnsupportedContent) as caught:
        seen(text([{"type": "text", "text": "a"}, part]))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "message",
    [
        None,
        "a",
        {},
        {"role": 1, "content": "a"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [7]},
        {"role": "user", "content": [{"type": "text", "text": 7}]},
        {"role": "assistant", "tool_calls": ["x"]},
        {"role": "assistant", "tool_calls": [{"function": "f"}]},
    ],
)
def test_messages_of_the_wrong_shape_are_refused(message: object) -> None:
    with pytest.raises(TemplateFailed):
        template_messages([message], ContentFormat.STRING, Renderer.VLLM)


def test_the_billing_line_of_agents_is_dropped_from_system_prompts_only() -> None:
    line = "x-anthropic-billing-header: cch=123"
    assert seen({"role": "system", "content": f"{line}\nBe good."})["content"] == "Be good."
    assert seen({"role": "system", "content": [{"type": "text", "text": line}, "Be good."]})["content"] == "Be good."
    assert seen({"role": "user", "content": line})["content"] == line
    assert seen({"role": "system", "content": line}, renderer=Renderer.PLAIN)["content"] == line


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["system:a", "user:b"], ["system:a", "user:b"]),
        (["developer:a", "user:b"], ["system:a", "user:b"]),
        (["user:b", "developer:a"], ["system:a", "user:b"]),
        (["system:a", "developer:", "developer:c", "user:b"], ["system:a\n\nc", "user:b"]),
    ],
)
def test_developers_speak_as_the_system_where_a_template_does_not_know_them(
    roles: list[str], expected: list[str]
) -> None:
    messages: list[Json] = [dict(zip(("role", "content"), role.split(":"), strict=True)) for role in roles]
    assert [f"{m['role']}:{m['content']}" for m in developer_as_system(messages)] == expected


def test_a_reference_to_a_tool_is_its_name_or_a_part_of_its_own() -> None:
    parts = ["a", {"type": "tool_reference", "name": "f", "x": 1}]
    message: dict[str, object] = {"role": "tool", "content": parts}
    assert seen(message)["content"] == "a\nf"
    reference = {"type": "tool_reference", "name": "f"}
    assert seen(message, ContentFormat.PARTS)["content"] == [{"type": "text", "text": "a"}, reference]


def test_further_fields_of_parts_reach_templates_that_walk_parts() -> None:
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    known = {"type": "refusal", "refusal": "b", "name": "n"}
    assert seen(text([part, known]), ContentFormat.PARTS)["content"] == [part, {"type": "text", "text": "b"}]
    assert seen(text([part, known]))["content"] == "a\nb"
    assert seen(text([part]), ContentFormat.PARTS, Renderer.SGLANG)["content"] == [{"type": "text", "text": "a"}]


def test_a_tool_call_without_a_name_has_none() -> None:
    calls = seen({"role": "assistant", "tool_calls": [{"function": {}}]})["tool_calls"]
    assert calls == [{"function": {"arguments": {}}}]


def test_what_engines_render_by_code_is_rendered_by_no_template() -> None:
    with pytest.raises(UnsupportedContent) as caught:
        chat_text(PromptView(messages=[text("x")]), SHOW, Renderer.CUSTOM)
    assert caught.value.kind == Unsupported.CUSTOM_ENCODER


def test_a_template_that_knows_developers_gets_them_with_their_tools() -> None:
    template = ChatTemplate("{% if messages[0].role == 'developer' %}{{ messages | tojson }}{% endif %}")
    view = PromptView(messages=[{"role": "developer", "content": "a", "tools": [1]}])
    assert json.loads(chat_text(view, template, Renderer.VLLM))[0]["tools"] == [1]
    plain = json.loads(chat_text(view, SHOW, Renderer.VLLM))
    assert plain == [{"role": "system", "content": "a"}]


def test_tools_of_developers_are_read_into_models_where_all_of_them_fit() -> None:
    """As vLLM's request does it: known keys first, in the model's order, all others behind them."""
    template = ChatTemplate("{% if messages[0].role == 'developer' %}{{ messages[0].tools | tojson }}{% endif %}")

    def shown(*tools: object) -> str:
        view = PromptView(messages=[{"role": "developer", "content": "a", "tools": list(tools)}])
        return chat_text(view, template, Renderer.VLLM)

    fits = {"type": "function", "y": 1, "function": {"x": 1, "description": "d", "name": "f"}}
    seen = '{"function": {"name": "f", "description": "d", "x": 1}, "type": "function", "y": 1}'
    assert shown(fits) == f"[{seen}]"
    for odd in ({"type": "odd"}, 5, {"type": "function", "function": {"description": None, "name": "f"}}):
        assert shown(fits, odd) == json.dumps([fits, odd])


def test_parts_of_developers_are_joined_when_they_become_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages: list[Json] = [{"role": "user", "content": "x"}, {"role": "developer", "content": parts}]
    assert developer_as_system(messages)[0] == {"role": "system", "content": "a\nb"}


def test_tools_are_written_as_vllm_writes_them() -> None:
    tool = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "x": 1, "strict": True}, "y": 1}
    assert json.dumps(vllm_tool(tool)) == json.dumps(
        {
            "type": "function",
            "function": {"name": "f", "description": None, "parameters": {"b": 1, "a": 2}, "strict": True},
        }
    )
    deferred = {"type": "function", "function": vllm_tool({"function": {"name": "f"}, "defer_loading": True})}
    assert json.dumps(deferred["function"]) == json.dumps(
        {
            "type": "function",
            "function": {"name": "f", "description": None, "parameters": None, "defer_loading": True},
            "defer_loading": True,
        }
    )
    with pytest.raises(TemplateFailed):
        vllm_tool("f")


@pytest.mark.parametrize("chat", chats(), ids=lambda chat: chat.name)
def test_rendering_changes_nothing_the_client_sent(chat: Chat) -> None:
    before = copy.deepcopy(chat.request)
    chat_text(chat.view, SHOW, Renderer.VLLM)
    assert chat.request == before


def test_template_arguments_reach_the_template_but_cannot_replace_what_is_rendered() -> None:
    show = ChatTemplate("{{ a }} {{ tools }} {{ documents }} {{ add_generation_prompt }}")
    arguments = {"a": 1, "add_generation_prompt": False, "tools": 7}
    view = PromptView(messages=[text("x")], tools=[], template_kwargs=arguments)
    assert chat_text(view, show, Renderer.VLLM) == "1 [] None True"
    for name in ("messages", "chat_template", "tokenize"):
        with pytest.raises(TemplateFailed, match=name):
            chat_text(PromptView(messages=[text("x")], template_kwargs={name: "y"}), show, Renderer.VLLM)


@pytest.mark.parametrize(
    ("effort", "arguments", "renderer", "expected"),
    [
        (None, {}, Renderer.VLLM, "-"),
        ("high", {}, Renderer.VLLM, "high True"),
        ("none", {}, Renderer.VLLM, "none False"),
        ("high", {"enable_thinking": False}, Renderer.VLLM, "high False"),
        ("high", {}, Renderer.PLAIN, "high -"),
    ],
)
def test_the_reasoning_effort_decides_whether_a_template_lets_the_model_think(
    effort: str | None, arguments: dict[str, object], renderer: Renderer, expected: str
) -> None:
    template = ChatTemplate("{{ reasoning_effort }} {{ enable_thinking }}")
    view = PromptView(messages=[text("x")], reasoning_effort=effort, template_kwargs=arguments)
    assert chat_text(view, template, renderer).split() == expected.replace("-", "").split()


@pytest.mark.parametrize("prompt", ["abc", ["abc"]])
def test_a_completion_of_one_text_is_that_text(prompt: str | list[object]) -> None:
    assert plain_prompt(PromptView(prompt=prompt)) == "abc"


@pytest.mark.parametrize("prompt", [[1, 2, 2**32 - 1], [[1, 2, 2**32 - 1]]])
def test_a_completion_of_token_ids_is_those_ids(prompt: list[object]) -> None:
    ids = plain_prompt(PromptView(prompt=prompt))
    assert isinstance(ids, bytes)
    assert list(unpack(TokenIds(ids))) == [1, 2, 2**32 - 1]


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        (["a", "b"], Unsupported.PROMPT_BATCH),
        ([[1], [2]], Unsupported.PROMPT_BATCH),
        ([1, "a"], Unsupported.PROMPT_FORM),
        ([1, -1], Unsupported.PROMPT_FORM),
        ([1, 2**32], Unsupported.PROMPT_FORM),
        ([1, True], Unsupported.PROMPT_FORM),
        ([1.5], Unsupported.PROMPT_FORM),
        (None, Unsupported.PROMPT_FORM),
    ],
)
def test_other_completions_have_no_tokens_here(prompt: list[object] | None, kind: Unsupported) -> None:
    with pytest.raises(UnsupportedContent) as caught:
        plain_prompt(PromptView(prompt=prompt))
    assert caught.value.kind == kind
