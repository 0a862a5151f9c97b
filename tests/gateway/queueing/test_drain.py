"""How fast what waits is served, and what that says of how long it will take."""

import pytest

from gateway.queueing.drain import LEAST_SERVED, DrainRate, wait_s


def draining(requests: int, tokens: int, every_s: float) -> tuple[DrainRate, float]:
    rate, now_s = DrainRate(), 100.0
    rate.waits(now_s)
    for _ in range(requests):
        now_s += every_s
        rate.served(tokens, now_s)
    return rate, now_s


def test_an_even_flow_has_its_rate() -> None:
    rate, now_s = draining(200, 500, 0.5)
    assert rate.tokens_per_s(now_s) == pytest.approx(1000, rel=0.02)


def test_few_requests_are_no_rate() -> None:
    rate, now_s = draining(LEAST_SERVED - 1, 500, 0.5)
    assert rate.tokens_per_s(now_s) is None


def test_time_in_which_nobody_waits_is_none_in_which_nothing_was_served() -> None:
    rate, now_s = draining(200, 500, 0.5)
    before = rate.tokens_per_s(now_s)
    rate.rests(now_s)
    assert rate.tokens_per_s(now_s + 3600) == before
    rate.waits(now_s + 3600)
    rate.served(500, now_s + 3600.5)
    assert rate.tokens_per_s(now_s + 3600.5) == pytest.approx(1000, rel=0.02)


def test_the_rate_falls_while_an_endpoint_stands_still() -> None:
    rate, now_s = draining(200, 500, 0.5)
    assert (rate.tokens_per_s(now_s + 10) or 0) < 800


def test_an_endpoint_without_a_rate_is_thought_to_be_as_fast_as_the_others() -> None:
    assert wait_s(6000, [1000.0, 1000.0, None]) == 2.0
    assert wait_s(6000, [None]) is None
    assert wait_s(6000, []) is None
