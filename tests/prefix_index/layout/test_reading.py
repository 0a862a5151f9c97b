"""Sources become segments whose sources, joined, are the source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import Cause, Mark, Segment, SegmentKind, Syntax, TemplateInvalid, Volatility, read_template
from tests.prefix_index.layout.templates import Row, corpus, jinja_texts


def segments(text: str, syntax: Syntax = Syntax.JINJA, **marks: Mark) -> tuple[Segment, ...]:
    return read_template(text, syntax, marks).messages[0].segments


def slots(text: str, syntax: Syntax = Syntax.JINJA) -> list[tuple[str, ...]]:
    return [one.names for one in segments(text, syntax) if one.kind is not SegmentKind.FIXED]


@pytest.mark.parametrize("row", corpus(), ids=lambda row: row.id)
def test_templates_of_agents_are_read_to_the_byte(row: Row) -> None:
    assert row.template.messages[0].source == row.text


@given(jinja_texts)
def test_segments_are_slices_without_a_gap(text: str) -> None:
    at = 0
    for one in segments(text):
        assert (one.offset, text[at : one.end]) == (at, one.source)
        at = one.end
    assert at == len(text)


@given(st.text("{}a!:\"' ", max_size=40))
def test_any_format_is_read_as_python_reads_it_or_refused(text: str) -> None:
    try:
        found = segments(text, Syntax.FORMAT)
    except TemplateInvalid:
        return
    assert "".join(one.source for one in found) == text


def test_strings_and_braces_inside_a_slot_do_not_end_it() -> None:
    assert slots("""{{ {'a': '}}'}[x] }} and {% if y == "%}" %}z{% endif %}""") == [("x",), ("y",)]


def test_what_stands_in_raw_and_in_remarks_is_no_slot() -> None:
    assert slots("{% raw %}{{ a }}{% endraw %}{# {{ b }} #}") == [(), ()]


def test_a_structure_is_as_volatile_as_the_most_volatile_thing_in_it() -> None:
    (loop,) = segments("{% for one in documents %}{{ one.text }} {{ now }}{% endfor %}")
    assert (loop.volatility, loop.names) == (Volatility.PER_REQUEST, ("documents", "now"))


def test_a_variable_that_a_loop_makes_is_none_of_the_call() -> None:
    assert read_template("{% for x in tools %}{{ x }}{% endfor %}", Syntax.JINJA).names == {"tools"}


def test_a_mark_wins_over_a_name() -> None:
    (slot,) = segments("{{ now }}", now=Mark(Volatility.FIXED))
    assert (slot.volatility, slot.marked) == (Volatility.FIXED, True)


def test_braces_written_twice_are_text() -> None:
    assert slots('{{"a": {value!r:>10}}}', Syntax.FORMAT) == [("value",)]


def test_a_day_is_told_from_a_moment_by_its_format() -> None:
    day, moment = (one for one in segments("{now():%d.%m.} {now():%H:%M}", Syntax.FORMAT) if one.cause)
    assert (day.cause, moment.cause) == (Cause.DATE, Cause.TIME)


def test_a_literal_that_changes_stands_for_a_slot() -> None:
    (fixed, literal, _) = segments("The current time is 2024-05-15 15:00:00 EST.", Syntax.LITERAL)
    assert (fixed.volatility, literal.kind, literal.cause) == (Volatility.FIXED, SegmentKind.LITERAL, Cause.TIME)


@pytest.mark.parametrize("text", ["{{ a", "{% if a %}", "{# a", "{% raw %}", "{{ a b }}", "{% %}", "{% nothing %}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(TemplateInvalid):
        segments(text)


@pytest.mark.parametrize("text", ["{", "}", "{}", "{a", "a}b"])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(TemplateInvalid):
        segments(text, Syntax.FORMAT)


@pytest.mark.parametrize("text", ["{{ x }}" * 50_000, "{% if x %}" * 30_000, "- {{ x }}\n" * 40_000, "a\n\n" * 20_000])
def test_a_template_of_more_parts_than_anybody_writes_is_refused_at_once(text: str) -> None:
    with pytest.raises(TemplateInvalid, match="more than 4,000 lines and braces"):
        read_template(text, Syntax.JINJA)
