"""Templates as text, JSON and YAML: how they are taken apart, and where in a file their slots stand."""

import json
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.lint import Asked, Finding, read_file
from prefix_index.lint.files import is_candidate
from prefix_index.lint.text_templates import parts_of_text

FIXED = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of.\n" * 3


def slots(text: str) -> list[str]:
    return [part.text for part in parts_of_text(text) if part.is_slot]


def found(path: str, text: str) -> list[Finding]:
    return read_file(path, text, Asked(), is_named=True).findings


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a {{ b }} c {{d.e|upper}}", ["b", "d.e"]),
        ("a {b} c {d.e} {f[0]} {g!r} {h:>3}", ["b", "d.e", "f[0]", "g", "h"]),
        ("a {{literal}} {b}", ["b"]),
        ("{% for x in docs %}{{ x }}{% endfor %}{{ y }}", ["docs", "y"]),
        ("{% set t = now() %}{{ t }}", ["t"]),
        ("{% raw %}{{ a }}{% endraw %}{{ b }}", ["b"]),
        ("{# {{ a }} #}{{ b }}", ["b"]),
        ('{{"a": 1}} {% if x %}', []),
        ("{ not a slot } {} {1}", []),
        ("run: ${{ github.sha }} {% x %}", []),
        ("print(f'{x}') {% if y %}", []),
        ("{{ open", []),
        ("{% for x in y %}{{ x }}", ["y"]),
        ("", []),
    ],
)
def test_slots_are_what_is_put_in(text: str, names: list[str]) -> None:
    assert slots(text) == names


def test_what_a_template_sets_is_judged_by_what_it_is_made_of() -> None:
    (part,) = [part for part in parts_of_text("{% set t = strftime_now('%H:%M') %}{{ t }}") if part.is_slot]
    assert part.cause == "time"


@given(st.text(alphabet="{}%#$ab.|\n 'f-", max_size=60))
def test_parts_stand_in_order_and_fixed_ones_where_they_say(text: str) -> None:
    parts = parts_of_text(text)
    assert [part.at for part in parts] == sorted(part.at for part in parts)
    assert all(text.startswith(part.text, part.at) for part in parts if not part.is_slot)


def test_a_long_text_of_opening_braces_takes_no_time_to_speak_of() -> None:
    assert slots("{{ {% {# { " * 50_000 + "f'{" * 50_000) == []


@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_slot_in_json_stands_where_it_is_written(is_ascii: bool) -> None:
    rows = [{"prompt": "Nichts."}, {"prompt": f'Größe "x"\n{{now}}\n{FIXED}'}]
    text = "\n".join(json.dumps(row, ensure_ascii=is_ascii) for row in rows)
    (one,) = found("a.jsonl", text)
    assert one.place.line == 2
    assert text[one.place.offset :].startswith("{now}")


@pytest.mark.parametrize(
    "text",
    [
        yaml.safe_dump({"a": {"system_prompt": "x\n{{ now }}\n" + FIXED}}, default_style="|"),
        'a:\n  system: "x {{ now }} ' + FIXED.replace("\n", " ") + '"\n',
        "a:\n  system: >-\n    x\n    {{ now }}\n" + "".join(f"    {line}\n" for line in FIXED.splitlines()),
    ],
)
def test_a_slot_in_yaml_stands_where_it_is_written(text: str) -> None:
    (one,) = found("a.yaml", text)
    assert text[one.place.offset :].startswith("{{ now }}")
    assert text.split("\n")[one.place.line - 1][one.place.column - 1 :].startswith("{{ now }}")


@pytest.mark.parametrize("as_text", [json.dumps, yaml.safe_dump])
def test_in_a_folder_a_string_beside_a_role_is_a_prompt_and_other_strings_are_not(
    as_text: Callable[[object], str],
) -> None:
    content = "{{ now }}\n" + FIXED
    rows = {"tests": [{"role": "system", "content": content, "note": content}, {"content": content}]}
    suffix = "json" if as_text is json.dumps else "yaml"
    (one,) = read_file(f"a.{suffix}", as_text(rows), Asked(), is_named=False).findings
    assert one.rule.id == "time-before-fixed"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.json", "{"),
        ("a.jsonl", "no\nrow\n"),
        ("a.yaml", "a: [1,\n b: 2"),
        ("a.json", "[" * 100_000),
        ("a.yaml", "a: *nobody"),
    ],
)
def test_what_is_broken_is_skipped_and_says_why(path: str, text: str) -> None:
    read = read_file(path, text, Asked(), is_named=True)
    assert read.findings == []
    assert [one.path for one in read.skipped] == [path]


def test_what_aliases_repeat_without_end_is_read_once() -> None:
    prompt = f"a: &a ['{{{{ now }}}} {'fixed text ' * 20}']\n"
    levels = "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghijk"))
    assert len(read_file("prompts.yaml", prompt + levels, Asked(), is_named=True).findings) == 1


def test_broken_lines_are_counted_and_the_others_read() -> None:
    row = json.dumps({"prompt": "{now} " + FIXED})
    read = read_file("a.jsonl", f"{row}\nnot\n{row}\n", Asked(), is_named=True)
    assert [one.place.line for one in read.findings] == [1, 3]
    assert read.skipped[0].why == "line 2 is no JSON"


@given(st.sampled_from(["a.json", "a.jsonl", "a.yaml", "a.md", "a.jinja", "a.py"]), st.text(max_size=80))
def test_no_text_makes_a_reader_fail(path: str, text: str) -> None:
    read_file(path, "prompt " + text, Asked(block_tokens=1), is_named=True)
    read_file(path, text, Asked(block_tokens=1), is_named=True)


@pytest.mark.parametrize(
    ("path", "is_read"),
    [
        ("a/b.py", True),
        ("a/b.jinja2", True),
        ("a/page.html.jinja", False),
        ("a/site.conf.j2", False),
        ("README.md", False),
        ("prompts/README.md", False),
        ("prompts/planner.md", True),
        ("docs/usage.md", False),
        ("a/system.txt", True),
        ("a.jsonl", True),
        ("a.png", False),
    ],
)
def test_of_a_folder_only_what_may_hold_prompts_is_read(path: str, is_read: bool) -> None:
    assert is_candidate(path) is is_read


def test_a_comment_lets_a_rule_pass_in_its_line_the_next_and_the_file() -> None:
    text = "{{ now }}\n" + FIXED
    assert len(found("a.jinja", text)) == 1
    for comment in ("{# prefixgate: ignore[time-before-fixed] #}", "{# prefixgate: ignore #}"):
        assert found("a.jinja", f"{comment}\n{text}") == []
        assert found("a.jinja", text.replace("\n", f" {comment}\n", 1)) == []
        assert len(found("a.jinja", f"{comment}\n\n{text}")) == 1
    of_file = "{# prefixgate: ignore-file[uuid-before-fixed, time-before-fixed] #}"
    assert found("a.jinja", text + of_file) == []
    assert len(found("a.jinja", text + of_file.replace("time", "date"))) == 1


def test_a_fingerprint_stays_when_lines_move_and_differs_by_rule_slot_and_file() -> None:
    text = "{{ now }} {{ request_id }}\n" + FIXED
    first = {one.fingerprint for one in found("a.jinja", text)}
    assert first == {one.fingerprint for one in found("a.jinja", "\n\n" + text)}
    assert len(first) == 2
    assert not first & {one.fingerprint for one in found("b.jinja", text)}
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in first)
