"""Policies that know nothing of prompts, or nothing else."""

from collections import Counter

import pytest

from gateway.sim.policies import PolicyArgs, by_name
from tests.gateway.sim.policies.fleet import chain, compute, end, fleet, request, send, serve

ARGS = PolicyArgs(endpoints=4, seed=7)


def test_random_uses_all_endpoints_about_as_often() -> None:
    policy, view = by_name["random"](ARGS), fleet(4)
    counts = Counter(policy.choose(request(number), view) for number in range(4000))
    # 1,000 expected each, standard deviation sqrt(4000 · 1/4 · 3/4) = 27
    assert all(900 < counts[number] < 1100 for number in range(4))


def test_random_finds_the_one_endpoint_that_lives() -> None:
    policy, view = by_name["random"](ARGS), fleet(1000, dead=set(range(1000)) - {321})
    assert {policy.choose(request(number), view) for number in range(5)} == {321}


def test_another_seed_throws_otherwise() -> None:
    view, policies = fleet(8), [by_name["random"](PolicyArgs(8, seed)) for seed in (1, 2)]
    first, second = ([policy.choose(request(n), view) for n in range(20)] for policy in policies)
    assert first != second


def test_round_robin_goes_in_turn_past_the_dead_and_on_to_those_that_join() -> None:
    policy, view = by_name["rr"](ARGS), fleet(3, dead=[1])
    assert [policy.choose(request(n), view) for n in range(4)] == [0, 2, 0, 2]
    view.endpoints[1].alive = True
    view.join()
    assert [policy.choose(request(n), view) for n in range(5)] == [3, 0, 1, 2, 3]


def test_no_endpoint_alive_is_an_error_in_words() -> None:
    with pytest.raises(LookupError, match="none of 2 endpoints is alive"):
        by_name["rr"](ARGS).choose(request(0), fleet(2, dead=[0, 1]))


def test_fewest_requests_win_and_equal_ones_go_in_turn() -> None:
    policy, view = by_name["least-req"](ARGS), fleet(3)
    sent = [request(n) for n in range(4)]
    assert [send(policy, each, view) for each in sent[:3]] == [0, 1, 2]
    end(policy, sent[1], 1, view)  # in flight 1, 0, 1
    assert send(policy, sent[3], view) == 1
    # one after another, each ends before the next: 448 to one endpoint and none to the other is what others did
    quiet = by_name["least-req"](ARGS)
    assert [serve(quiet, request(n), fleet(3)) for n in range(4)] == [0, 1, 2, 0]


def test_fewest_requests_among_the_living() -> None:
    policy, view = by_name["least-req"](ARGS), fleet(3)
    for n in range(4):
        send(policy, request(n), view)  # in flight 2, 1, 1
    view.endpoints[1].alive = False
    assert send(policy, request(4), view) == 2
    assert send(policy, request(5), view) in (0, 2)


def test_an_endpoint_that_joins_has_the_fewest_requests() -> None:
    policy, view = by_name["least-req"](PolicyArgs(2)), fleet(2)
    send(policy, request(0), view)
    send(policy, request(1), view)
    assert view.join() == send(policy, request(2), view) == 2


def test_sessions_are_dealt_out_in_order_of_appearance_and_stay() -> None:
    policy, view = by_name["sticky"](ARGS), fleet(2)
    order = ["a", "b", "a", "c", "b", "c", "d"]
    # a is session 0, b 1, c 2, d 3: endpoints 0, 1, 0, 1
    assert [policy.choose(request(n, session=name), view) for n, name in enumerate(order)] == [0, 1, 0, 0, 1, 0, 1]


def test_a_session_moves_over_while_its_endpoint_is_dead_and_returns() -> None:
    policy, view = by_name["sticky"](ARGS), fleet(3)
    assert policy.choose(request(0, session="a"), view) == 0
    view.endpoints[0].alive = False
    assert policy.choose(request(1, session="a"), view) == 1
    view.endpoints[0].alive = True
    view.join()
    assert policy.choose(request(2, session="a"), view) == 0


def test_requests_of_no_session_go_in_turn() -> None:
    policy, view = by_name["sticky"](ARGS), fleet(3)
    assert [policy.choose(request(n), view) for n in range(4)] == [0, 1, 2, 0]


def test_the_longest_prefix_wins_whatever_the_load() -> None:
    policy, view = by_name["longest"](ARGS), fleet(3)
    view.caches = {0: [chain("ab")], 1: [chain("abc")], 2: [chain("x")]}
    view.endpoints[1].in_flight = 500
    assert policy.choose(request(0, "abcd"), view) == 1
    view.endpoints[1].alive = False
    assert policy.choose(request(1, "abcd"), view) == 0


def test_equal_prefixes_go_to_the_least_loaded_and_then_to_who_computed_least() -> None:
    policy, view = by_name["longest"](ARGS), fleet(3)
    view.endpoints[0].in_flight = 1
    assert policy.choose(request(0, "ab"), view) == 1
    view.endpoints[0].in_flight = 0
    # computed so far: 32 tokens on 0; 48 − 32 cached = 16 on 1; nothing on 2
    policy.sent(request(1, "pq"), 0, 0.0)
    policy.sent(request(2, "xyz"), 1, 0.0)
    policy.first_token(request(2, "xyz"), 1, 0.0, 32)
    assert policy.choose(request(3, "ab"), view) == 2
    view.endpoints[2].alive = False
    assert policy.choose(request(4, "ab"), view) == 1


def test_least_work_counts_tokens_where_others_count_requests() -> None:
    policy, view = by_name["least-work"](PolicyArgs(2)), fleet(2)
    long, short, shorter = request(0, "abcdefgh"), request(1, "x"), request(2, "y")
    assert send(policy, long, view) == 0  # 128 tokens outstanding on 0
    assert send(policy, short, view) == 1  # 16 on 1
    assert send(policy, shorter, view) == 1  # 16 < 128, though 1 has one request more afterwards
    compute(policy, long, 0, view)  # 0 on 0, 32 on 1
    assert send(policy, request(3, "z"), view) == 0


def test_least_work_without_prompts_outstanding_takes_the_fewest_answers() -> None:
    policy, view = by_name["least-work"](PolicyArgs(2)), fleet(2)
    first = request(0, "abc")
    assert send(policy, first, view) == 0
    compute(policy, first, 0, view)  # no tokens outstanding anywhere; answers 1, 0
    assert send(policy, request(1), view) == 1
