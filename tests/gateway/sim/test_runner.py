"""A run does what arithmetic says; nothing is lost on the way."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.simulated import EngineSpec, Role
from gateway.sim import SimRequest, Workload
from gateway.sim.fleet import FleetPlan, Happening, What
from gateway.sim.runner import Run
from tests.gateway.sim.scripted import BLOCK, ENGINE, Scripted, ask, run

SPLIT = [
    replace(ENGINE, role=Role.PREFILL),
    replace(ENGINE, role=Role.DECODE, transfer_tokens_per_s=5.0),
    replace(ENGINE, role=Role.DECODE, transfer_tokens_per_s=5.0),
]


def test_a_request_alone_takes_its_prompt_and_its_answer() -> None:
    policy = Scripted()
    records = run([ask(0, 10.0)], policy).records
    assert (list(records.at_s), list(records.ttft_s), list(records.ended_s)) == ([10.0], [2.0], [13.5])
    assert policy.told == [("sent", 0, 0, 10.0), ("first", 0, 0, 12.0), ("ended", 0, 0, 13.5)]


def test_what_an_engine_has_computed_is_reused_save_for_the_last_token() -> None:
    records = run([ask(0, 0.0, "a"), ask(1, 10.0, "a")], Scripted()).records
    assert list(records.cached_tokens) == [0, 12]
    assert list(records.ttft_s) == [2.0, 1.25]
    assert records.uncached_of == [20]


def test_another_engine_has_computed_nothing() -> None:
    records = run([ask(0, 0.0, "a"), ask(1, 10.0, "a")], Scripted([0, 1]), [ENGINE, ENGINE]).records
    assert list(records.cached_tokens) == [0, 0]
    assert records.uncached_of == [16, 16]


def test_who_comes_second_waits_for_the_step_of_the_first() -> None:
    records = run([ask(0, 0.0, output=1), ask(1, 1.0, output=1)], Scripted()).records
    assert list(records.ttft_s) == [2.0, 3.0]


def test_in_a_closed_loop_a_turn_comes_its_pause_after_the_end_of_the_one_before() -> None:
    turns = [ask(0, 0.0), ask(1, 0.5, after=0, think_s=5.0), ask(2, 0.7)]
    records = run(turns, Scripted([0, 1]), [ENGINE, ENGINE], closed_loop=True).records
    assert sorted(records.at_s) == [0.0, 0.7, 3.5 + 5.0]


def test_in_an_open_loop_a_turn_comes_when_the_load_says() -> None:
    records = run([ask(0, 0.0), ask(1, 0.5, after=0, think_s=5.0)], Scripted()).records
    assert list(records.at_s) == [0.0, 0.5]


def test_no_more_are_in_flight_than_are_allowed() -> None:
    policy = Scripted([0, 1])
    records = run([ask(n, 0.0) for n in range(3)], policy, [ENGINE] * 2, most_in_flight=1, closed_loop=True).records
    assert list(records.at_s) == [0.0, 3.5, 7.0]
    assert list(records.ended_s) == [3.5, 7.0, 10.5]


def test_a_restart_sends_elsewhere_who_had_no_token_and_cuts_who_had_one() -> None:
    policy = Scripted([0, 0, 1])
    requests = [ask(0, 0.0, output=10), ask(1, 2.5)]
    records = run(requests, policy, [ENGINE] * 2, [Happening(3.0, 0, What.RESTART)]).records
    assert math.isnan(records.ended_s[0])
    assert (records.ttft_s[0], records.failed, records.too_long) == (2.0, 1, 0)
    assert (records.ttft_s[1], records.ended_s[1], records.endpoint[1]) == (0.5 + 2.0, 6.5, 1)
    assert policy.told[2:5] == [("sent", 1, 0, 2.5), ("ended", 0, 0, 3.0), ("ended", 1, 0, 3.0)]
    assert ("restarted", -1, 0, 3.0) in policy.told


def test_an_engine_takes_nothing_until_it_has_started() -> None:
    policy = Scripted([0])
    slow = replace(ENGINE, start_s=6.5)
    requests = [ask(number, float(number)) for number in range(0, 12, 2)]
    run(requests, policy, [slow, ENGINE], [Happening(1.0, 0, What.RESTART)])
    assert [(now_s, to) for what, _, to, now_s in policy.told if what == "sent"] == [
        *((0.0, 0), (1.0, 1)),  # the first again, elsewhere
        *((2.0, 1), (4.0, 1), (6.0, 1), (8.0, 0), (10.0, 0)),
    ]


@pytest.mark.parametrize("second", [What.RESTART, What.LEAVE])
def test_an_engine_that_is_restarted_or_leaves_while_it_starts_is_not_there_before_its_time(second: What) -> None:
    policy = Scripted([0])
    twice = [Happening(1.0, 0, What.RESTART), Happening(4.0, 0, second)]
    run([ask(number, float(number)) for number in range(2, 12, 3)], policy, [replace(ENGINE, start_s=5.5)] * 2, twice)
    back = 0 if second is What.RESTART else 1
    assert [(now_s, to) for what, _, to, now_s in policy.told if what == "sent"] == [
        *((2.0, 1), (5.0, 1), (8.0, 1)),
        (11.0, back),
    ]


def test_an_endpoint_that_joins_is_chosen_from_then_on_and_one_that_leaves_no_more() -> None:
    policy = Scripted([1])
    changes = [Happening(3.0, 1, What.JOIN), Happening(7.0, 1, What.LEAVE)]
    run([ask(number, number * 2.0) for number in range(6)], policy, [ENGINE] * 2, changes)
    assert [to for what, _, to, _ in policy.told if what == "sent"] == [
        *(0, 0, 1, 1),
        *(0, 0, 0),  # one of the two again, which had no token yet
    ]


def test_who_comes_while_nobody_is_there_fails_and_those_behind_go_on() -> None:
    requests = [ask(0, 0.0), ask(1, 4.0), ask(2, 5.0, after=1, think_s=1.0)]
    gone = [Happening(3.8, 0, What.RESTART)]
    records = run(requests, Scripted(), [replace(ENGINE, start_s=0.7)], gone, closed_loop=True).records
    assert [math.isnan(ended_s) for ended_s in records.ended_s] == [False, True, False]
    assert (list(records.at_s), records.failed) == ([0.0, 4.0, 5.0], 1)


def test_many_that_wait_for_nobody_fail_one_after_the_other() -> None:
    waiting = [ask(number, 0.0) for number in range(3000)]
    gone = [Happening(0.0, 0, What.LEAVE)]
    records = run([ask(3000, 0.0), *waiting], Scripted(), [ENGINE], gone, most_in_flight=1).records
    assert (len(records), records.failed) == (3001, 3001)


def test_a_prompt_that_no_engine_can_hold_is_dropped_and_counted() -> None:
    small = replace(ENGINE, capacity_blocks=8)
    figures = run([ask(0, 0.0, tokens=40), ask(1, 1.0)], Scripted(), [small]).records.figures()
    assert (figures.requests, figures.answered, figures.failed, figures.too_long) == (2, 1, 1, 1)


def test_an_answer_without_a_token_has_one() -> None:
    records = run([ask(0, 0.0, output=0)], Scripted()).records
    assert list(records.ended_s) == [2.0]


def test_replicas_share_the_requests_and_each_hears_of_its_own() -> None:
    policies = [Scripted(), Scripted()]
    workload = Workload("shared", BLOCK, [ask(number, number * 10.0) for number in range(40)])
    Run(workload, FleetPlan.of(1, ENGINE), policies, seed=1).play()
    numbers = [{number for _, number, _, _ in policy.told} for policy in policies]
    assert all(10 < len(own) < 30 for own in numbers)
    assert numbers[0] | numbers[1] == set(range(40))
    assert not numbers[0] & numbers[1]


def test_a_split_answer_begins_after_its_blocks_have_come() -> None:
    policy = Scripted()
    records = run([ask(0, 0.0)], policy, SPLIT).records
    first_s = 2.0 + 15 / 5.0 + 0.5  # computed; all but the last token transferred; the last computed by the decoder
    assert list(records.ttft_s) == [first_s]
    assert list(records.ended_s) == [first_s + 3 * 0.5]
    assert (list(records.endpoint), list(records.cached_tokens)) == ([0], [0])
    assert policy.told == [("sent", 0, 0, 0.0), ("first", 0, 0, 2.0), ("ended", 0, 0, 2.0)]


def test_a_split_prompt_is_reused_where_it_was_computed_and_where_it_was_written() -> None:
    records = run([ask(0, 0.0, "a"), ask(1, 20.0, "a")], Scripted(), SPLIT).records
    assert list(records.cached_tokens) == [0, 12]
    assert records.ttft_s[1] == pytest.approx(1.25 + 3 / 5.0 + 0.5), "the decoder has three of the four blocks"


def test_answers_go_to_the_decoder_that_writes_fewest() -> None:
    one = run([ask(number, 0.0, output=50) for number in range(4)], Scripted(), SPLIT)
    assert [engine.work.output_tokens for engine in one.engines] == [4, 100, 100]
    assert one.records.figures().imbalance == 1.0, "of those that compute prompts, which is one"


def test_a_decoder_that_restarts_hands_over_who_had_no_token_and_cuts_who_had_one() -> None:
    requests = [ask(0, 0.0, output=30), ask(1, 2.0, output=30), ask(2, 5.5)]
    records = run(requests, Scripted(), SPLIT, [Happening(8.5, 1, What.RESTART)]).records
    assert [math.isnan(ended_s) for ended_s in records.ended_s] == [True, False, False]
    # The third had been computed at 7.5 and was on its way; it starts again with the second's engine.
    assert records.ttft_s[2] + 5.5 == pytest.approx(8.5 + 3.0 + 0.5, abs=0.5)
    assert records.failed == 1


def test_without_a_decoder_a_computed_prompt_fails() -> None:
    gone = [Happening(0.5, number, What.LEAVE) for number in (1, 2)]
    policy = Scripted()
    records = run([ask(0, 0.0)], policy, SPLIT, gone).records
    assert (records.failed, policy.open[0]) == (1, 0)


def some_requests() -> st.SearchStrategy[list[SimRequest]]:
    one = st.tuples(
        *(st.floats(0, 5), st.sampled_from("abc"), st.integers(1, 30), st.integers(0, 12)),
        *(st.floats(0, 3), st.booleans()),
    )

    def made(rows: list[tuple[float, str, int, int, float, bool]]) -> list[SimRequest]:
        at_s, requests = 0.0, []
        for number, (gap_s, name, tokens, output, think_s, follows) in enumerate(rows):
            at_s += gap_s
            after = number - 1 if follows and number else None
            requests.append(ask(number, at_s, name, tokens=tokens, output=output, after=after, think_s=think_s))
        return requests

    return st.lists(one, max_size=25).map(made)


@settings(max_examples=60, deadline=None)
@given(
    some_requests(),
    st.lists(st.tuples(st.floats(0, 60), st.integers(0, 2)), max_size=4),
    st.sampled_from([[replace(ENGINE, capacity_blocks=9)] * 3, SPLIT]),
    st.booleans(),
    st.sampled_from([None, 1, 3]),
)
def test_every_request_is_answered_or_has_failed(
    requests: list[SimRequest],
    restarts: list[tuple[float, int]],
    specs: Sequence[EngineSpec],
    closed_loop: bool,
    most_in_flight: int | None,
) -> None:
    happenings = [Happening(at_s, number, What.RESTART) for at_s, number in restarts]
    specs = [replace(spec, start_s=2.0) for spec in specs]
    first, second = (
        run(
            *(requests, Scripted([0, 1, 2]), specs, happenings),
            closed_loop=closed_loop,
            most_in_flight=most_in_flight,
        )
        for _ in range(2)
    )
    records, policy = first.records, first.policies[0]
    figures = records.figures()
    assert figures.answered + figures.failed == len(requests) == len(records)
    assert isinstance(policy, Scripted)
    assert not any(policy.open.values())
    assert all(engine.sample(1e9).running == 0 for engine in first.engines)
    assert list(records.ended_s.tobytes()) == list(second.records.ended_s.tobytes()), "the same again"
