"""One model, a variant for each kind of engine: the same tokenizer and cache, other habits."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from backends.reference.chat_template import ChatTemplate as ReferenceTemplate
from backends.reference.errors import RequestRefused
from prefix_index.errors import TemplateFailed, UnsupportedContent
from prefix_index.prompt import ChatTemplate, ModelText, PromptView, Renderer, Unsupported, load_model_text
from prefix_index.prompt.llamacpp_chat import Abilities, abilities_of
from prefix_index.prompt.render import ChatRenderer, renderer_of
from prefix_index.tokens import HuggingFaceTokenizer
from tests.prefix_index.prompt_data import DATA, ids, model_directory, smollm2

ECHO = ChatTemplate("{{ messages | tojson }}{{ tools | default(none) | tojson }}{{ documents | default('-') }}")
PARTS = ChatTemplate(
    "{% for message in messages %}{{ message.role }}:"
    "{% for part in message.content %}{{ part | tojson }}{% endfor %};{% endfor %}"
)
RECORDED = json.loads((DATA / "transformers_answers.json").read_text(encoding="utf-8"))
COMPARED = [
    pytest.param(answers["template"], request, id=f"{answers['template'].rsplit('/')[-1]}-{request['name']}")
    for answers in RECORDED["cases"]
    for request in RECORDED["requests"]
    # The reference engine has no generation tag, and does not look whether all of a continued text came out.
    if answers["template"] != "templates/scratchpad.jinja"
    and (answers["template"], request["name"]) != ("templates/echo_text.jinja", "continue_parts")
]
TOOL = {"type": "function", "function": {"parameters": {"b": 1, "a": 2}, "name": "f", "x": 1}, "y": 2}

Message = dict[str, Any]


def user(content: object = "Hi", **more: object) -> Message:
    return {"role": "user", "content": content, **more}


def answer(content: object = "Hello", **more: object) -> Message:
    return {"role": "assistant", "content": content, **more}


def call(arguments: object, **more: object) -> Message:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def words(*texts: str) -> list[Message]:
    return [{"type": "text", "text": text} for text in texts]


def rendered(engine: str, messages: list[Message], template: ChatTemplate = ECHO, **more: Any) -> str:
    (piece,) = ChatRenderer(template, renderer_of(engine)).render(PromptView(messages=messages, **more)).pieces
    assert isinstance(piece, str)
    return piece


def seen(engine: str, *messages: Message, **more: Any) -> Any:
    """What the template gets of `messages`."""
    return json.JSONDecoder().raw_decode(rendered(engine, list(messages), **more))[0]


@pytest.mark.parametrize(("name", "request_"), COMPARED)
def test_the_reference_engine_is_rendered_for_as_it_renders(name: str, request_: dict[str, Any]) -> None:
    source = (DATA / name).read_text(encoding="utf-8")
    view = PromptView(
        messages=request_["messages"],
        tools=request_.get("tools"),
        documents=request_.get("documents"),
        add_generation_prompt=request_.get("add_generation_prompt", True),
        continue_final_message=request_.get("continue_final_message", False),
        template_kwargs=request_.get("chat_template_kwargs", {}),
        reasoning_effort=request_.get("reasoning_effort"),
    )
    variables: dict[str, Any] = dict(view.template_kwargs)
    if view.reasoning_effort is not None:
        variables["reasoning_effort"] = view.reasoning_effort
    variables |= {
        "tools": view.tools,
        "documents": view.documents,
        "add_generation_prompt": view.add_generation_prompt,
    }
    special = RECORDED["special_tokens"]

    def theirs() -> str | None:
        engine = ReferenceTemplate(source, special)
        try:
            return engine.render(
                request_["messages"], variables, continue_final_message=view.continue_final_message
            )  # fmt: skip
        except RequestRefused:
            return None

    def ours() -> str | None:
        chats = ChatRenderer(ChatTemplate(source, special), Renderer.PLAIN)
        try:
            (piece,) = chats.render(view, datetime.now).pieces
        except TemplateFailed:
            return None
        assert isinstance(piece, str)
        return piece

    assert ours() == theirs()


def test_variants_share_tokenizer_cache_and_templates() -> None:
    text = smollm2()
    variants = [text.for_engine(name) for name in ("vllm", "sglang", "llamacpp", "tgi", "trtllm", "reference")]
    assert variants[0] is text
    assert all(variant.tokenizer is text.tokenizer and variant.cache is text.cache for variant in variants)
    assert text.for_engine("sglang") is variants[1] is variants[2].for_engine("sglang")
    assert variants[2].for_engine("vllm") is text
    assert text.for_engine("openai") is text, "an engine that is not known is taken for vLLM"
    view = PromptView(messages=[user("known")])
    ids(text, view)
    assert not any(variant.begin(view).missing_bytes for variant in variants)


def test_conventions_that_are_given_win_over_the_engines() -> None:
    text = load_model_text(model_directory(), renderer=Renderer.PLAIN)
    assert text.for_engine("vllm") is text


def test_the_reference_engine_passes_on_what_the_client_sent() -> None:
    message = answer(words("a", "", "b"), tool_calls=[call('{"a": 1}', y=2)], extra=[1])
    assert seen("reference", message) == [
        {**message, "content": "a\nb", "tool_calls": [call({"a": 1}, y=2)]},
    ]
    assert TOOL in json.loads(rendered("reference", [user()], ChatTemplate("{{ tools | tojson }}"), tools=[TOOL]))
    with pytest.raises(TemplateFailed):
        seen("reference", answer(tool_calls=["x"]))


def test_sglang_reads_messages_into_models_and_joins_texts_with_a_space() -> None:
    assert seen("sglang", user(words("a", "", "b"), name="n")) == [{"role": "user", "content": "a  b"}]
    messages = [
        user(),
        answer(None, reasoning_content="r", reasoning="x", tool_calls=[call('{"a": 1}', y=2)]),
        {"name": "n", "role": "TOOL", "tool_call_id": "c1", "content": words("a", "b"), "x": 1},
    ]
    called = {"id": "c1", "index": None, "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    assert json.dumps(seen("sglang", *messages)) == json.dumps(
        [
            user(),
            {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [called]},
            {"role": "tool", "content": "a b", "tool_call_id": "c1", "name": "n"},
        ]
    )
    assert seen("sglang", user(), {"role": "system", "content": "s", "tools": [TOOL]}, user())[1]["tools"] == [TOOL]


def test_sglang_keeps_text_as_text_where_a_template_walks_parts() -> None:
    template = ChatTemplate("{% for message in messages %}{{ message.content | tojson }}{% endfor %}{# image #}")
    assert rendered("sglang", [user("a"), user(words("b"))], template) == '"a"[{"type": "text", "text": "b"}]'
    named = ChatTemplate("{% for m in messages %}{% for p in m['content'] %}{{ p }}{% endfor %}{% endfor %}")
    other = ChatTemplate("{% for one in messages %}{% for p in one['content'] %}{{ p }}{% endfor %}{% endfor %}")
    assert named.content_format_of_names == "parts"
    assert other.content_format_of_names == "string"
    assert other.content_format == "parts"


def test_sglang_lets_the_user_speak_a_last_answer_unless_it_is_to_be_continued() -> None:
    assert seen("sglang", user(), answer())[-1] == user("Hello")
    text = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
    spoken = rendered("sglang", [user(), answer(" Once")], ChatTemplate(text), continue_final_message=True)
    assert spoken == "user:Hi;a: Once"
    assert rendered("sglang", [user()], ChatTemplate(text), add_generation_prompt=False) == "user:Hi;a:"


def test_sglang_reads_tools_into_models_and_drops_their_wrapper_where_the_template_refuses_it() -> None:
    function = {"description": None, "name": "f", "parameters": {"b": 1, "a": 2}, "strict": False}
    show = ChatTemplate("{{ tools | tojson }}")
    assert rendered("sglang", [user()], show, tools=[TOOL]) == json.dumps([{"type": "function", "function": function}])
    deferred = {"function": {"name": "f"}, "defer_loading": True}
    assert json.loads(rendered("sglang", [user()], show, tools=[deferred]))[0]["function"]["defer_loading"] is True
    bare = ChatTemplate("{% if tools[0].function %}{{ raise_exception('no') }}{% endif %}{{ tools | tojson }}")
    assert rendered("sglang", [user()], bare, tools=[TOOL]) == json.dumps([function])
    with pytest.raises(TemplateFailed, match="always"):
        rendered("sglang", [user()], ChatTemplate("{{ raise_exception('always') }}"))


@pytest.mark.parametrize(
    ("effort", "arguments", "expected"),
    [(None, {}, "--"), ("high", {}, "high-"), ("none", {}, "noneFalse"), ("none", {"enable_thinking": 1}, "none1")],
)
def test_sglang_lets_nobody_think_with_no_effort(effort: str | None, arguments: Any, expected: str) -> None:
    show = ChatTemplate("{{ reasoning_effort | default('-') }}{{ enable_thinking | default('-') }}")
    view = {"reasoning_effort": effort, "template_kwargs": arguments}
    assert rendered("sglang", [user()], show, **view) == expected


def test_sglang_gives_no_documents_to_templates() -> None:
    assert rendered("sglang", [user()], documents=[{"text": "x"}]).endswith("None")


def test_llama_cpp_tries_out_what_a_template_takes() -> None:
    chatml = ChatTemplate((DATA / "smollm2.jinja").read_text(encoding="utf-8"))
    plain = Abilities(text=True, parts=False, system=True, object_arguments=False, thinking=False)
    assert abilities_of(chatml) == plain
    assert abilities_of(PARTS) == Abilities(
        text=False, parts=True, system=True, object_arguments=False, thinking=False
    )  # fmt: skip
    no_system = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}{{ m.reasoning_content }}{% endfor %}"
    )
    assert abilities_of(no_system) == Abilities(
        text=True, parts=False, system=False, object_arguments=False, thinking=True
    )  # fmt: skip
    dated = ChatTemplate("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}")
    assert abilities_of(dated).text


def test_llama_cpp_joins_parts_or_keeps_them_as_the_template_takes_them() -> None:
    text = ChatTemplate("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    assert rendered("llamacpp", [user(words("", "a", "", "b"))], text) == "<a\n\nb>"
    parts = ['{"type": "text", "text": "a"}', '{"type": "text", "text": "b"}']
    assert rendered("llamacpp", [user(words("a", "b")), user("a")], PARTS) == f"user:{''.join(parts)};user:{parts[0]};"
    view = PromptView(messages=[user([*words("a"), {"type": "image_url", "image_url": {"url": "u"}}, *words("b")])])
    first, _, last = ChatRenderer(PARTS, Renderer.LLAMACPP).render(view).pieces
    assert (first, last) == ('user:{"type": "text", "text": "a', 'b"};')


def test_llama_cpp_joins_a_system_message_to_the_next_where_the_template_has_none() -> None:
    no_system = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.role }}:{{ m.content }};{% endfor %}"
    )
    system = {"role": "system", "content": "s"}
    assert rendered("llamacpp", [system, user("u")], no_system) == "user:s\nu;"
    assert rendered("llamacpp", [{**system, "role": "developer"}, user("u")], no_system) == "user:s\nu;"
    assert rendered("llamacpp", [system], no_system) == ""
    assert rendered("llamacpp", [user("u")], no_system) == "user:u;"
    strict = ChatTemplate(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"
    )
    with pytest.raises(TemplateFailed):
        rendered("llamacpp", [system, user(words("u"))], strict)


def test_llama_cpp_knows_the_developer_of_harmony_only() -> None:
    roles = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    developer = {"role": "developer", "content": "d"}
    assert rendered("llamacpp", [developer, user()], ChatTemplate(roles)) == "system:d;user:Hi;"
    harmony = ChatTemplate(roles + "{# <|channel|> #}")
    assert rendered("llamacpp", [developer, user()], harmony) == "developer:d;user:Hi;"


def test_llama_cpp_gives_arguments_as_text_unless_a_template_looks_into_them() -> None:
    shown = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments"
    as_text = ChatTemplate(shown + " + '' }}{% endfor %}{% endfor %}")
    as_object = ChatTemplate(shown + " | tojson }}{% endfor %}{% endfor %}")
    messages = [user(), answer(None, tool_calls=[call('{"a":  1}')]), user()]
    assert '{"a":  1}' in rendered("llamacpp", messages, as_text)
    assert '{"a": 1}' in rendered("llamacpp", messages, as_object)
    spelled = [user(), answer(None, tool_calls=[call({"a": [1, "日"]})]), user()]
    assert '{"a":[1,"日"]}' in rendered("llamacpp", spelled, as_text)
    with pytest.raises(TemplateFailed, match="no JSON"):
        rendered("llamacpp", [user(), answer(None, tool_calls=[call("{")]), user()], as_object)


def test_llama_cpp_continues_no_answer_that_calls_or_is_none() -> None:
    with pytest.raises(TemplateFailed, match="tool calls"):
        rendered("llamacpp", [user(), answer(None, tool_calls=[call("{}")])])
    with pytest.raises(TemplateFailed, match="no final answer"):
        rendered("llamacpp", [user()], continue_final_message=True)


def test_llama_cpp_says_which_day_it_is_and_how_hard_to_think() -> None:
    show = ChatTemplate(
        "{{ date_string }}|{{ datetime }}|{{ enable_thinking }}|{{ reasoning_effort }}|{{ tools is defined }}"
    )
    chats = ChatRenderer(show, Renderer.LLAMACPP)
    view = PromptView(messages=[user()], reasoning_effort="high")
    day = datetime(2026, 3, 7, tzinfo=UTC)
    assert chats.render(view, lambda: day).pieces == ("07 Mar 2026|Mar 07 2026|True|high|False",)
    none = PromptView(messages=[user()], reasoning_effort="none", tools=[TOOL])
    assert chats.render(none).pieces == ("||False||True",)


class TestFirstToken:
    """llama.cpp's tokenizer puts its first token in front of chats as well."""

    @staticmethod
    def model(template: str, *, adds: bool) -> ModelText:
        inner = HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")
        tokenizer = _AddingTokenizer(inner) if adds else inner
        special = {"bos_token": "<|endoftext|>"}
        return ModelText(tokenizer, {"default": ChatTemplate(template, special)}).for_engine("llamacpp")

    @pytest.mark.parametrize("written", ["", "{{ bos_token }}"])
    def test_it_is_there_once(self, written: str) -> None:
        text = self.model(written + "{% for m in messages %}{{ m.content }}{% endfor %}", adds=True)
        assert ids(text, PromptView(messages=[user("a")])) == [0, *ids(text, PromptView(prompt="a"))]

    def test_it_is_not_there_where_the_tokenizer_has_none(self) -> None:
        text = self.model("{% for m in messages %}{{ m.content }}{% endfor %}", adds=False)
        assert ids(text, PromptView(messages=[user("a")])) == ids(text, PromptView(prompt="a"))


