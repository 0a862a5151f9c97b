"""Policies that know prompts, on cases small enough to be worked out by hand. A block is 16 tokens and a letter."""

from collections import Counter

import pytest

from backends.perf import PerfModel
from gateway.sim.policies import PolicyArgs, by_name
from gateway.sim.policies.preble_e2 import Window
from tests.gateway.sim.policies.fleet import BLOCK_SIZE, chain, compute, end, fleet, request, send, serve

ARGS = PolicyArgs(endpoints=2)


def test_bounded_load_keeps_a_key_together_until_it_is_a_quarter_above_the_mean() -> None:
    policy, view = by_name["chwbl"](PolicyArgs(4)), fleet(4)
    homes = [send(policy, request(number, "ab"), view) for number in range(8)]
    # the k-th goes where load + 1 <= 1.25 · k / 4. Second and third: 0.63 and 0.94, room for nobody, so home's;
    # fourth to sixth: 1.25, 1.56, 1.88, so the idle on the ring; seventh and eighth: 2.19 and 2.5, so those with one
    home, second, third, fourth = dict.fromkeys(homes)
    assert homes == [home, home, home, second, third, fourth, second, third]


def test_bounded_load_sends_all_to_the_default_where_the_mean_leaves_room_for_nobody() -> None:
    policy, view = by_name["chwbl"](PolicyArgs(10)), fleet(10)
    # 1.25 · 2 / 10 = 0.25 < 1: not even the idle have room, as users found with hundreds of endpoints
    assert len({send(policy, request(number, "ab"), view) for number in range(3)}) == 1


def test_bounded_load_looks_at_the_first_hundred_characters() -> None:
    policy, view = by_name["chwbl"](PolicyArgs(8)), fleet(8)
    # 100 characters are 25 tokens, 2 blocks: what differs in the third does not matter, in the second it may
    assert len({policy.choose(request(n, "ab" + tail), view) for n, tail in enumerate("cdefgh")}) == 1
    assert len({policy.choose(request(n, "a" + second), view) for n, second in enumerate("bcdefghijk")}) > 1


def test_bounded_load_by_session_keeps_a_session_and_spreads_prompts_that_begin_alike() -> None:
    policy, view = by_name["chwbl-session"](PolicyArgs(8)), fleet(8)
    homes = {name: policy.choose(request(0, "ab", session=name), view) for name in "abcdefghij"}
    assert len(set(homes.values())) > 1
    assert policy.choose(request(1, "xyz", session="c"), view) == homes["c"]
    assert policy.choose(request(2, "ab"), view) == by_name["chwbl"](PolicyArgs(8)).choose(request(2, "ab"), view)


def test_a_dead_endpoint_hands_its_keys_to_the_next_on_the_ring_and_gets_them_back() -> None:
    policy, view = by_name["chwbl"](PolicyArgs(4)), fleet(4)
    keys = ["".join(pair) for pair in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True)]
    before = [policy.choose(request(n, key), view) for n, key in enumerate(keys)]
    view.endpoints[2].alive = False
    during = [policy.choose(request(n, key), view) for n, key in enumerate(keys)]
    assert all(now == then for now, then in zip(during, before, strict=True) if then != 2)
    assert 2 not in during
    view.endpoints[2].alive = True
    assert [policy.choose(request(n, key), view) for n, key in enumerate(keys)] == before


def test_prompts_shorter_than_a_block_have_a_key_too() -> None:
    policy, view = by_name["chwbl"](PolicyArgs(8)), fleet(8)
    assert len({policy.choose(request(n, "", tail_tokens=5), view) for n in range(20)}) > 1


def test_smg_follows_the_last_holder_above_three_tenths() -> None:
    policy, view = by_name["smg"](ARGS), fleet(2)
    assert send(policy, request(0, "abc"), view) == 0
    assert send(policy, request(1, "xyzxyz"), view) == 1  # no match: fewest requests
    assert send(policy, request(2, "abcdefghi"), view) == 0  # 3 of 9 blocks, 48 / 144 = 0.33 > 0.3
    end(policy, request(0, "abc"), 0, view)
    end(policy, request(2, "abcdefghi"), 0, view)
    assert send(policy, request(3, "xyuvwpqrst"), view) == 0  # 2 of 10, 0.2: fewest requests, 0 against 1


