from datetime import UTC, datetime

import pytest

from prefix_index.errors import TemplateFailed
from prefix_index.prompt import ChatTemplate, ContentFormat
from prefix_index.prompt.template_language import MAX_LOOP_STEPS

Messages = list[dict[str, object]]

USER: Messages = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def rendered(source: str, messages: Messages = USER, **variables: object) -> str:
    return ChatTemplate(source).render(messages, variables)


def test_blocks_eat_their_newline_and_the_indent_before_them() -> None:
    assert rendered("a\n    {% if true %}\nb\n    {% endif %}\nc\n") == "a\nb\nc"


def test_tojson_keeps_non_ascii_text_key_order_and_html() -> None:
    value = {"b": "日本 <&>", "a": [1, 2.0, None]}
    assert rendered("{{ v | tojson }}", v=value) == '{"b": "日本 <&>", "a": [1, 2.0, null]}'
    assert rendered("{{ v | tojson(indent=2) }}", v={"a": 1}) == '{\n  "a": 1\n}'
    assert rendered("{{ v | tojson(separators=(',', ':'), sort_keys=True) }}", v={"b": 1, "a": 2}) == '{"a":2,"b":1}'


def test_loop_controls_and_the_generation_tag_are_understood() -> None:
    assert rendered("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}") == "13"
    assert rendered("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}") == "1"
    assert rendered("a{% generation %}{{ messages[0].content }}{% endgeneration %}b") == "aHib"


def test_repetition_and_powers_work_within_their_bounds() -> None:
    assert rendered("{{ '=' * 3 }}{{ 2 * [0] }}{{ 2 * 3 }}{{ 2 ** 3 }}") == "===[0, 0]68"


def test_special_tokens_are_variables_that_arguments_may_replace() -> None:
    template = ChatTemplate("{{ bos_token }}{{ eos_token }}{{ nothing }}", {"bos_token": "<s>", "eos_token": "</s>"})
    assert template.render(USER, {}) == "<s></s>"
    assert template.render(USER, {"bos_token": "<b>"}) == "<b></s>"


def test_counting_loop_steps_changes_nothing_a_loop_can_see() -> None:
    source = (
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}/{{ loop.revindex }}"
        "{% if loop.last %}.{% elif loop.first %}-{% endif %}{{ (loop.nextitem or {}).content }}"
        "{{ (loop.previtem or {}).content }}"
        "{% else %}none{% endfor %}{% for a, b in pairs.items() %}{{ a }}{{ b }}{% endfor %}"
        "{% for x in tree recursive %}{{ x.n }}{{ loop(x.kids) }}{% endfor %}"
        "{% for x in [1, 2] if x > 1 %}{{ x }}{% endfor %}"
    )
    messages: Messages = [{"content": "a"}, {"content": "b"}, {"content": "c"}]
    tree = [{"n": 1, "kids": [{"n": 2, "kids": []}]}]
    expected = "1/3/3-b2/3/2ca3/3/1.bx1122"
    assert rendered(source, messages, pairs={"x": 1}, tree=tree) == expected
    assert rendered(source, [], pairs={}, tree=[]) == "none2"


def test_a_template_that_refuses_gives_its_own_reason() -> None:
    with pytest.raises(TemplateFailed) as caught:
        rendered("{{ raise_exception('roles must alternate') }}")
    assert caught.value.why == "roles must alternate"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[0].nothing.more }}",
        "{{ 1 / 0 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ messages.__class__.__base__() }}",
        "{{ 'a' * 10**12 }}",
        "{{ [1] * 10**12 }}",
        "{{ 10 ** 10000000 }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ strftime_now('%Y') }}",
        "{{ deep | tojson }}",
        "{% include 'other' %}",
    ],
)
def test_whatever_goes_wrong_is_a_template_failure_that_quotes_no_prompt(source: str) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TemplateFailed) as caught:
        rendered(source, [{"role": "user", "content": "secret"}], deep=deep)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{% for x in %}",
        "{{ x | no_such_filter }}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% for x in y %}" * 30 + "{% endfor %}" * 30,
    ],
)
def test_a_source_that_is_no_template_is_a_template_failure(source: str) -> None:
    with pytest.raises(TemplateFailed):
        ChatTemplate(source)


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefix_index.prompt.chat_template.MAX_RENDERED_CHARS", 100)
    with pytest.raises(TemplateFailed, match="too much"):
        rendered("{% for x in range(1000) %}{{ x }}{% endfor %}")