class _AddingTokenizer:
    """Puts token 0 in front of a text."""

    def __init__(self, inner: HuggingFaceTokenizer) -> None:
        self._inner = inner
        self.cut_tokens = inner.cut_tokens

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        found = self._inner.encode(text, add_special_tokens=False)
        return bytes(4) + found if add_special_tokens else found


def test_tgi_joins_parts_with_nothing_and_writes_tools_itself() -> None:
    assert seen("tgi", user(words("a", "b"), name="n")) == [{"role": "user", "content": "ab"}]
    for messages, tools in (([user()], [TOOL]), ([answer(tool_calls=[call("{}")])], None)):
        with pytest.raises(UnsupportedContent) as caught:
            rendered("tgi", messages, tools=tools)
        assert caught.value.kind == Unsupported.TOOLS


def test_tensorrt_llm_is_nearly_vllm() -> None:
    messages = [
        {"role": "system", "content": words("a", "b"), "tools": [TOOL], "name": "n"},
        answer(None, reasoning="new", tool_calls=[call('{"a": 1}'), call("{"), call(None), call({"b": 2})]),
        answer("x", reasoning_content="old", name="n"),
        {"role": "tool", "content": "t", "tool_call_id": "c1"},
    ]
    assert seen("trtllm", *messages) == [
        {"role": "system", "content": "a\nb", "tools": [TOOL]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "new",
            "tool_calls": [call({"a": 1}), call("{"), call({}), call({"b": 2})],
        },
        {"role": "assistant", "content": "x", "reasoning_content": "old"},
        {"role": "tool", "content": "t", "tool_call_id": "c1"},
    ]
    assert rendered("trtllm", [user("a")], PARTS) == 'user:{"type": "text", "text": "a"};'
    for arguments in ("[1]", 5):
        with pytest.raises(TemplateFailed):
            seen("trtllm", answer(None, tool_calls=[call(arguments)]))