def test_smg_goes_to_the_fewest_where_load_is_uneven_and_the_last_holder_moves() -> None:
    policy, view = by_name["smg"](ARGS), fleet(2)
    assert serve(policy, request(0, "abc"), view) == 0
    view.endpoints[0].in_flight = 64
    assert serve(policy, request(1, "abc"), view) == 0  # 64 − 0 is not more than 64
    view.endpoints[0].in_flight = 65
    assert serve(policy, request(2, "abc"), view) == 1  # 65 > 64 and 65 > 1.5 · 0
    view.endpoints[0].in_flight = 0
    assert serve(policy, request(3, "abc"), view) == 1  # affinity has moved over
    view.endpoints[0].in_flight, view.endpoints[1].in_flight = 230, 300
    assert serve(policy, request(4, "abc"), view) == 1  # 70 > 64, but 300 < 1.5 · 230 = 345


def test_smg_sends_distinct_prompts_one_after_another_to_the_first() -> None:
    policy, view = by_name["smg"](ARGS), fleet(2)
    assert {serve(policy, request(n, name), view) for n, name in enumerate("abcdefgh")} == {0}


def test_smg_takes_the_first_alive_for_a_dead_last_holder_and_does_not_remember() -> None:
    policy, view = by_name["smg"](PolicyArgs(3)), fleet(3)
    view.endpoints[0].in_flight = view.endpoints[2].in_flight = 1
    assert serve(policy, request(0, "abc"), view) == 1
    view.endpoints[1].alive = False
    assert serve(policy, request(1, "abc"), view) == 0
    view.endpoints[1].alive = True
    assert serve(policy, request(2, "abc"), view) == 1


def test_smg_forgets_only_when_it_sweeps() -> None:
    # 2^26 characters are 2^24 tokens; with blocks of 2^22 tokens that is 4 blocks
    policy, view = by_name["smg"](PolicyArgs(2, block_size=1 << 22)), fleet(2)
    view.endpoints[0].in_flight = 1
    assert serve(policy, request(0, "ab"), view) == 1
    assert serve(policy, request(1, "uvwx"), view) == 1
    view.endpoints[0].in_flight, view.endpoints[1].in_flight = 0, 1
    assert policy.choose(request(2, "ab"), view) == 1  # still known: 6 blocks, not swept yet
    view.now_s = 119.0
    assert policy.choose(request(3, "uvwx"), view) == 1
    view.now_s = 120.0
    assert policy.choose(request(4, "ab"), view) == 0  # swept to 4 blocks, "ab" was the oldest


@pytest.mark.parametrize("name", ["llmd-classic", "llmd-precise"])
def test_weighted_scores(name: str) -> None:
    policy, view = by_name[name](PolicyArgs(3)), fleet(3)
    view.caches = {0: [chain("ab")]}
    policy.sent(request(0, "ab"), 0, 0.0)
    first, second, third = view.endpoints
    first.kv_use, second.kv_use, third.kv_use = 0.9, 0.1, 0.5
    # prefix 2 · 2/4 = 1;   kv 0.1, 0.9, 0.5;   queues equal: 1 each;   sums 2.1, 1.9, 1.5
    assert policy.choose(request(1, "abcd"), view) == 0
    first.waiting, second.waiting = 1, 0
    third.waiting = 2
    # queues (2 − w) / 2: 0.5, 1, 0;   sums 1.6, 1.9, 0.5: one request in a queue outweighs half a prompt
    assert policy.choose(request(2, "abcd"), view) == 1
    second.alive = False
    assert policy.choose(request(3, "abcd"), view) == 0


def test_only_the_precise_variant_learns_of_an_eviction() -> None:
    view = fleet(2)
    view.endpoints[0].kv_use = 0.5
    for name, expected in (("llmd-classic", 0), ("llmd-precise", 1)):
        policy = by_name[name](ARGS)
        policy.sent(request(0, "ab"), 0, 0.0)  # and since evicted: no cache has it
        assert policy.choose(request(1, "ab"), view) == expected  # 2 + 0.5 + 1 against 1 + 1, or 0.5 + 1 against 1 + 1


