"""Literals that change are found, with how sure it is; what stands still is left alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import Cause, Certainty, Volatility, spots
from prefix_index.layout.forms import COUNTERS, FORMS, NAMED_VALUES, NUMBERS, Form, NamedValue


def found(text: str, certainty: Certainty = Certainty.LIKELY) -> list[tuple[str, str]]:
    return [(spot.cause.value, text[spot.start : spot.end]) for spot in spots(text) if spot.certainty >= certainty]


@pytest.mark.parametrize(
    ("text", "cause", "literal"),
    [
        ("Current time: 2025-03-03 10:11:12", "time", "2025-03-03 10:11:12"),
        ("2025-03-03T10:00:00.123+01:00 hello", "time", "2025-03-03T10:00:00.123+01:00"),
        ("---\nCURRENT_TIME: Mon Mar 03 2025 14:05:06 +0000\n---", "time", "Mon Mar 03 2025 14:05:06 +0000"),
        ("Current date: Mon Mar  3 14:05:06 UTC 2025", "time", "Mon Mar  3 14:05:06 UTC 2025"),
        ("Date: Mon, 03 Mar 2025 10:00:00 GMT", "time", "Mon, 03 Mar 2025 10:00:00 GMT"),
        ("The current time is 9:41 PM", "time", "9:41 PM"),
        ("Today is Monday, March 3rd, 2025.", "date", "Monday, March 3rd, 2025"),
        ("It is today, 3 March 2025.", "date", "3 March 2025"),
        ("today: 3/4/2025", "date", "3/4/2025"),
        ("today is Tuesday, be brief", "date", "Tuesday"),
        ("今天是2025年3月3日 星期一。", "date", "2025年3月3日 星期一"),
        ("当前时间：2025年3月3日 14:05", "time", "2025年3月3日 14:05"),
        ("現在時刻: 令和7年3月3日 14時05分", "time", "令和7年3月3日 14時05分"),
        ("本日は月曜日です", "date", "月曜日"),
        ("Heute ist Montag, 3. März 2025, 14:05 Uhr", "time", "Montag, 3. März 2025, 14:05 Uhr"),
        ("Datum: 03.03.2025", "date", "03.03.2025"),
        ("now=1732967756", "epoch", "1732967756"),
        ("seen 1732967756123 by", "epoch", "1732967756123"),
        ("created 550e8400-e29b-41d4-a716-446655440000", "uuid", "550e8400-e29b-41d4-a716-446655440000"),
        ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "hex_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
        ("Request id: 7f3a9c01x", "request_id", "7f3a9c01x"),
        ("(req_8f14e45fceea)", "request_id", "req_8f14e45fceea"),
        ("session_id=ab12cd34", "session_id", "ab12cd34"),
        ("nonce: 8812", "random", "8812"),
        ("This is request #123.", "counter", "123"),
        ("Step 7 of 10", "counter", "7"),
        ("You have 3 attempts left", "counter", "3"),
        ("You are helping Ada Byron.", "user", "Ada Byron"),
        ("user: ada@example.com", "user", "ada@example.com"),
        ("User: jdoe42", "user", "jdoe42"),
        ("User name: Ada Byron", "user", "Ada Byron"),
    ],
)
def test_what_changes_is_found_whole(text: str, cause: str, literal: str) -> None:
    assert found(text) == [(cause, literal)]


@pytest.mark.parametrize(
    "text",
    [
        "Use gpt-4-2024-08-06 or claude-3-5-20241022, version 1.2.3, api-version=2024-06-01.",
        "It costs $1,299.00, or 3.14 a day, 10,000 tokens at most; call 1-800-555-0199.",
        "Knowledge cutoff: 2024-06-01",
        "Orders before 2024-05-15 are final. Prices of 1 March 2024 apply.",
        "Dates look like `2025-03-03T10:00:00Z`, e.g. 2025-03-03 10:00:00.",
        '{"created_at": "2024-05-15T15:00:00"}',
        "We are open 9:00 AM to 5:30 PM.",
        "Step 1 of 3: read. Step 2 of 3: think.",
        "User: Good Morning\nAssistant: Hello!",
        "session_id: string, the session's id",
        "You are helping Users with code. You are helping the user.",
        "Write to support@example.com.",
        "The colour is deadbeef, the answer 42.",
    ],
)
def test_what_stands_still_is_no_alarm(text: str) -> None:
    assert found(text) == []


def test_a_date_in_a_rule_is_known_as_one_that_might_change() -> None:
    (spot,) = spots("Knowledge cutoff: 2024-06-01")
    assert (spot.cause, spot.certainty) == (Cause.DATE, Certainty.STATIC)


def test_a_person_lasts_for_a_session_and_a_clock_for_a_request() -> None:
    person, clock = spots("You are helping Ada Byron. It is now 10:11:12.")
    assert (person.volatility, clock.volatility) == (Volatility.PER_SESSION, Volatility.PER_REQUEST)


CALL = "You are helping Ada Byron."
FRAGMENTS = [
    "2025-03-03",
    "T10:00:00",
    "today ",
    "1732967756",
    "a@b.c",
    "0af3" * 5,
    "Step 7 of 9",
    "user: ",
    "年3月",
    "\n",
]


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=30).map("".join))
def test_spots_are_in_order_and_never_overlap(text: str) -> None:
    ends = [0]
    for spot in spots(text):
        assert ends[-1] <= spot.start < spot.end <= len(text)
        ends.append(spot.end)


def test_a_text_made_to_stop_it_is_read_to_its_end() -> None:
    dice = random.Random(7)
    for fragment in [*FRAGMENTS, "a@", "a.", "0a", "You are helping A A A A ", "Request #1", "12:", "令和"]:
        assert spots(fragment * dice.randint(20_000, 30_000) + " request id: 7f3a9c01")[-1].end > 0


FILLERS = [
    "plain words of prose and more of them, ",
    "{",
    "id",
    "name",
    "e: ",
    "# ",
    "- ",
    "\t",
    "日",
    "x" * 70,
    "9" * 11,
]


@given(st.lists(st.sampled_from([*FRAGMENTS, *FILLERS]), max_size=40).map("".join))
def test_looking_only_near_what_forms_cannot_be_without_misses_nothing(text: str) -> None:
    looked_for: list[Form | NamedValue] = [*FORMS, *NAMED_VALUES]
    for form in looked_for:
        everywhere = [match.span() for match in form.pattern.finditer(text)]
        windows = form.near.windows(text)
        assert [
            match.span() for start, end in windows for match in form.pattern.finditer(text, start, end)
        ] == everywhere


def test_looking_only_near_what_counters_cannot_be_without_misses_nothing() -> None:
    for said in ("iteration number #123", "Step 7 of 10", "3 attempts left", "request no. 5", "a 12 b"):
        text = f"{'x ' * 60}{said}{' y' * 60}"
        windows = NUMBERS.windows(text)
        near = [match.span() for start, end in windows for match in COUNTERS.finditer(text, start, end)]
        assert near == [match.span() for match in COUNTERS.finditer(text)]
