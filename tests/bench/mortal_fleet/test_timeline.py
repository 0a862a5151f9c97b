"""Phases in figures, and when affinity was back."""

from dataclasses import replace

import pytest

from bench.mortal_fleet.timeline import (
    WINDOW,
    Fault,
    Health,
    Phase,
    affinity_back_s,
    figures_of,
    is_explained,
    seconds_of,
)
from bench.mortal_fleet.types import Counts, Outcome, Seen


def seen(ended_s: float, *, cached: int = 90, outcome: Outcome = Outcome.SERVED, took_s: float = 0.5) -> Seen:
    return Seen(
        name="0.a.0",
        conversation="a",
        turn=0,
        tenant="acme",
        started_s=ended_s - took_s,
        ended_s=ended_s,
        outcome=outcome,
        usage=Counts(100, cached, 8),
        expected_tokens=90,
        first_s=ended_s - 0.2,
        replica=0,
        endpoint="engine-0",
        request_id="id",
    )


FAULT = Fault("engine-0", 10.0)
PHASES = [Phase("all well", 0.0, 10.0), Phase("engine killed", 10.0, 100.0, FAULT)]


def test_requests_belong_to_the_phase_in_which_they_ended() -> None:
    answers = [seen(5.0), replace(seen(9.9), retries=2), seen(10.0, cached=50), seen(10.2, outcome=Outcome.CUT)]
    answers.append(seen(12.0, outcome=Outcome.FAILED))
    well, killed = figures_of(PHASES, answers, [], usual_share=0.9)
    assert (well.requests, well.served, well.failed, well.cut, well.retried) == (2, 2, 0, 0, 1)
    assert well.affinity_back_s is None
    assert (killed.requests, killed.served, killed.failed, killed.cut) == (3, 1, 1, 1)
    assert killed.cut_unexplained == 0
    assert killed.accuracy.error_percent == 40.0
    assert killed.ttft_p50_s == pytest.approx(0.3)
    row = killed.row(1.0)
    assert (row["from_s"], row["to_s"], row["target"], row["error_percent"]) == (9.0, 99.0, "engine-0", 40.0)


def test_a_phase_without_requests_has_no_times() -> None:
    [only] = figures_of([Phase("all well", 0.0, 10.0)], [], [], usual_share=0)
    assert (only.requests, only.ttft_p50_s, only.accuracy.error_percent) == (0, None, 0)
    assert only.row(0)["ttft_p50_s"] is None


@pytest.mark.parametrize(
    ("one", "explained"),
    [
        (seen(10.1, took_s=0.5), True),
        (replace(seen(10.1), endpoint="engine-1"), False),
        (replace(seen(10.1), endpoint="engine-1", replica=2), True),
        (seen(9.9), False),
        (seen(11.0, took_s=0.5), False),
    ],
)
def test_a_cut_is_explained_by_a_kill_of_who_was_answering_while_it_was(one: Seen, explained: bool) -> None:
    assert is_explained(one, [FAULT, Fault("replica-2", 10.0)]) is explained


def test_affinity_is_back_with_the_first_window_that_is_as_usual() -> None:
    cold = [seen(11.0 + at, cached=0) for at in range(5)]
    warm = [seen(20.0 + at, cached=90) for at in range(WINDOW)]
    before = [seen(10.2, cached=0, took_s=1.0)]
    assert affinity_back_s([*before, *cold, *warm], 10.0, 100.0, 0.9) == pytest.approx(13.5 - 10.0)
    assert affinity_back_s([*before, *warm], 10.0, 100.0, 0.9) == 0
    assert affinity_back_s([*cold, *warm[:10]], 10.0, 100.0, 0.9) is None
    assert affinity_back_s([*cold, *warm], 10.0, 30.0, 0.9) is None


def test_answers_that_were_cut_say_nothing_of_affinity() -> None:
    answers = [seen(11.0 + at, outcome=Outcome.CUT) for at in range(WINDOW)]
    assert affinity_back_s(answers, 10.0, 100.0, 0.9) is None


def test_a_look_at_health_counts_until_the_next_one() -> None:
    looks = [
        Health(0.0, "replica-0", frozenset()),
        Health(1.0, "replica-0", None),
        Health(2.5, "replica-0", frozenset({"index"})),
        Health(3.0, "replica-0", frozenset({"index", "endpoints"})),
        Health(4.0, "replica-0", frozenset()),
        Health(3.0, "replica-1", frozenset({"index"})),
    ]
    [only] = figures_of([Phase("index killed", 0.0, 10.0)], [], looks, usual_share=0)
    assert only.away_s == {"replica-0": 1.5}
    assert only.degraded_s == {"replica-0 index": 1.5, "replica-0 endpoints": 1.0}


def test_seconds_in_which_nothing_ended_are_left_out() -> None:
    rows = seconds_of([seen(10.1), seen(10.9, outcome=Outcome.FAILED), seen(13.0, outcome=Outcome.CUT)], 10.0)
    assert [(row["second"], row["requests"], row["failed"], row["cut"]) for row in rows] == [(0, 2, 1, 0), (3, 1, 0, 1)]
    assert rows[0]["cached_share"] == 0.9
