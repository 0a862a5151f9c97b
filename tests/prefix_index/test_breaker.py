"""The breaker: away opens it at once, late only as a pattern, and one hiccup is one lateness."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.breaker import LATE_IN_A_ROW, Breaker
from prefix_index.types import DegradedReason

DEADLINE_S = 0.005


class Asking:
    """One question after the other, on a clock of its own."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.now_s = 100.0

    def is_late(self) -> bool:
        began_at_s, self.now_s = self.now_s, self.now_s + DEADLINE_S
        return self.breaker.late(began_at_s, self.now_s)

    def is_answered(self) -> None:
        self.now_s += 0.001
        self.breaker.in_time()


def test_three_late_in_a_row_open_it() -> None:
    asking = Asking()
    assert [asking.is_late() for _ in range(4)] == [False, False, True, False]
    assert asking.breaker.reason is DegradedReason.TIMEOUT


def test_one_answer_in_time_ends_a_row() -> None:
    asking = Asking()
    for _ in range(3):
        asking.is_late()
        asking.is_late()
        asking.is_answered()
    assert asking.breaker.reason is None


def test_half_of_the_last_twenty_late_open_it_in_whatever_order() -> None:
    asking = Asking()
    for _ in range(9):
        asking.is_late()
        asking.is_answered()
    assert asking.breaker.reason is None
    assert asking.is_late()


def test_what_was_late_long_ago_does_not_count() -> None:
    asking = Asking()
    for _ in range(100):
        asking.is_late()
        asking.is_answered()
        asking.is_answered()
    assert asking.breaker.reason is None


def test_many_that_wait_for_one_hiccup_are_one_lateness() -> None:
    breaker = Breaker()
    for number in range(50):
        began_at_s = number * 0.0001
        assert not breaker.late(began_at_s, began_at_s + DEADLINE_S)
    assert breaker.reason is None


def test_away_opens_it_at_once_and_closing_forgets_what_was_late() -> None:
    asking = Asking()
    asking.is_late()
    asking.is_late()
    assert asking.breaker.open(DegradedReason.UNREACHABLE)
    assert not asking.breaker.open(DegradedReason.REFUSED)
    assert asking.breaker.reason is DegradedReason.REFUSED
    asking.breaker.close()
    assert [asking.is_late() for _ in range(3)] == [False, False, True]


@given(st.lists(st.booleans(), max_size=200))
def test_it_opens_exactly_when_a_pattern_is_there(answers: list[bool]) -> None:
    asking = Asking()
    for number, in_time in enumerate(answers, 1):
        if in_time:
            asking.is_answered()
        else:
            asking.is_late()
        seen = answers[:number]
        row = seen[-LATE_IN_A_ROW:] == [False] * LATE_IN_A_ROW
        half = seen[-20:].count(False) >= 10
        assert (asking.breaker.reason is not None) == (row or half)
        if asking.breaker.reason is not None:
            return
