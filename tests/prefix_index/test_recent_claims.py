"""What is no news: the same run of the same holder, for a moment, unless something was lost since."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.recent_claims import MOMENT_S, RecentClaims
from tests.prefix_index.subjects import chain


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_same_run_of_the_same_holder_is_no_news_for_a_moment() -> None:
    clock = Clock()
    recent = RecentClaims(clock)
    told = [recent.is_news("a", chain("xyz")) for _ in range(3)]
    assert told == [True, False, False]
    assert recent.is_news("b", chain("xyz"))
    assert recent.is_news("a", chain("xy"))
    clock.now_s += MOMENT_S * 0.3
    assert not recent.is_news("a", chain("xyz"))
    clock.now_s += MOMENT_S * 0.2
    assert not recent.is_news("a", chain("xyz"))
    clock.now_s += MOMENT_S * 0.5
    assert recent.is_news("a", chain("xyz"))


@given(st.lists(st.floats(0, MOMENT_S * 1.5)))
def test_whatever_is_no_news_was_told_less_than_a_moment_ago(waits_s: list[float]) -> None:
    clock = Clock()
    recent = RecentClaims(clock)
    told_s = float("-inf")
    for wait_s in waits_s:
        clock.now_s += wait_s
        if recent.is_news("a", chain("x")):
            told_s = clock.now_s
        assert clock.now_s - told_s < MOMENT_S


def test_a_run_that_is_told_each_moment_is_told_each_time() -> None:
    clock = Clock()
    recent = RecentClaims(clock)
    for _ in range(5):
        assert recent.is_news("a", chain("xyz"))
        clock.now_s += MOMENT_S * 1.1


def test_after_a_loss_everything_is_news() -> None:
    recent = RecentClaims(Clock())
    recent.is_news("a", chain("x"))
    recent.forget()
    assert recent.is_news("a", chain("x"))
