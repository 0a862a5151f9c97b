"""How long what hurt, from what was seen."""

import pytest

from bench.faults.page import table_of
from bench.faults.timeline import WINDOW, back_to_s, figures_of
from bench.faults.types import Acted, Asked, Attempt, Fault, Kind, Outcome, Row, Step, Try


def waits(*spans: tuple[float, float, float]) -> list[tuple[float, float]]:
    """Requests each tenth of a second from one instant to another, each waiting so long."""
    return [
        (from_s + number / 10, wait_s)
        for from_s, to_s, wait_s in spans
        for number in range(round((to_s - from_s) * 10))
    ]


def test_who_was_never_slower_is_back_at_once() -> None:
    assert back_to_s(waits((0, 10, 0.1)), 0.0, 0.1) == 0.0


def test_who_was_slower_is_back_at_the_first_of_those_that_are_not() -> None:
    back_s = back_to_s(waits((0, 3, 2.0), (3, 10, 0.1)), 0.0, 0.1)
    assert back_s is not None
    assert 2.0 < back_s <= 3.0


def test_a_moment_of_quickness_is_no_return() -> None:
    back_s = back_to_s(waits((0, 1, 2.0), (1, 3, 0.1), (3, 6, 2.0), (6, 10, 0.1)), 0.0, 0.1)
    assert back_s is not None
    assert back_s > 5.0


def test_who_stays_slow_never_comes_back() -> None:
    assert back_to_s(waits((0, 10, 2.0)), 0.0, 0.1) is None
    assert back_to_s(waits((0, WINDOW / 10 - 0.1, 0.1)), 0.0, 0.1) is None


def test_work_leaves_a_faulty_endpoint_and_comes_back() -> None:
    killed = Acted(Fault(Kind.KILL, "engine-0"), 10.0, 15.0)
    step = Step((killed,), 7.0, 10.0, 15.0, 16.0, 1.0)
    outcomes = [(9.0, "answered"), (10.3, "DialFailed"), (11.2, "DialFailed"), (15.2, "cut"), (17.0, "answered")]
    attempts = tuple(Attempt("engine-0", 1000.0 + at_s, outcome) for at_s, outcome in outcomes)
    one = Try("c.0", "gateway-0", 10.1, 10.9, 10.4, "id", "engine-1", 200)
    asked = [Asked("c", "large", "acme", True, 10.1, None, [one], Outcome.SERVED, 10.9)]
    [found] = figures_of([step], asked, [Row("id", "c.0", "acme", "complete", attempts=attempts)], ["engine-0"], 1000.0)
    [aim] = found.aims
    assert (aim.attempts, aim.back_after_s) == (2, 2.0)
    assert aim.left_after_s == pytest.approx(1.2)
    assert (found.requests, found.failed, found.cut) == (1, 0, 0)
    assert found.slowest_s == pytest.approx(0.3)
    assert found.row(5.0)["from_s"] == 5.0


def test_the_page_has_a_line_for_each_step() -> None:
    step = {
        "faults": ["kill engine-0"],
        "requests": 70,
        "failed": 0,
        "cut": 2,
        "ttft_p50_before_s": 0.071,
        "ttft_p50_during_s": 0.08,
        "ttft_slowest_s": 0.5,
        "ttft_p50_back_after_s": 0.0,
        "endpoints": [{"no_new_work_after_s": None, "work_again_after_s": 1.2}],
    }
    pair = {**step, "faults": ["kill engine-0", "freeze valkey"]}
    lines = list(table_of({"steps": [pair, step]}, pairs=False))
    assert lines[2:] == ["| kill engine-0 | 70 | 0 | 2 | 0.07 s | 0.08 s | 0.50 s | kept | at once | 1.20 s |"]
    assert len(list(table_of({"steps": [pair, step]}, pairs=True))) == 3
