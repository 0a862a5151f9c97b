"""Recent work: a sum that fades with work, the same as one that is faded step by step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scheduling.recent_work import WINDOW_TURNOVERS, RecentWork

notes = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 500_000)), max_size=60)


def book_of(**capacities: int) -> RecentWork:
    book = RecentWork()
    for name, tokens in capacities.items():
        book.set_capacity(name, tokens)
    return book


@given(notes)
def test_it_is_what_fading_everybody_at_each_note_gives(noted: list[tuple[str, float]]) -> None:
    book, plain = book_of(a=1000, b=3000, c=2000), dict.fromkeys("abc", 0.0)
    for name, tokens in noted:
        fading = math.exp(-tokens / (WINDOW_TURNOVERS * 6000))
        plain = {one: work * fading for one, work in plain.items()}
        plain[name] += tokens
        book.note(name, tokens)
    for name, work in plain.items():
        assert book.tokens_of(name) == pytest.approx(work, rel=1e-6, abs=1e-6)


def test_who_works_as_much_as_the_others_has_as_much_as_they() -> None:
    book = book_of(a=1000, b=1000)
    for _ in range(20_000):
        book.note("a", 10)
        book.note("b", 10)
    assert book.tokens_of("a") == pytest.approx(book.tokens_of("b"), rel=0.01)
    assert book.tokens_of("a") == pytest.approx(WINDOW_TURNOVERS * 1000, rel=0.01)


def test_a_newcomer_starts_at_the_average_of_the_others() -> None:
    book = book_of(a=1000, b=1000)
    book.note("a", 300)
    book.note("b", 100)
    book.set_capacity("c", 1000)
    assert book.tokens_of("c") == pytest.approx((book.tokens_of("a") + book.tokens_of("b")) / 2)


def test_who_comes_back_starts_at_the_average_of_the_others_but_keeps_what_it_has_beyond() -> None:
    book = book_of(a=1000, b=1000, c=1000)
    book.note("a", 300)
    book.note("b", 100)
    book.came_back("c")
    assert book.tokens_of("c") == pytest.approx((book.tokens_of("a") + book.tokens_of("b")) / 2)
    before = book.tokens_of("a")
    book.came_back("a")
    book.came_back("nobody")
    assert book.tokens_of("a") == before
    assert book.tokens_of("nobody") == 0.0


def test_a_new_size_does_not_begin_anew() -> None:
    book = book_of(a=1000)
    book.note("a", 300)
    before = book.tokens_of("a")
    book.set_capacity("a", 5000)
    assert book.tokens_of("a") == before


def test_what_was_noted_too_much_is_taken_back_and_never_less_than_nothing() -> None:
    book = book_of(a=1000)
    book.note("a", 300)
    book.correct("a", -500)
    assert book.tokens_of("a") == 0.0


def test_the_usual_request_is_the_average_of_late_ones() -> None:
    book = book_of(a=1000)
    assert book.usual_tokens == book.reused_share == 0.0
    for tokens in (10, 20, 60):
        book.asked(100, tokens, 2 * tokens)
    assert book.usual_tokens == pytest.approx(60)
    assert book.reused_share == pytest.approx(0.7)


def test_an_endpoint_of_unknown_size_counts_as_one_of_the_usual() -> None:
    book = RecentWork()
    book.note("a", 100)
    assert book.tokens_of("a") > 99
    book.forget("a")
    assert book.tokens_of("a") == 0.0


@pytest.mark.parametrize("tokens", [60_000, 1_000_000_000])
def test_a_prompt_a_thousand_times_as_long_as_the_caches_are_said_to_be_is_still_sent(tokens: int) -> None:
    book = book_of(a=16, b=16)
    book.note("b", 100)
    book.note("a", tokens)
    book.correct("a", -tokens / 2)
    book.note("b", 10)
    assert math.isfinite(book.tokens_of("a"))
    assert book.tokens_of("a") > 0
    assert book.tokens_of("b") == pytest.approx(10)
