"""Messages to prompt text."""

import json
from pathlib import Path

import pytest

from backends.reference.chat_template import ChatTemplate, Message, load_chat_template
from backends.reference.errors import ModelUnavailable, RequestRefused
from backends.reference.gguf_import import TEMPLATE_WITH_TOOLS

PLAIN = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
TOOL = {"type": "function", "function": {"name": "größe", "parameters": {"b": 1, "a": "<x>"}}}


def render(source: str, messages: list[Message], **options: object) -> str:
    return ChatTemplate(source, {"eos_token": "</s>"}).render(messages, options)


def test_text_parts_are_joined_by_lines() -> None:
    parts = [{"type": "text", "text": "one"}, "two", {"type": "refusal", "refusal": "no"}]
    parts += [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": ""}, {"type": "text", "text": None}]
    assert render(PLAIN, [{"role": "user", "content": parts}]) == "[user:one\ntwo\nno\nhm]"


def test_no_content_is_empty_text() -> None:
    assert render(PLAIN, [{"role": "assistant", "content": None}, {"role": "user"}]) == "[assistant:][user:]"


@pytest.mark.parametrize(
    "content",
    [7, [{"type": "image_url", "image_url": {"url": "x"}}], [{"type": "text", "text": 3}], [3], {"type": "text"}],
)
def test_other_content_is_refused(content: object) -> None:
    with pytest.raises(RequestRefused) as refused:
        render(PLAIN, [{"role": "user", "content": content}])
    assert (refused.value.status, refused.value.param) == (400, "messages")


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"b": 1, "a": 2}', '{"b": 1, "a": 2}'),
        ({"x": "é"}, '{"x": "é"}'),
        ("not json", "{}"),
        ("[1]", "{}"),
        (None, "{}"),
    ],
)
def test_arguments_of_tool_calls_are_objects_in_their_own_order(arguments: object, shown: str) -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert render(source, [{"role": "assistant", "tool_calls": [call]}]) == shown


def test_a_tool_call_without_a_function_is_refused() -> None:
    with pytest.raises(RequestRefused, match="needs a function"):
        render(PLAIN, [{"role": "assistant", "tool_calls": [{"id": "1"}]}])


def test_templates_see_special_tokens_and_the_clients_variables() -> None:
    assert render("{{ eos_token }}{{ mood }}", [], mood="calm") == "</s>calm"


def test_the_clients_variables_may_not_replace_the_messages() -> None:
    with pytest.raises(RequestRefused) as refused:
        ChatTemplate(PLAIN, {}).render([{"role": "user", "content": "real"}], {"messages": []})
    assert refused.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("source", "content", "shown"),
    [
        (PLAIN, "so far ", "[user:Go][assistant:so far "),
        ("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "so far ", "<Go><so far"),
    ],
)
def test_a_continued_message_is_left_open_where_its_text_ends(source: str, content: str, shown: str) -> None:
    messages: list[Message] = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": content}]
    assert ChatTemplate(source, {}).render(messages, {}, continue_final_message=True) == shown


def test_a_message_that_the_template_leaves_out_cannot_be_continued() -> None:
    with pytest.raises(RequestRefused, match="leaves out"):
        ChatTemplate("{{ messages[0].content }}", {}).render(
            [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "so"}], {}, continue_final_message=True
        )


def test_blocks_leave_no_white_space_and_loops_can_break() -> None:
    source = "{% for m in messages %}\n    {% if loop.index > 1 %}\n{% break %}\n    {% endif %}\n{{ m.content }}\n"
    source += "{% endfor %}"
    assert render(source, [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]) == "a\n"


def test_the_date_can_be_asked_for() -> None:
    assert render("{{ strftime_now('%Y') }}", []).isdigit()


def test_a_templates_own_refusal_reaches_the_client() -> None:
    with pytest.raises(RequestRefused, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", [])


@pytest.mark.parametrize("source", ["{{ messages.nothing.here }}", "{{ messages + 1 }}", "{{ ''.__class__.mro() }}"])
def test_a_template_that_fails_is_the_requests_fault(source: str) -> None:
    with pytest.raises(RequestRefused, match="refused the messages"):
        render(source, [])


def test_our_template_renders_tools_calls_and_results() -> None:
    template = ChatTemplate(TEMPLATE_WITH_TOOLS.read_text(encoding="utf-8"), {})
    call = {"function": {"name": "look", "arguments": '{"at": 1}'}}
    text = template.render(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": None, "tool_calls": [call, call]},
            {"role": "tool", "content": "seen", "tool_call_id": "1"},
        ],
        {"tools": [TOOL], "add_generation_prompt": True},
    )
    rendered_call = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'
    assert text.startswith("<|im_start|>system\nBe brief.\n\n")
    assert json.dumps(TOOL, ensure_ascii=False) in text
    assert text.count("Be brief.") == 1
    assert f"<|im_start|>assistant\n{rendered_call}\n{rendered_call}<|im_end|>\n" in text
    assert "<|im_start|>tool\n<tool_response>\nseen\n</tool_response><|im_end|>\n" in text
    assert text.endswith("<|im_start|>assistant\n")


def test_our_template_without_tools_is_plain_chatml() -> None:
    template = ChatTemplate(TEMPLATE_WITH_TOOLS.read_text(encoding="utf-8"), {})
    messages: list[Message] = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    expected = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    assert template.render(messages, {"add_generation_prompt": False}) == expected


def test_a_longer_conversation_keeps_the_prompt_of_the_shorter_one_as_prefix() -> None:
    template = ChatTemplate(TEMPLATE_WITH_TOOLS.read_text(encoding="utf-8"), {})
    messages: list[Message] = [{"role": "user", "content": "U"}]
    variables = {"tools": [TOOL], "add_generation_prompt": True}
    first = template.render(messages, variables)
    longer = template.render(
        [*messages, {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}], variables
    )
    assert longer.startswith(first)


def test_the_template_comes_from_the_directory_or_a_file(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "inline {{ eos_token }}", "eos_token": {"content": "<end>"}}))
    assert load_chat_template(tmp_path).render([], {}) == "inline <end>"
    (tmp_path / "other.jinja").write_text("other")
    assert load_chat_template(tmp_path, tmp_path / "other.jinja").render([], {}) == "other"
    (tmp_path / "chat_template.jinja").write_text("separate")
    assert load_chat_template(tmp_path).render([], {}) == "separate"


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelUnavailable, match="chat template"):
        load_chat_template(tmp_path)
    with pytest.raises(ModelUnavailable, match=r"absent\.jinja"):
        load_chat_template(tmp_path, tmp_path / "absent.jinja")
