"""What a decision is regretted by, on cases small enough to compute by hand; and what must hold for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import PerfModel
from gateway.scheduling import Candidate, Decision, Demand, Evidence, decide_by_cost, hindsight, terms_of
from gateway.types import Reason

SPEED = PerfModel(base_s=0.1, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.02)
"""A thousand tokens a second, so that tokens read as milliseconds."""


def candidate(name: str, cached: float = 0, queued: int = 0, kv_use: float | None = None) -> Candidate:
    return Candidate(name, cached, int(cached), queued, SPEED, kv_use, at_best=False)


def decision(*candidates: Candidate, prompt_tokens: int = 1000, output_tokens: int = 100) -> Decision:
    """One for the first of them."""
    return Decision(candidates[0], Reason.PREFIX_HIT, candidates, {}, Demand(prompt_tokens, output_tokens))


WARM = candidate("warm", cached=800, queued=300)
"""0.3 s of waiting, 0.1 + 0.2 s of prefill: 0.6 s."""
COLD = candidate("cold")
"""0.1 + 1.0 s of prefill: 1.1 s."""


def test_a_decision_that_found_all_as_it_was_told_is_not_regretted() -> None:
    found = hindsight(decision(WARM, COLD), Evidence(reported_cached_tokens=800, ttft_s=0.6))
    assert found.predicted_ttft_s == pytest.approx(0.6)
    assert found.actual.cost_s == pytest.approx(0.6)
    assert found.least_other_s == pytest.approx(1.1)
    assert found.regret_s == 0.0


def test_a_prefix_that_was_gone_is_regretted_by_what_the_other_would_have_cost_less() -> None:
    found = hindsight(decision(WARM, COLD), Evidence(reported_cached_tokens=0))
    assert found.actual.prefill_s == pytest.approx(1.1)
    assert found.actual.wait_s == pytest.approx(0.3)
    assert found.regret_s == pytest.approx(1.4 - 1.1)


def test_what_the_first_token_took_beyond_the_prefill_was_waiting() -> None:
    found = hindsight(decision(WARM, COLD), Evidence(reported_cached_tokens=800, ttft_s=2.0))
    assert found.actual.prefill_s == pytest.approx(0.3)
    assert found.actual.wait_s == pytest.approx(1.7)
    assert found.regret_s == pytest.approx(2.0 - 1.1)


def test_a_first_token_sooner_than_the_model_can_is_judged_by_the_model_as_the_others_are() -> None:
    found = hindsight(decision(COLD, WARM), Evidence(reported_cached_tokens=0, ttft_s=0.2))
    assert found.actual.wait_s == 0.0
    assert found.actual.prefill_s == pytest.approx(1.1)
    assert found.regret_s == pytest.approx(1.1 - 0.6)


def test_where_nothing_is_known_the_decision_is_held_against_itself() -> None:
    found = hindsight(decision(COLD, WARM), Evidence())
    assert found.actual == found.predicted
    assert found.regret_s == pytest.approx(0.5)


def test_terms_that_nothing_was_learned_of_stay_as_decided() -> None:
    full = candidate("full", kv_use=0.5)
    found = hindsight(decision(full, COLD), Evidence(reported_cached_tokens=0, ttft_s=1.1))
    assert found.actual.decode_pressure_s == pytest.approx(0.02 * 1.0 * 100 / 500)
    assert found.regret_s == pytest.approx(0.004)


def test_who_had_no_choice_regrets_nothing() -> None:
    found = hindsight(decision(COLD), Evidence(ttft_s=60.0))
    assert (found.least_other_s, found.regret_s) == (None, 0.0)


def test_the_chosen_one_is_no_other_even_where_it_was_looked_at_anew() -> None:
    at_its_best = candidate("warm", cached=1000)
    found = hindsight(Decision(WARM, Reason.POLICY, [at_its_best, COLD], {}, Demand(1000, 100)), Evidence())
    assert found.least_other_s == pytest.approx(1.1)


speeds = st.builds(
    PerfModel,
    base_s=st.floats(0, 1),
    prefill_tokens_per_s=st.floats(1, 1e6),
    quad_s_per_token2=st.floats(0, 1e-6),
    itl_s=st.floats(0, 0.1),
)
fleets = st.lists(
    st.builds(
        lambda cached, queued, kv_use, recent, speed: Candidate("", cached, int(cached), queued, speed, kv_use, recent),
        st.floats(0, 5000),
        st.integers(0, 100_000),
        st.none() | st.floats(0, 1),
        st.floats(0, 1e6),
        speeds,
    ),
    min_size=1,
    max_size=50,
)
evidence = st.builds(Evidence, st.none() | st.integers(0, 5000), st.none() | st.floats(0, 100))


def decided(fleet: list[Candidate], chance: float, near_tie_s: float = 0.002) -> Decision:
    named = [Candidate(f"e{at}", *(getattr(one, name) for name in FIELDS)) for at, one in enumerate(fleet)]
    return decide_by_cost(named, {}, demand=Demand(5000, 256), near_tie_s=near_tie_s, chance=chance)


FIELDS = ("cached_tokens", "expected_cached_tokens", "queued_tokens", "speed", "kv_use", "recent_tokens")


@given(fleets, st.floats(0, 1, exclude_max=True), evidence)
def test_regret_is_what_the_terms_of_all_say_and_never_negative(
    fleet: list[Candidate], chance: float, seen: Evidence
) -> None:
    made = decided(fleet, chance)
    found = hindsight(made, seen)
    others = [terms_of(one, Demand(5000, 256)).cost_s for one in made.candidates if one.endpoint_id != made.endpoint_id]
    least_s = min([found.actual.cost_s, *others])
    assert found.regret_s == pytest.approx(found.actual.cost_s - least_s, rel=1e-9, abs=1e-9)
    assert found.regret_s >= 0
    if seen.ttft_s is not None:
        ttft_s = found.actual.wait_s + found.actual.prefill_s
        assert ttft_s >= seen.ttft_s or ttft_s == pytest.approx(seen.ttft_s)


@given(fleets, st.floats(0, 1, exclude_max=True))
def test_without_news_nobody_regrets_more_than_a_near_tie(fleet: list[Candidate], chance: float) -> None:
    found = hindsight(decided(fleet, chance), Evidence())
    assert found.regret_s <= 0.002 + 1e-9 * found.actual.cost_s


@given(fleets, st.floats(0, 1, exclude_max=True), st.lists(st.integers(0, 5000), min_size=2, max_size=2))
def test_the_less_was_cached_the_more_it_is_regretted(
    fleet: list[Candidate], chance: float, reported: list[int]
) -> None:
    made = decided(fleet, chance)
    less, more = (hindsight(made, Evidence(tokens)).regret_s for tokens in sorted(reported))
    assert less >= more
