"""When a canary is stopped, and when not."""

import random
from dataclasses import dataclass

import pytest

from gateway.model_routes import Guard, GuardRule
from gateway.model_routes.guarding import JUDGED_EVERY, LEAST_TIMED, MOST_KEPT

RULE = GuardRule("new", most_errors=0.05, most_ttft=2.0, min_requests=100, window_s=600.0)


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def play(
    guard: Guard, requests: int, *, new: tuple[float, float], old: tuple[float, float], seed: int = 1
) -> str | None:
    """Requests of both arms in turn; each pair is a share of failures and a median of the time to the first token."""
    rng = random.Random(seed)
    for _ in range(requests):
        for arm, (errors, ttft_s) in (("old", old), ("new", new)):
            failed = rng.random() < errors
            why = guard.note(arm, failed=failed, ttft_s=None if failed else ttft_s * rng.lognormvariate(0, 0.8))
            if why is not None:
                return why
    return None


def test_an_arm_that_fails_more_is_stopped_as_soon_as_both_sides_have_had_enough() -> None:
    why = play(Guard(RULE, Clock()), 100, new=(0.5, 0.1), old=(0.0, 0.1))
    assert why is not None
    assert why.startswith("errors: 0.")


def test_an_arm_whose_first_tokens_come_later_is_stopped() -> None:
    why = play(Guard(RULE, Clock()), 100, new=(0.0, 0.4), old=(0.0, 0.1))
    assert why is not None
    assert why.startswith("ttft")


@pytest.mark.parametrize("seed", range(12))
def test_an_arm_that_does_as_well_is_not_stopped_by_chance(seed: int) -> None:
    guard = Guard(RULE, Clock())
    assert play(guard, 1500, new=(0.02, 0.1), old=(0.02, 0.1), seed=seed) is None
    assert {side.requests for side in guard.sides()} == {MOST_KEPT}


def test_a_little_worse_than_allowed_is_stopped_only_where_chance_does_not_explain_it() -> None:
    """Ten of a hundred against none is above 0.05, and three standard errors are 0.09."""
    for failures, expected in ((8, False), (10, True)):
        guard = Guard(RULE, Clock())
        for _ in range(100):
            guard.note("old", failed=False, ttft_s=0.1)
        said = [guard.note("new", failed=at < failures, ttft_s=0.1) for at in range(100)]
        assert any(said) is expected


def test_what_is_older_than_the_window_or_was_forgotten_counts_no_more() -> None:
    clock = Clock()
    guard = Guard(RULE, clock)
    assert play(guard, 90, new=(1.0, 0.1), old=(0.0, 0.1)) is None
    clock.now_s = 601.0
    assert play(guard, 90, new=(0.0, 0.1), old=(0.0, 0.1)) is None
    assert [side.failed for side in guard.sides()] == [0, 0]
    guard.forget()
    assert [(side.requests, side.error_share, side.ttft_s) for side in guard.sides()] == [(0, 0.0, None)] * 2


def test_without_first_tokens_only_errors_are_compared() -> None:
    guard = Guard(RULE, Clock())
    for _ in range(MOST_KEPT):
        guard.note("old", failed=False, ttft_s=None)
        assert guard.note("new", failed=False, ttft_s=9.0) is None
    assert MOST_KEPT % JUDGED_EVERY == 0


def test_an_arm_that_never_answers_is_stopped_though_all_its_clients_leave() -> None:
    guard = Guard(RULE, Clock())
    for _ in range(100):
        guard.note("old", failed=False, ttft_s=0.1)
    said = [guard.note("new", failed=False, ttft_s=None, left_s=5.0) for _ in range(100)]
    assert said[-1] == "ttft: its median is 5.000 s, that of the others 0.100 s"


@pytest.mark.parametrize(("old_left_s", "new_left_s"), [(None, 0.15), (5.0, 5.0)])
def test_clients_that_leave_early_or_leave_all_arms_alike_stop_none(
    old_left_s: float | None, new_left_s: float
) -> None:
    guard = Guard(RULE, Clock())
    for at in range(300):
        left_s = old_left_s if at >= 50 else None
        guard.note("old", failed=False, ttft_s=None if left_s else 0.1, left_s=left_s)
        left_s = new_left_s if at >= 50 else None
        assert guard.note("new", failed=False, ttft_s=None if left_s else 0.1, left_s=left_s) is None


def test_one_slow_stream_among_plain_answers_stops_nobody() -> None:
    guard = Guard(RULE, Clock())
    for at in range(100):
        guard.note("old", failed=False, ttft_s=0.1)
        assert guard.note("new", failed=False, ttft_s=9.0 if at < LEAST_TIMED - 1 else None) is None