@pytest.mark.parametrize("name", ["llmd-sticky", "llmd-sticky-precise"])
def test_sticky_until_the_time_to_first_token_is_eighteen_seconds_worse(name: str) -> None:
    policy, view = by_name[name](ARGS), fleet(2)
    view.caches = {0: [chain("abcd")]}
    policy.sent(request(0, "abcd"), 0, 0.0)
    compute(policy, request(0, "abcd"), 0, view)
    assert send(policy, request(1, "abcde"), view) == 0  # 4 of 5 blocks = 0.8; 16 tokens outstanding
    # 18 s · 15,928 tokens/s = 286,704 tokens
    policy.sent(request(2, "", tail_tokens=286_704 - 16), 0, 0.0)
    assert policy.choose(request(3, "abcde"), view) == 0  # 286,704: 18 s, not more
    policy.sent(request(4, "", tail_tokens=1), 0, 0.0)
    assert policy.choose(request(5, "abcde"), view) == 1  # 286,705 + 16 against 0 + 80


def test_below_four_fifths_the_fewest_uncached_tokens_decide() -> None:
    policy, view = by_name["llmd-sticky-precise"](ARGS), fleet(2)
    view.caches = {0: [chain("abc")]}
    policy.sent(request(0, "", tail_tokens=47), 0, 0.0)
    assert policy.choose(request(1, "abcd"), view) == 0  # 3/4 < 0.8: 47 + 16 = 63 against 0 + 64
    policy.sent(request(2, "", tail_tokens=2), 0, 0.0)
    assert policy.choose(request(3, "abcd"), view) == 1  # 49 + 16 = 65 against 64


def test_dynamo_adds_prefill_and_decode_in_blocks() -> None:
    policy, view = by_name["dynamo"](ARGS), fleet(2)
    view.caches = {0: [chain("abcd")]}
    # 0: prefill 4 − 4 = 0, decode 4: 4;   1: 4 + 4 = 8
    first = request(0, "abcd")
    assert send(policy, first, view) == 0
    # 0: active 0 + (4 − 4), in use still 4 distinct: 4;   1: 8
    second = request(1, "abcd")
    assert send(policy, second, view) == 0
    # a stranger of 2 blocks: 0: 2 + (4 + 2) = 8;   1: 2 + 2 = 4
    stranger = request(2, "xy")
    assert send(policy, stranger, view) == 1
    # 3 blocks more of the chat: 0: 3 + 7 = 10;   1: (2 + 7) + (2 + 7) = 18
    assert policy.choose(request(3, "abcdefg"), view) == 0
    compute(policy, stranger, 1, view)
    # another of 1 block: 0: 1 + (4 + 1) = 6;   1: 1 + (2 + 1) = 4
    assert policy.choose(request(4, "z"), view) == 1
    for each in (first, second):
        end(policy, each, 0, view)
    # 0 is empty again: 1 + 1 = 2 against 4
    assert policy.choose(request(5, "z"), view) == 0


def test_dynamo_counts_a_prompt_as_outstanding_from_dispatch_to_the_first_token() -> None:
    policy, view = by_name["dynamo"](ARGS), fleet(2)
    homes = [send(policy, request(n, name * 8), view) for n, name in enumerate("pqrs")]
    assert Counter(homes) == {0: 2, 1: 2}  # a burst before any first token is spread


PERF = PerfModel(base_s=0.0, prefill_tokens_per_s=16.0, quad_s_per_token2=0.0)
"""A block a second."""


def test_preble_exploits_where_more_is_cached_than_not() -> None:
    policy, view = by_name["preble"](PolicyArgs(2, perf=PERF)), fleet(2)
    assert serve(policy, request(0, "abc"), view) == 0
    # 3 cached > 2 uncached: exploit, though 0 carries 3 s and 1 nothing
    assert serve(policy, request(1, "abcde"), view) == 0
    # "ab" of "abuv": 2 is not more than 2: explore; 0 carries 3 + 2 = 5 s
    assert serve(policy, request(2, "abuv"), view) == 1
    # 0 carries 5 s, 1 carries 4: the next stranger goes to 1, then 1 carries 6
    assert serve(policy, request(3, "xy"), view) == 1
    assert serve(policy, request(4, "zw"), view) == 0


