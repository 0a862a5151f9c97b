"""Python sources: where a finding stands, what it says, and what is no Python or too much of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.lint import Asked, Every, Finding, Level
from prefix_index.lint import python_eval as evaluation
from prefix_index.lint.python_reader import read_python

RULES_TEXT = "Be kind, brief and exact in all that you say, and name the shelf of each book that you speak of. " * 4


def findings(source: str, asked: Asked | None = None) -> list[Finding]:
    read = read_python("a.py", source.replace("RULES_TEXT", repr(RULES_TEXT)), asked or Asked())
    assert read.skipped == []
    return read.findings


def test_a_finding_says_where_what_and_how_much() -> None:
    (found,) = findings(
        "from datetime import datetime as dt\n"
        "def ask(q):\n"
        "    now = dt.now()\n"
        "    return chat(system=f'It is {now}. ' + RULES_TEXT, messages=q)\n"
    )
    assert (found.rule.id, found.place.line, found.place.column) == ("time-before-fixed", 4, 32)
    assert (found.subject, found.note, found.every) == ("now", "from datetime.datetime.now()", Every.CALL)
    assert found.lost_tokens == len(RULES_TEXT) // 4 // 16 * 16


def test_tokens_are_counted_by_the_model_where_there_is_one() -> None:
    source = "import time\ndef prompt():\n    return f'{time.time()} ' + RULES_TEXT\n"
    (found,) = findings(source, Asked(block_tokens=10, count_tokens=lambda text: text.count("shelf") * 7))
    assert found.lost_tokens == 20


def test_fixed_text_of_less_than_a_block_is_no_loss() -> None:
    source = "import time\ndef prompt():\n    return f'{time.time()} ' + RULES_TEXT\n"
    assert findings(source, Asked(block_tokens=len(RULES_TEXT))) == []


def test_the_place_is_right_behind_other_scripts_and_in_texts_of_several_lines() -> None:
    source = (
        "import uuid\ndef prompt():\n    看 = '図書館'; return f'''案内 {看}\n  番号 {uuid.uuid4()}\n''' + RULES_TEXT\n"
    )
    (found,) = findings(source)
    assert (found.place.line, found.place.column) == (4, 6)
    assert source[found.place.offset] == "{"


def test_one_name_at_several_places_is_one_finding() -> None:
    (found,) = findings("PROMPT = 'At {now}: ' + RULES_TEXT + ' still {now} ' + RULES_TEXT\n")
    assert len(found.also) == 1


def test_what_is_made_at_import_is_another_in_each_process_and_not_in_each_call() -> None:
    (found,) = findings("import time\nSYSTEM_PROMPT = f'{time.time()} ' + RULES_TEXT\n")
    assert found.every is Every.CHANGE
    assert "imported" in found.note


def test_what_a_call_is_about_is_a_note_where_little_is_lost() -> None:
    (little,) = findings("PROMPT = '{question} ' + RULES_TEXT\n")
    (much,) = findings("PROMPT = '{question} ' + RULES_TEXT + RULES_TEXT + RULES_TEXT\n")
    assert (little.level, much.level) == (Level.NOTE, Level.WARNING)


def test_a_function_is_followed_with_what_it_is_given() -> None:
    (found,) = findings(
        "from uuid import uuid4\n"
        "def head(mark):\n    return f'<{mark}> '\n"
        "def prompt():\n    return head(uuid4()) + RULES_TEXT\n"
    )
    assert (found.rule.id, found.place.line) == ("uuid-before-fixed", 3)


@pytest.mark.parametrize(
    "source",
    [
        "def prompt(:\n  pass",
        "prompt = '\0'",
        "prompt = " + "(" * 5_000,
        "prompt = " + "-" * 100_000 + "1",
    ],
)
def test_what_is_no_python_is_skipped_and_says_why(source: str) -> None:
    (skipped,) = read_python("a.py", source, Asked()).skipped
    assert skipped.path == "a.py"
    assert skipped.why


def test_functions_that_call_each_other_end() -> None:
    source = (
        "def prompt_a(x):\n    return prompt_b(x + 'a') + RULES_TEXT\n"
        "def prompt_b(x):\n    return prompt_a(x + 'b') + prompt_a(x + 'c')\n"
    )
    assert {one.rule.id for one in findings(source)} <= {"content-before-fixed"}


def test_a_module_that_takes_too_long_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_STEPS", 50)
    lines = [
        "import time",
        "prompt = f'{time.time()} ' + " + repr(RULES_TEXT),
        *(f"x{n} = {n} + {n}" for n in range(99)),
    ]
    read = read_python("a.py", "\n".join(lines), Asked())
    assert [one.rule.id for one in read.findings] == ["epoch-before-fixed"]
    assert "in part" in read.skipped[0].why


PIECES = st.sampled_from(
    [
        *("prompt", " = ", "f'{x} and {y}'", "'a {b} c'", "\n", "def system_prompt():\n    return ", "messages=[", "]"),
        *("{'role': 'system', 'content': ", "}", ", ", "datetime.now()", "(", ")", "'%s' % ", "'{}'.format", "x", ".y"),
        *("for x in y:\n    ", "prompt += ", "lambda: 0", "[-3:]", "*history", "é", "'''", '"', "\\", "\t", "{", "}"),
    ]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_that_is_written_makes_it_fail_and_places_lie_in_the_file(source: str) -> None:
    for found in read_python("a.py", "prompt\n" + source, Asked(block_tokens=1)).findings:
        assert 0 <= found.place.offset <= len(source) + 7
        assert found.place.line >= 1
