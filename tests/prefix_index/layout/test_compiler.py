"""What is fixed comes first, and nothing is lost, doubled or changed on the way."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import Layout, Mark, Source, Syntax, Volatility, ordered, read_template
from tests.prefix_index.layout.templates import Row, corpus, jinja_texts

MARKS = {
    "now": Mark(Volatility.PER_REQUEST),
    "question": Mark(Volatility.PER_REQUEST),
    "user": Mark(Volatility.PER_SESSION),
    "style": Mark(Volatility.PER_TENANT),
}


def layout(text: str, **marks: Mark) -> Layout:
    return ordered(read_template(text, Syntax.JINJA, {**MARKS, **marks}))


def after(text: str, **marks: Mark) -> str:
    return layout(text, **marks).after.messages[0].source


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\S+", text))


def test_a_paragraph_that_tells_the_time_goes_behind_the_fixed_text() -> None:
    assert after("Time: {{ now }}\n\nYou are kind.\n\nBe brief.\n") == "You are kind.\n\nBe brief.\n\nTime: {{ now }}\n"


def test_what_changes_less_stands_before_what_changes_more() -> None:
    text = "{{ now }} o'clock.\n\nYou help {{ user }}.\n\nWrite {{ style }}.\n\nBe brief."
    assert after(text) == "Be brief.\n\nWrite {{ style }}.\n\nYou help {{ user }}.\n\n{{ now }} o'clock."


def test_a_slot_inside_a_sentence_takes_its_line_along() -> None:
    text = "You are kind.\nYou help {{ user }} today.\nBe brief."
    assert after(text) == "You are kind.\nBe brief.\nYou help {{ user }} today."


def test_a_sentence_that_only_tells_the_time_leaves_its_line_behind() -> None:
    assert after("You are kind. Today is {{ today }}.\n\nBe brief.") == (
        "You are kind.\n\nBe brief.\n\nToday is {{ today }}."
    )


def test_a_line_that_goes_on_in_the_next_is_moved_with_it() -> None:
    text = "You help {{ user }}\nand nobody else.\n\nBe brief."
    assert after(text) == "Be brief.\n\nYou help {{ user }}\nand nobody else."


def test_an_item_of_a_list_is_moved_by_itself() -> None:
    assert after("- Help {{ user }}.\n- Cite.\n- Be brief.") == "- Cite.\n- Be brief.\n- Help {{ user }}."


def test_an_item_of_a_numbered_list_stays() -> None:
    found = layout("1. Help {{ user }}.\n\n2. Cite.\n\nBe brief.")
    assert found.moves == ()
    (stay,) = found.stays
    assert (stay.names, stay.why) == (("user",), "it is an item of a numbered list")


@pytest.mark.parametrize(
    "together",
    [
        "<docs>\n{{ question }}\n\nand more\n</docs>",
        "```\n{{ question }}\n\ncode\n```",
        "Here is the question:\n\n{{ question }}",
        "# Question\n\n{{ question }}",
        "---\nQ: {{ question }}\n---",
        '{\n"question": "{{ question }}"\n"b": 2\n}',
        "    x = {{ question }}\n    y = 1",
        "User: {{ question }}\nAssistant: fine.",
        '<doc id="1">\n{{ question }}\n\nmore\n</doc>',
        "<docs>\r\n{{ question }}\r\n\r\nand more\r\n</docs>",
        "{% if question %}Q\n\n{{ question }}{% endif %}",
    ],
)
def test_what_belongs_together_stays_together(together: str) -> None:
    assert after(f"{together}\n\n# Rules\n\nBe brief.") == f"# Rules\n\nBe brief.\n\n{together}"


def test_what_the_answer_follows_on_stays_the_last() -> None:
    text = "Now: {{ now }}\n\nBe brief.\n\nQuestion: {{ question }}\nAnswer:"
    assert after(text) == "Be brief.\n\nNow: {{ now }}\n\nQuestion: {{ question }}\nAnswer:"


def test_a_pinned_slot_is_never_moved_and_nothing_is_moved_for_nothing_behind_it() -> None:
    text = "Now: {{ now }}\n\nBe brief.\n\nYou help {{ user }}.\n\nCite."
    found = layout(text, now=Mark(Volatility.PER_REQUEST, pinned=True))
    assert (found.after, found.moves) == (found.before, ())
    assert found.stays[0].why == "now is pinned"


def test_what_sets_a_variable_stays_before_what_reads_it() -> None:
    found = layout("{% set who = user %}\n\nHelp {{ who }}.\n\nBe brief.").after
    assert found.messages[0].source == "{% set who = user %}\n\nBe brief.\n\nHelp {{ who }}."
    assert found.names == {"user"}


def test_a_reference_is_left_where_the_author_allows_one() -> None:
    found = layout(
        "Context: {{ docs }}\n\nBe brief.", docs=Mark(Volatility.PER_REQUEST, reference="(see Context below)")
    )
    assert found.after.messages[0].source == "(see Context below)\n\nBe brief.\n\nContext: {{ docs }}"
    assert ordered(found.after).moves == ()


def test_text_that_points_upwards_past_what_was_moved_is_named() -> None:
    (move,) = layout("Context: {{ docs }}\n\nAnswer from the context above.").moves
    assert "'above'" in move.cautions[0]


def test_messages_roles_and_turns_stay_where_they_are() -> None:
    sources = [
        Source("Now: {{ now }}\n\nBe brief.", "system"),
        Source(slot="history"),
        Source("Q {{ question }}.\n\nCite.", "user"),
    ]
    found = ordered(read_template(sources, Syntax.JINJA, MARKS)).after
    assert [(one.role, one.slot, one.source) for one in found.messages] == [
        ("system", None, "Be brief.\n\nNow: {{ now }}"),
        ("user", "history", ""),
        ("user", None, "Cite.\n\nQ {{ question }}."),
    ]


def test_a_structure_that_only_asks_about_a_variable_has_few_texts() -> None:
    (move,) = layout("{% if user_name %}Hello.{% endif %}\n\nNow: {{ now }}\n\nBe brief.").moves[:1]
    assert move.volatility is Volatility.PER_TENANT


@pytest.mark.parametrize("row", corpus(), ids=lambda row: row.id)
def test_templates_of_agents_are_ordered_without_losing_a_word(row: Row) -> None:
    found = ordered(row.template)
    text = found.after.messages[0].source
    assert words(text) == words(row.text)
    assert ordered(found.after).after.messages[0].source == text
    if not found.moves:
        assert text == row.text


def first_change(text: str, syntax: Syntax) -> int:
    segments = read_template(text, syntax).messages[0].segments
    return next((one.offset for one in segments if one.volatility), len(text))


@pytest.mark.parametrize("row", [row for row in corpus() if row.first_slot == "time"], ids=lambda row: row.id)
def test_a_time_at_the_head_of_a_template_is_found_and_goes_behind(row: Row) -> None:
    found = ordered(row.template)
    if row.id == "odrlegacy-SUPERVISOR_INSTRUCTIONS":  # it has its only slot in its last line
        assert found.after is found.before
        return
    assert found.moves[0].names[0] in ("CURRENT_TIME", "date")
    assert first_change(found.after.messages[0].source, row.syntax) > first_change(row.text, row.syntax)


ALREADY_RIGHT = [
    "You are a helpful AI assistant.\n\nSystem time: {system_time}",
    "Rules.\n\n<topic>\n{topic}\n</topic>\n",
    "Rules.",
    "",
    "\n\n",
]


@pytest.mark.parametrize("text", ALREADY_RIGHT)
def test_a_template_in_order_is_left_to_the_byte(text: str) -> None:
    found = ordered(read_template(text, Syntax.FORMAT))
    assert (found.moves, found.stays) == ((), ())
    assert found.after is found.before


@given(jinja_texts)
def test_any_order_keeps_every_word_and_is_a_fixed_point(text: str) -> None:
    found = layout(text)
    source = found.after.messages[0].source
    assert words(source) == words(text)
    assert "".join(segment.source for segment in found.after.messages[0].segments) == source
    assert layout(source).moves == ()


@given(jinja_texts, st.sampled_from(["now", "user_name", "locale"]))
def test_pinned_slots_keep_their_order(text: str, name: str) -> None:
    def places(source: str) -> list[str]:
        return re.findall(rf"[^\n]*{{{{ {name} }}}}[^\n]*", source)

    assert places(after(text, **{name: Mark(pinned=True)})) == places(text)


@given(jinja_texts)
def test_no_segment_is_altered(text: str) -> None:
    def slots(source: str) -> Counter[str]:
        found = read_template(source, Syntax.JINJA, MARKS).messages[0].segments
        return Counter(one.source for one in found if one.kind != "fixed")

    assert slots(after(text)) == slots(text)