def test_a_long_conversation_is_within_the_loop_bound() -> None:
    messages: Messages = [{"role": "user", "content": "x"}] * 2000
    assert len(messages) < MAX_LOOP_STEPS
    assert rendered(CHATML, messages).count("<|im_end|>") == 2000


def test_the_date_is_the_clock_given() -> None:
    template = ChatTemplate("{{ strftime_now('%d %B %Y') }}")
    assert template.render(USER, {}, now=lambda: datetime(2026, 7, 26, tzinfo=UTC)) == "26 July 2026"


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (CHATML, ContentFormat.STRING),
        ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", ContentFormat.PARTS),
        ("{% for m in messages[1:] %}{% for c in m.content | list %}{% endfor %}{% endfor %}", ContentFormat.PARTS),
        (
            "{% set all = messages %}{% set rest = all[1:] %}"
            "{% for m in rest %}{% for c in m.content %}{% endfor %}{% endfor %}",
            ContentFormat.PARTS,
        ),
        (
            "{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}",
            ContentFormat.PARTS,
        ),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            ContentFormat.PARTS,
        ),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(c=m.content) }}{% endfor %}",
            ContentFormat.PARTS,
        ),
        (
            "{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}{{ show('x') }}",
            ContentFormat.STRING,
        ),
        ("{% for m in messages %}{% for t in m.tool_calls %}{% endfor %}{% endfor %}", ContentFormat.STRING),
        (
            "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}{% macro other(c) %}{{ c }}{% endmacro %}"
            "{% for m in messages %}{{ show('x') }}{{ show(c='x') }}{{ other(m.content) }}{% endfor %}",
            ContentFormat.STRING,
        ),
        ("{% for m in messages %}{% for k in m[0] %}{% endfor %}{% endfor %}", ContentFormat.STRING),
        ("{% for t in tools %}{% for c in t.content %}{% endfor %}{% endfor %}", ContentFormat.STRING),
    ],
)
def test_a_template_wants_parts_when_it_loops_over_content(source: str, wanted: ContentFormat) -> None:
    assert ChatTemplate(source).content_format is wanted


def test_a_continued_message_is_left_open() -> None:
    messages: Messages = [*USER, {"role": "assistant", "content": "Sure, here "}]
    template = ChatTemplate(CHATML)
    text = template.render(messages, {}, continue_final_message=True)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nSure, here "
    assert messages[-1]["content"] == "Sure, here "


def test_a_continued_message_that_the_template_trims_ends_without_space() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}")
    messages: Messages = [*USER, {"role": "assistant", "content": " Sure, "}]
    assert template.render(messages, {}, continue_final_message=True) == "[Hi][Sure,"


def test_the_last_text_part_of_a_continued_message_is_left_open() -> None:
    template = ChatTemplate("{% for m in messages %}{% for c in m.content %}<{{ c.text }}>{% endfor %}{% endfor %}")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]
    assert template.render([{"role": "assistant", "content": parts}], {}, continue_final_message=True) == "<a><b"


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "assistant", "content": None}], [{"role": "assistant", "content": [{"type": "image"}]}]],
)
def test_what_has_no_text_cannot_be_continued(messages: Messages) -> None:
    with pytest.raises(TemplateFailed, match="continue"):
        ChatTemplate(CHATML).render(messages, {}, continue_final_message=True)


def test_a_message_that_the_template_drops_cannot_be_continued() -> None:
    with pytest.raises(TemplateFailed, match=r"leaves out|does not look"):
        ChatTemplate("x").render(USER, {}, continue_final_message=True)
