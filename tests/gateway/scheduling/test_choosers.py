"""Policies by name: what each looks at, and what is kept while one is only watched."""

from collections import Counter
from collections.abc import Callable
from itertools import cycle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import PerfModel
from gateway.scheduling import Candidate, Demand, Question, chooser_of, observing
from gateway.types import Reason

SPEED = PerfModel(base_s=0.01, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.02)
PLAIN = ("round_robin", "least_requests", "random")
CHANCES = (0.1, 0.3, 0.6, 0.9)


def candidate(name: str, cached: int = 0, requests: int = 0) -> Candidate:
    return Candidate(name, cached, cached, 0, SPEED, queued_requests=requests)


def asked(
    *candidates: Candidate,
    chance: Callable[[], float] = lambda: 0.0,
    refine: Callable[[Candidate], Candidate] = lambda one: one,
) -> Question:
    return Question(
        candidates,
        {},
        demand=Demand(1000, 10),
        chance=chance,
        refine=refine,
    )


WARM_BUSY, COLD_IDLE = candidate("warm", cached=800, requests=3), candidate("cold")


def test_round_robin_takes_turns_whatever_is_held_where() -> None:
    choose = chooser_of("round_robin", 0.002)
    decisions = [choose(asked(WARM_BUSY, COLD_IDLE)) for _ in range(4)]
    assert [decision.endpoint_id for decision in decisions] == ["warm", "cold", "warm", "cold"]


def test_each_server_has_turns_of_its_own() -> None:
    first, second = chooser_of("round_robin", 0.0), chooser_of("round_robin", 0.0)
    first(asked(WARM_BUSY, COLD_IDLE))
    assert second(asked(WARM_BUSY, COLD_IDLE)).endpoint_id == "warm"


def test_least_requests_goes_where_the_fewest_are_outstanding_and_shares_equals_out() -> None:
    three = (candidate("busy", cached=900, requests=2), candidate("a", requests=1), candidate("b", requests=1))
    choose, chances = chooser_of("least_requests", 0.002), cycle(CHANCES)
    chosen = Counter(choose(asked(*three, chance=lambda: next(chances))).endpoint_id for _ in range(8))
    assert chosen == {"a": 4, "b": 4}


def test_random_takes_all_of_them_equally_often() -> None:
    choose, chances = chooser_of("random", 0.002), cycle(CHANCES)
    chosen = Counter(choose(asked(WARM_BUSY, COLD_IDLE, chance=lambda: next(chances))).endpoint_id for _ in range(8))
    assert chosen == {"warm": 4, "cold": 4}


def test_prefix_goes_where_the_prefix_is() -> None:
    decision = chooser_of("prefix", 0.002)(asked(COLD_IDLE, WARM_BUSY))
    assert (decision.endpoint_id, decision.reason) == ("warm", Reason.PREFIX_HIT)


@pytest.mark.parametrize("policy", PLAIN)
def test_plain_policies_say_that_they_ignored_prefixes_and_look_closer_at_whom_they_chose(policy: str) -> None:
    def doubted(one: Candidate) -> Candidate:
        return msgspec.structs.replace(one, cached_tokens=0.0, expected_cached_tokens=0, at_best=False)

    pair = candidate("a", cached=900), candidate("b", cached=900)
    decision = chooser_of(policy, 0.002)(asked(*pair, refine=doubted))
    assert decision.reason is Reason.POLICY
    assert decision.expected_cached_tokens == 0
    assert [one.endpoint_id for one in decision.candidates if not one.at_best] == [decision.endpoint_id]


def test_a_policy_of_another_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        chooser_of("sticky", 0.0)


def test_who_is_only_watched_does_not_route() -> None:
    choose = observing(chooser_of("round_robin", 0.002), chooser_of("prefix", 0.002))
    made = [choose(asked(COLD_IDLE, WARM_BUSY)) for _ in range(2)]
    assert [(one.endpoint_id, one.reason) for one in made] == [("cold", Reason.POLICY), ("warm", Reason.POLICY)]
    watched = [one.observed for one in made if one.observed is not None]
    assert [(one.endpoint_id, one.expected_cached_tokens) for one in watched] == [("warm", 800)] * 2
    assert [one.agrees for one in made] == [False, True]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5)), min_size=1, max_size=8),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(PLAIN),
)
def test_plain_policies_always_choose_one_of_those_who_may_and_the_busiest_only_among_equals(
    holdings: list[tuple[int, int]], chance: float, policy: str
) -> None:
    everyone = [candidate(f"e{at}", cached, requests) for at, (cached, requests) in enumerate(holdings)]
    decision = chooser_of(policy, 0.0)(asked(*everyone, chance=lambda: chance))
    assert decision.chosen in everyone
    if policy == "least_requests":
        assert decision.chosen.queued_requests == min(one.queued_requests for one in everyone)
