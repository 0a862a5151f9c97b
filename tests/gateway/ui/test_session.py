"""Cookies that any replica with the same token takes, and nobody else makes; guesses that take their time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ui.session import MOST_WRONG, MOST_WRONG_OF_ALL, WRONG_WITHIN_S, Guesses, Sessions

NOW_S = 1_800_000_000.0
TOKEN = "a-token-of-the-dashboard"
HOUR_S = 3600.0


class Clock:
    """Tells what it is set to."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def sessions(token: str = TOKEN, session_s: float = HOUR_S, now_s: float = NOW_S) -> Sessions:
    return Sessions(token, session_s, lambda: now_s)


def test_a_cookie_is_good_at_every_replica_until_its_time_is_over() -> None:
    cookie = sessions().begin()
    assert sessions().until_s(cookie) == NOW_S + HOUR_S
    assert sessions(now_s=NOW_S + HOUR_S - 1).until_s(cookie) == NOW_S + HOUR_S
    assert sessions(now_s=NOW_S + HOUR_S).until_s(cookie) is None


def test_two_logins_have_two_cookies() -> None:
    assert sessions().begin() != sessions().begin()


def test_another_token_ends_all_sessions() -> None:
    assert sessions(token="another-token-of-it").until_s(sessions().begin()) is None


def test_a_session_that_lasts_longer_than_they_do_now_is_over() -> None:
    cookie = sessions(session_s=10 * HOUR_S).begin()
    assert sessions().until_s(cookie) is None


def test_a_replica_whose_clock_is_a_little_behind_takes_a_new_cookie() -> None:
    assert sessions(now_s=NOW_S - 30).until_s(sessions().begin()) is not None


@given(st.integers(0, 80), st.characters(codec="latin-1"))
def test_no_character_of_a_cookie_can_be_another(at: int, other: str) -> None:
    cookie = sessions().begin()
    at %= len(cookie)
    tampered = cookie[:at] + other + cookie[at + 1 :]
    assert tampered == cookie or sessions().until_s(tampered) is None


@given(st.text(max_size=300))
def test_whatever_else_is_sent_is_no_session(text: str) -> None:
    assert sessions().until_s(text) is None


def test_a_later_end_cannot_be_signed_by_who_has_an_earlier_one() -> None:
    version, until, nonce, signature = sessions().begin().split(".")
    assert sessions().until_s(f"{version}.{int(until) + 60}.{nonce}.{signature}") is None


@pytest.mark.parametrize("given", ["", "a-token", f"{TOKEN} ", TOKEN.upper(), "\ud800", "é" * 24])
def test_only_the_token_itself_is_the_token(given: str) -> None:
    assert sessions().is_token(TOKEN)
    assert not sessions().is_token(given)


def test_an_address_that_guesses_waits_and_others_do_not() -> None:
    clock = Clock(0.0)
    guesses = Guesses(clock)
    for _ in range(MOST_WRONG):
        assert guesses.wait_s("1.1.1.1") == 0
        guesses.wrong("1.1.1.1")
    assert guesses.wait_s("1.1.1.1") == WRONG_WITHIN_S
    assert guesses.wait_s("2.2.2.2") == 0
    clock.now_s = WRONG_WITHIN_S - 1
    assert guesses.wait_s("1.1.1.1") == 1
    clock.now_s = WRONG_WITHIN_S
    assert guesses.wait_s("1.1.1.1") == 0


def test_guesses_from_many_addresses_wait_together() -> None:
    clock = Clock(0.0)
    guesses = Guesses(clock)
    for number in range(MOST_WRONG_OF_ALL):
        guesses.wrong(f"10.0.0.{number}")
    assert guesses.wait_s("2.2.2.2") == WRONG_WITHIN_S


def test_addresses_are_forgotten_before_they_are_too_many() -> None:
    guesses = Guesses(Clock(0.0))
    for number in range(5000):
        guesses.wrong(str(number))
    assert len(guesses._by_address) == 1024
