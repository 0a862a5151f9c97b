"""A template's file is read whole, or refused with the place of the fault."""

from itertools import pairwise

import pytest

from gateway.templates import TemplateFileInvalid, read_kept
from tests.gateway.templates.files import ORDERED, support


def test_a_file_says_what_is_called_and_in_which_order() -> None:
    kept = read_kept(support(), "support.yaml")
    assert (kept.reference, kept.reordered) == ("support@1", True)
    system, user = kept.renderer.messages({"question": "Why?", "now": "10:00"})
    assert system == {"role": "system", "content": ORDERED.format(now="10:00")}
    assert user == {"role": "user", "content": "Why?"}


def test_an_order_is_changed_only_with_the_operators_consent() -> None:
    kept = read_kept(support().replace("reorder: consented\n", ""), "support.yaml")
    assert len(kept.layout.moves) == 1
    assert not kept.reordered
    assert str(kept.renderer.messages({"question": "Why?"})[0]["content"]).startswith("Time: never")


def test_tenants_and_samples_may_change_under_a_version_and_its_text_may_not() -> None:
    kept, other, changed = (
        read_kept(text, "f")
        for text in (support(), support() + "  - {question: x}\ntenants: [a]\n", support().replace("brief", "long"))
    )
    assert kept.digest == other.digest
    assert other.allows("a")
    assert not other.allows("b")
    assert kept.digest != changed.digest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a list", "no mapping"),
        ("name: a\nversion: 1.10\ntext: x", "in quotes"),
        ("name: a b\nversion: 1\ntext: x", "name"),
        ("name: a\nversion: x\ntext: x", "version"),
        ("name: a\nversion: 1", "messages, or a text"),
        ("name: a\nversion: 1\ntext: x\nmessages: [{role: user, content: x}]", "messages, or a text"),
        ("name: a\nversion: 1\nmessages: [{role: user}]", "messages.0"),
        ("name: a\nversion: 1\ntext: '{{ x'", "line 1: unexpected end"),
        ("name: a\nversion: 1\ntext: '{{ now() }}'", "would be called"),
        ("name: a\nversion: 1\nsyntax: format\ntext: '{a.b}'", "more than the name"),
        ("name: a\nversion: 1\ntext: x\nslots: {y: {pinned: true}}", "no message has y"),
        ("name: a\nversion: 1\ntext: x\nslot: {}", "slot: unknown key"),
        ("name: a\nversion: 1\ntext: x\nname: b", "stands twice"),
        ("a" * 2_000_000, "longer than"),
    ],
)
def test_what_is_no_template_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(TemplateFileInvalid, match=why):
        read_kept(text, "a.yaml")


def test_aliases_that_would_fill_the_memory_are_refused() -> None:
    levels = "".join(
        f"      {name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghij")
    )
    text = f"name: x\nversion: 1\ntext: '{{{{ q }}}}'\nslots:\n  q:\n    default:\n      a: &a [1, 2]\n{levels}"
    with pytest.raises(TemplateFileInvalid, match="values"):
        read_kept(text, "x.yaml")
