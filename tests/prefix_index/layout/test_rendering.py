"""Variables are data, and no call makes a render long."""

from datetime import date

import pytest

from prefix_index.layout import Renderer, RenderingFailed, Source, Syntax, TemplateInvalid, VariablesInvalid, as_text
from prefix_index.layout import read_template as read


def render(text: str, syntax: Syntax = Syntax.JINJA, **variables: object) -> str:
    template = read(text, syntax)
    (message,) = Renderer(template).messages({name: variables[name] for name in variables if name in template.names})
    return str(message["content"])


def test_what_looks_like_a_slot_in_a_variable_is_text() -> None:
    hostile = "{{ 7 * 7 }}{% for x in range(9) %}{x}{{"
    assert render("<{{ q }}>", q=hostile) == f"<{hostile}>"
    assert render("<{q}>{{}}", Syntax.FORMAT, q=hostile) == f"<{hostile}>{{}}"


def test_a_text_keeps_its_white_space() -> None:
    assert render("a\n{% if x %}\nb\n{% endif %}\n", x=1) == "a\n\nb\n\n"


def test_a_format_writes_what_is_no_text_as_json() -> None:
    assert render("{a} {b}", Syntax.FORMAT, a={"k": [1, None]}, b=True) == '{"k": [1, null]} true'


def test_a_literal_is_written_as_it_stands() -> None:
    assert render("{{ x }} {y}", Syntax.LITERAL) == "{{ x }} {y}"


def test_missing_and_unknown_variables_are_named() -> None:
    with pytest.raises(VariablesInvalid) as raised:
        Renderer(read("{{ a }}{{ b }}", Syntax.JINJA)).messages({"b": 1, "c": 2})
    assert (raised.value.missing, raised.value.unknown) == (("a",), ("c",))


def test_a_default_may_be_left_out_and_overridden() -> None:
    renderer = Renderer(read("{{ tone }}", Syntax.JINJA), {"tone": "kind"})
    assert renderer.messages({})[0]["content"] == "kind"
    assert renderer.messages({"tone": "dry"})[0]["content"] == "dry"


def test_messages_of_a_call_stand_where_the_template_has_them() -> None:
    renderer = Renderer(read([Source("Hi", "system"), Source(slot="history")], Syntax.JINJA))
    given = [{"role": "user", "content": [{"type": "text", "text": "{{ x }}"}]}]
    assert renderer.messages({"history": given}) == [{"role": "system", "content": "Hi"}, *given]
    assert "{{ x }}" in as_text(renderer.messages({"history": given}))
    with pytest.raises(RenderingFailed):
        renderer.messages({"history": ["no message"]})


@pytest.mark.parametrize(
    "text",
    [
        "{{ x * n }}",
        "{{ 'x' * 10 ** n }}",
        "{% for a in x %}{% for b in x %}{% for c in x %}.{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in range(n) %}.{% endfor %}",
        "{{ '%1000000000d' % n }}",
        "{{ x.ljust(n) }}",
        "{{ x.format(n) }}",
        "{{ x['format'](n) }}",
        "{{ x|attr('format')(n) }}",
        "{{ big|replace('', big) }}",
        "{{ big.replace('a', big) }}",
        "{{ big|join(big) }}",
        "{{ big.join(big) }}",
        "{{ x|indent(n) }}",
        "{% set y %}{% for a in x %}{{ big }}{% endfor %}{% endset %}{{ y|length }}",
        "{{ x.__class__ }}",
        "{{ x.y.z }}",
        "{{ n / 0 }}",
        "{% set y = namespace(t=x) %}{% for a in x %}{% set y.t = y.t ~ y.t %}{% endfor %}{{ y.t|length }}",
        "{% set y = namespace(t=x) %}{% for a in x %}{% set y.t = y.t + y.t %}{% endfor %}{{ y.t|length }}",
        "{% set y = namespace(t=[1]) %}{% for a in x %}{% set y.t = y.t + y.t %}{% endfor %}{{ y.t|length }}",
        "{% set y = namespace(t=n) %}{% for a in x %}{% set y.t = y.t * y.t %}{% endfor %}{{ y.t > 1 }}",
        "{% macro m(d) %}{{ m(d + 1) if d < 30 }}{{ m(d + 1) if d < 30 }}{% endmacro %}{{ m(0) }}",
        "{{ [1]|batch(n, 'x')|list|length }}",
        "{{ [1]|slice(n)|list|length }}",
        "{{ big|wordwrap(1, true, big) }}",
        "{{ [1, 2]|tojson(indent=n) }}",
        "{{ x" + "|tojson" * 40 + " }}",
        "{{ [[1], [2]]|sum(start=[]) }}",
        "{{ n.to_bytes(n) }}",
        "{{ x.encode() }}",
    ],
)
def test_what_would_run_away_is_broken_off(text: str) -> None:
    with pytest.raises(RenderingFailed):
        render(text, x="a" * 200, n=1_000_000_000, big="a" * 200_000)


