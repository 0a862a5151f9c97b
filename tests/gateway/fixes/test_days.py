"""Timestamps are rounded down to their day, in the form in which they stand."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fixes.days import rounded_days
from gateway.fixes.edits import edited

FORMS = (
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S.%fZ",
    "%Y/%m/%d %H:%M",
    "%A, %d %B %Y %H:%M:%S",
    "%d %B %Y at %I:%M %p",
    "%Y年%m月%d日 %H時%M分",
)
MOMENTS = st.datetimes(datetime(2018, 1, 1), datetime(2033, 1, 1))  # noqa: DTZ001 - as clocks show them


def rounded(text: str) -> str:
    return edited(text, rounded_days(text))


@given(MOMENTS, st.sampled_from(FORMS), st.sampled_from(["Now: ", "The current time is ", "当前时间："]))
def test_a_time_becomes_the_midnight_before_it_and_its_line_stays_as_long(
    moment: datetime, form: str, said: str
) -> None:
    text = f"Rules of 2020-01-01.\n{said}{moment.strftime(form)}\nEnd."
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    assert rounded(text) == f"Rules of 2020-01-01.\n{said}{midnight.strftime(form)}\nEnd."
    assert rounded(rounded(text)) == rounded(text)


@given(MOMENTS, st.sampled_from([1, 1000, 1_000_000]))
def test_an_epoch_becomes_the_beginning_of_its_day_in_utc(moment: datetime, unit: int) -> None:
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    text = f"Timestamp: {seconds * unit + 7 % unit}"
    assert rounded(text) == f"Timestamp: {(seconds - seconds % 86_400) * unit}"


@pytest.mark.parametrize(
    "text",
    [
        "Lunch is at 12:30 now.",
        "Now: 12:30:11",
        "Released 2020-05-05T08:00:00Z, deprecated since.",
        "Now: 5 May 2026 at 9:05 AM",
        "The example `2026-11-30T12:05:11Z` shows the form.",
        "Ratio 16:9, version 1.2.3, port 8080:80",
    ],
)
def test_a_clock_without_a_date_and_what_stays_anyway_are_left(text: str) -> None:
    assert rounded(text) == text