def test_preble_exploits_the_least_loaded_of_those_that_have_it() -> None:
    policy, view = by_name["preble"](PolicyArgs(3, perf=PERF)), fleet(3)
    for number, endpoint in enumerate((0, 0, 1)):
        policy.sent(request(number, "abc"), endpoint, 0.0)
        policy.ended(request(number, "abc"), endpoint, 0.0)
    assert policy.choose(request(3, "abc"), view) == 1  # 6 s on 0, 3 s on 1, and 2 does not have it


def test_preble_forgets_load_after_three_minutes() -> None:
    policy, view = by_name["preble"](PolicyArgs(2, perf=PERF)), fleet(2)
    assert serve(policy, request(0, "abcdefgh"), view) == 0
    view.now_s = 100.0
    assert serve(policy, request(1, "xyz"), view) == 1
    view.now_s = 180.0
    assert policy.choose(request(2, "u"), view) == 1  # 8 s against 3 s
    view.now_s = 180.1
    assert policy.choose(request(3, "u"), view) == 0  # 0 against 3


def test_preble_counts_the_answers_that_are_being_written() -> None:
    policy, view = by_name["preble"](PolicyArgs(2, perf=PERF)), fleet(2)
    on = request(0, "a")
    assert send(policy, on, view) == 0  # 1 s, and 1 answer · 45 tokens · 0.15 s = 6.75 s
    assert serve(policy, request(1, "bcdef"), view) == 1  # 5 s, and an answer of 16 tokens: the mean is 30.5 now
    assert policy.choose(request(2, "z"), view) == 1  # 1 s + 30.5 · 0.15 s = 5.6 s against 5 s
    compute(policy, on, 0, view)
    view.now_s = 1.5
    end(policy, on, 0, view)  # 15 gaps in 1.5 s
    assert policy.choose(request(3, "z"), view) == 0  # 1 s against 5 s


def test_preble_spares_what_was_used_lately() -> None:
    # caches of 4 blocks; 0 computed 3, 1 computed 3.5 of which a half block is none of the cache's
    policy, view = by_name["preble"](PolicyArgs(2, capacity_tokens=4 * BLOCK_SIZE, perf=PERF)), fleet(2)
    policy.sent(request(0, "abc"), 0, 0.0)
    policy.ended(request(0, "abc"), 0, 0.0)
    policy.sent(request(1, "x", tail_tokens=8), 1, 0.0)
    policy.ended(request(1, "x", tail_tokens=8), 1, 0.0)
    # 2 more blocks: on 0 load 3 s + eviction min(2, 3 + 2 − 4) = 1 s; on 1 load 1.5 s + 0
    assert serve(policy, request(2, "pq"), view) == 1
    # 1.5 more: on 0 load 3 + min(1.5, 0.5) = 3.5; on 1 load 3.5 + min(1.5, 3.5 + 1.5 − 4 = 1) = 4.5
    assert policy.choose(request(3, "r", tail_tokens=8), view) == 0


def test_preble_goes_by_the_last_two_hundred_answers() -> None:
    window = Window(PERF)
    window.grow(1)
    lengths = [11] * 100 + [31] * 200
    for number, output in enumerate(lengths):
        answered = request(number, output=output)
        window.first_token(answered, 0, 0.0, 0)
        window.ended(answered, 0, 3.0)
    assert window.answer_tokens == 31
    assert window.endpoints[0].gap_s == pytest.approx(0.1)  # 3 s for 30 gaps


def test_preble_learns_nothing_from_a_single_token_or_from_what_never_began() -> None:
    window = Window(PERF)
    window.grow(1)
    window.first_token(request(0, output=1), 0, 0.0, 0)
    window.ended(request(0, output=1), 0, 9.0)
    window.ended(request(1, output=100), 0, 9.0)
    assert (window.answer_tokens, window.endpoints[0].gap_s) == (45, 0.15)