def test_texts_are_replaced_joined_and_indented_as_in_any_jinja() -> None:
    text = (
        "{{ a.replace(' ', '_') }} {{ a|replace('x', 'y', 1) }} {{ b|join(', ') }} {{ b|join('', attribute='real') }}"
    )
    assert render(text, a="x x", b=[1, 2]) == "x_x y x 1, 2 12"
    assert render("{{ ', '.join(b) }}|{{ a|indent(2) }}", a="x\ny", b=[1, 2]) == "1, 2|x\n  y"


def test_texts_and_lists_are_put_together_counted_and_written_as_json_as_in_any_jinja() -> None:
    assert render("{{ a ~ 1 ~ b }} {{ a + 'y' }} {{ b + [3] }}", a="x", b=[1, 2]) == "x1[1, 2] xy [1, 2, 3]"
    assert render("{{ b|sum }} {{ b|sum(start=1) }} {{ 2 + 3 * 4 }}", b=[1, 2]) == "3 4 14"
    assert render("{{ b|sum(attribute='n') }}", b=[{"n": 1}, {"n": 2}]) == "3"
    assert render("{{ b|batch(2, 0)|list }} {{ b|slice(2)|list }}", b=[1, 2, 3]) == "[[1, 2], [3, 0]] [[1, 2], [3]]"
    assert render("{{ a|tojson }} {{ a|wordwrap(3) }}", a="é <b") == '"é <b" é\n<b'
    assert render("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(a) }}{{ m(2) }}", a="x") == "<x><2>"


def test_a_prompt_that_is_too_long_is_refused() -> None:
    renderer = Renderer(read("{{ x }}", Syntax.JINJA), max_chars=10)
    with pytest.raises(RenderingFailed):
        renderer.messages({"x": "a" * 11})


@pytest.mark.parametrize("text", ["{{ now() }}", "{{ user.name() }}", "{{ x|nothing }}", "{% include 'x' %}"])
def test_what_no_variable_can_fill_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises((TemplateInvalid, RenderingFailed)):
        render(text, user={}, x="")


@pytest.mark.parametrize("text", ["{a.b}", "{a[0]}", "{a!r}", "{a:>10}", "{a + 1}"])
def test_a_format_kept_by_the_gateway_has_plain_names(text: str) -> None:
    with pytest.raises(TemplateInvalid):
        Renderer(read(text, Syntax.FORMAT))


def test_a_number_that_a_filter_cannot_use_is_an_error_of_the_call() -> None:
    with pytest.raises(RenderingFailed):
        render("{{ said|truncate(most) }}", said="a long text", most=1)


def test_a_default_that_is_a_date_is_written_as_one() -> None:
    assert render("{day}", Syntax.FORMAT, day=date(2026, 11, 30)) == '"2026-11-30"'
