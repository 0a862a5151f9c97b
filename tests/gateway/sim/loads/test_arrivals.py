"""Arrivals change times and nothing else: order, numbers and prompts stay, and the same seed gives the same times."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sim import SimRequest, Workload
from gateway.sim.loads import LoadImpossible, arrivals, mooncake, shared_prefix
from prefix_index import Chain

LOAD = shared_prefix(10, 400, 64, 32, 8)
CONVERSATION = mooncake(Path(__file__).parents[4] / "bench/data/traces/mooncake_conversation.jsonl.gz")

Change = Callable[[Workload], Workload]
CHANGES: dict[str, Change] = {
    "poisson": lambda w: arrivals.poisson(w, 5, 1),
    "constant": lambda w: arrivals.constant(w, 5),
    "bursty": lambda w: arrivals.bursty(w, 5, 3, 1),
    "ladder": lambda w: arrivals.ladder(w, [(5, 1e9)], 1),
    "even ladder": lambda w: arrivals.ladder(w, [(5, 1e9)], None),
    "at speed": lambda w: arrivals.at_speed(w, 3),
    "spread": lambda w: arrivals.spread(w, 3, 1),
    "closed loop": lambda w: arrivals.closed_loop(w, 7),
    "turn by turn": arrivals.turn_by_turn,
    "as recorded": arrivals.as_recorded,
}


def prompts(load: Workload) -> list[tuple[int, Chain, int]]:
    return [(r.number, r.chain, r.output_tokens) for r in load.requests]


def gaps(load: Workload) -> list[float]:
    return [b.at_s - a.at_s for a, b in pairwise(load.requests)]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_order_and_prompts_stay_and_times_do_not_go_back(change: Change) -> None:
    load = change(arrivals.take(CONVERSATION, 500))

    assert prompts(load) == prompts(arrivals.take(CONVERSATION, 500))
    assert all(gap >= 0 for gap in gaps(load))
    assert list(load.requests) == list(load.requests)


@pytest.mark.parametrize("rate", [0.5, 20])
def test_rates_come_out_as_asked_for(rate: float) -> None:
    for load in (
        arrivals.poisson(LOAD, rate, 3),
        arrivals.bursty(LOAD, rate, 2, 3),
        arrivals.constant(LOAD, rate),
    ):
        assert 1 / mean(gaps(load)) == pytest.approx(rate, rel=0.1)


@pytest.mark.parametrize("cv", [0.5, 1, 2.5])
def test_gaps_vary_as_asked_for(cv: float) -> None:
    between = gaps(arrivals.bursty(LOAD, 5, cv, 1))

    assert pstdev(between) / mean(between) == pytest.approx(cv, rel=0.1)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 4.0, 10.0]), st.sampled_from([0.0, 5.0, 20.0])), max_size=5),
    st.booleans(),
)
def test_a_ladder_has_each_rate_for_its_time_and_ends_with_its_last_stage(
    stages: list[tuple[float, float]], even: bool
) -> None:
    times = [r.at_s for r in arrivals.ladder(LOAD, stages, None if even else 5).requests]
    begin = 0.0
    for rate, seconds in stages:
        arrived = sum(begin <= at < begin + seconds for at in times)
        expected = rate * seconds
        assert arrived == expected if even else abs(arrived - expected) <= 6 * expected**0.5
        begin += seconds
    assert all(at < begin for at in times)


def test_steps_are_spread_within_themselves() -> None:
    recorded = list(CONVERSATION.requests)
    spread = list(arrivals.spread(CONVERSATION, 3.0, 1).requests)

    assert all(0 <= b.at_s - a.at_s < 3.0 for a, b in zip(recorded, spread, strict=True))
    assert len({r.at_s for r in spread}) > 0.99 * len(spread)


def test_twice_the_speed_halves_times_and_pauses() -> None:
    chain = Chain(b"", 16, 1)
    load = Workload("two", 16, [SimRequest(0, 0, chain, 1), SimRequest(1, 8, chain, 1, after=0, think_s=6)])

    _, second = arrivals.at_speed(load, 2).requests

    assert (second.at_s, second.think_s, second.after) == (4, 3, 0)


def test_a_closed_loop_is_all_there_at_once_and_bounded() -> None:
    load = arrivals.closed_loop(CONVERSATION, 12)

    assert (load.closed_loop, load.most_in_flight) == (True, 12)
    assert {r.at_s for r in load.requests} == {0.0}


def test_a_rate_opens_a_loop() -> None:
    assert not arrivals.poisson(arrivals.turn_by_turn(LOAD), 1, 1).closed_loop


def test_a_load_can_be_cut_by_number_and_by_time() -> None:
    assert len(list(arrivals.take(CONVERSATION, 7).requests)) == 7
    assert {r.at_s for r in arrivals.until(CONVERSATION, 3.0).requests} == {0.0}


@pytest.mark.parametrize(
    "impossible",
    [
        lambda: arrivals.poisson(LOAD, 0, 1),
        lambda: arrivals.constant(LOAD, -1),
        lambda: arrivals.bursty(LOAD, 1, 0, 1),
        lambda: arrivals.ladder(LOAD, [(-1, 1)], 1),
        lambda: arrivals.at_speed(LOAD, 0),
        lambda: arrivals.spread(LOAD, 0, 1),
        lambda: arrivals.closed_loop(LOAD, 0),
        lambda: arrivals.take(LOAD, -1),
    ],
)
def test_numbers_that_no_load_can_have_are_refused(impossible: Callable[[], Workload]) -> None:
    with pytest.raises(LoadImpossible):
        impossible()
