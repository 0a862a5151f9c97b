"""Lines that change go to the end of a system text, and nothing else of it changes."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fixes.edits import Edit, edited
from gateway.fixes.lines import movable_lines, separator

NOW = "2026-11-30T12:05:11Z"
PROMPT = "You are a careful researcher.\n\n# Rules\n- Cite.\n- Answer in the language of the question."


def moved(text: str) -> str:
    """The text with its lines at its end, as a body would have it."""
    found = movable_lines(text, 4)
    if found is None:
        return text
    rest = edited(text, [Edit(start, end, "") for start, end in found.holes])
    return rest + separator(rest, paragraph=found.paragraph) + found.said_by(text)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (f"Current time: {NOW}\n{PROMPT}", f"{PROMPT}\nCurrent time: {NOW}"),
        (f"Current time: {NOW}\n\n{PROMPT}", f"{PROMPT}\n\nCurrent time: {NOW}"),
        (f"---\nCURRENT_TIME: {NOW}\n---\n\n{PROMPT}", f"{PROMPT}\n\n---\nCURRENT_TIME: {NOW}\n---"),
        ("You help.\nRequest id: 7f3a9c01b2\nBe brief.\n", "You help.\nBe brief.\nRequest id: 7f3a9c01b2"),
        (f"Today is Monday, 30 November 2026.\n{PROMPT}", f"{PROMPT}\nToday is Monday, 30 November 2026."),
        (f"<now>{NOW}</now>\n{PROMPT}", f"{PROMPT}\n<now>{NOW}</now>"),
        ("当前时间：2026-11-30 12:05:11\n你是研究员。", "你是研究员。\n当前时间：2026-11-30 12:05:11"),
        (f"A\nTime: {NOW}\nTurn 7 of 10\nB", f"A\nB\nTime: {NOW}\nTurn 7 of 10"),
        (
            "The current time is 2024-05-15 15:00:00 EST.\n\nBook.",
            "Book.\n\nThe current time is 2024-05-15 15:00:00 EST.",
        ),
    ],
)
def test_a_line_that_says_what_it_is_goes_to_the_end(text: str, after: str) -> None:
    assert moved(text) == after
    assert moved(after) == after


@pytest.mark.parametrize(
    "text",
    [
        f"{PROMPT}\n\nCurrent time: {NOW}",
        f"{PROMPT}\n\nCurrent time: {NOW}\n\n",
        f"Current time: {NOW}",
        f"{NOW}\n{PROMPT}",
        f"The time is below.\n{NOW}\n{PROMPT}",
        f"You are careful. The current time is {NOW}. Prices change.\n{PROMPT}",
        f"Report each event that came after the current time {NOW} and before the end of the run.\n{PROMPT}",
        f"# Current time: {NOW}\n{PROMPT}",
        f"| now | {NOW} |\n{PROMPT}",
        f'{{\n"now": "{NOW}",\n"x": 1}}\n{PROMPT}',
        f"```\nCurrent time: {NOW}\n```\n{PROMPT}",
        f"1. Current time: {NOW}\n2. Cite.\n{PROMPT}",
        "Your knowledge ends 2024-06-01.\nPolicies in force since 2020-01-01.\nBe brief.",
        "Step 1: Read.\nStep 2: Think.\nStep 3: Answer.",
        "",
        "\n\n",
        f"Example 1\nInput: {NOW}\nOutput: November\n\nExample 2\nInput: {NOW}\nOutput: Nov",
        f"An example:\nInput: {NOW}\nOutput: November",
        f"Logs are like this.\nLogged at: {NOW}\nwarn\nLogged at: {NOW}\nerror",
        f"Never lie.\rCurrent time: {NOW}\nBe brief.",
        f"Current time: {NOW}\u2028No refunds.\nBe brief.",
    ],
)
def test_what_is_part_of_something_or_sure_to_stay_is_left_where_it_is(text: str) -> None:
    assert movable_lines(text, 4) is None


SOME = ["", " ", "---", "```", "Text.", "- Item", "Note:", f"Time: {NOW}", "Request id: 7f3a9c01b2", "Turn 3 of 9", NOW]
MORE = ["<now>", "</now>", "Today is Monday", "今天是星期一", f"  Now: {NOW}\r", "Step 1: go", f"X. Now: {NOW}. Y."]
LINES = st.sampled_from([*SOME, *MORE])


@given(st.lists(LINES, max_size=14).map("\n".join))
def test_no_line_is_lost_or_twice_and_the_rest_keeps_its_order(text: str) -> None:
    found = movable_lines(text, 4)
    if found is None:
        return
    said = found.said_by(text).split("\n")
    after = [line for line in moved(text).split("\n") if line.strip()]
    before = [line for line in text.split("\n") if line.strip()]
    spans = {start for start, _ in found.spans}
    starts = [sum(len(line) + 1 for line in text.split("\n")[:place]) for place in range(text.count("\n") + 1)]
    left = [line for line, start in zip(text.split("\n"), starts, strict=True) if line.strip() and start not in spans]
    assert sorted(after) == sorted(before)
    assert after == left + [line for line in said if line.strip()]


CORPORA = Path(__file__).parents[2] / "data" / "corpora"
CHATS = ("chat_mtbench_ja", "tools_glaive_zh", "tools_glaive_en", "tools_bfcl", "agent_tau_airline", "agent_sweagent")


def rows(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(CORPORA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def test_of_all_system_texts_of_the_corpora_one_line_is_moved_and_it_is_a_clock() -> None:
    messages = [message for name in CHATS for row in rows(name) for message in row["request"].get("messages", ())]
    texts = {str(message["content"]) for message in messages if message["role"] == "system"}
    texts |= {row["template"] for row in rows("prompt_templates")}
    assert len(texts) > 40
    moved_lines = {found.said_by(text) for text in texts if (found := movable_lines(text, 16)) is not None}
    assert moved_lines == {"The current time is 2024-05-15 15:00:00 EST."}
