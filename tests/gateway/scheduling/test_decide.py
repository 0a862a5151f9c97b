"""The cost in seconds, on cases small enough to compute by hand; and what must hold for all."""

from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import PerfModel
from gateway.scheduling import Candidate, Demand, behind, costs_s, decide_by_cost, expected_cached_tokens, terms_of
from gateway.scheduling.decide import MOST_REFINED
from gateway.types import Reason

SPEED = PerfModel(base_s=0.01, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.02)


def candidate(name: str, cached: int = 0, queued: int = 0, kv_use: float | None = None) -> Candidate:
    return Candidate(name, cached, cached, queued, SPEED, kv_use)


def choose(*candidates: Candidate, prompt_tokens: int = 1000, chance: float = 0.0, near_tie_s: float = 0.002) -> str:
    return decide_by_cost(
        candidates,
        {},
        demand=Demand(prompt_tokens, 100),
        near_tie_s=near_tie_s,
        chance=chance,
    ).endpoint_id


def test_the_terms_are_the_seconds_of_the_formula() -> None:
    speed = PerfModel(base_s=0.01, prefill_tokens_per_s=1000.0, quad_s_per_token2=1e-6, itl_s=0.02)
    terms = terms_of(
        Candidate("a", 400, 400, 500, speed, 0.5, recent_tokens=2000), Demand(1000, 100, behind=2.5, wanted_again=0.5)
    )
    assert terms.wait_s == pytest.approx(0.5)
    assert terms.prefill_s == pytest.approx(0.01 + 0.6 + 1e-6 * 600 * 1000)
    assert terms.decode_pressure_s == pytest.approx(0.02 * 1.0 * 100 / 500)
    assert terms.delays_s == pytest.approx(1.2 * 2.5)
    assert terms.displacement_s == pytest.approx(1.2 * 0.5)
    assert terms.crowding_s == pytest.approx(2000 / 16 * (1 / 1000 + 1e-6 * 1000))
    assert terms.cost_s == pytest.approx(0.5 + 1.21 + 0.004 + 3.0 + 0.6 + 0.25)


def test_a_prompt_goes_where_its_prefix_is() -> None:
    assert choose(candidate("cold"), candidate("warm", cached=800)) == "warm"


def test_a_prefix_is_left_where_waiting_for_it_costs_more_than_computing_elsewhere() -> None:
    warm_but_busy = candidate("warm", cached=800, queued=900)
    assert choose(candidate("cold"), warm_but_busy) == "cold"


def test_thirty_percent_of_a_long_prompt_outweighs_ninety_of_a_short_one() -> None:
    assert choose(candidate("a", cached=30_000), candidate("b", queued=20_000), prompt_tokens=100_000) == "a"
    assert choose(candidate("a", cached=180, queued=1000), candidate("b"), prompt_tokens=200) == "b"


def test_a_full_kv_cache_pushes_requests_away_but_not_from_all_that_they_need() -> None:
    full = candidate("full", cached=100, kv_use=1.0)
    assert choose(full, candidate("free", kv_use=0.1)) == "free"
    assert choose(full, candidate("full too", kv_use=0.99)) == "full"
    assert choose(candidate("full", cached=900, kv_use=1.0), candidate("free", kv_use=0.1)) == "full"


def test_the_fuller_the_fleet_the_more_a_prefix_is_worth() -> None:
    pair = [candidate("warm, waits", cached=800, queued=1000), candidate("cold", queued=100)]
    decide = partial(decide_by_cost, pair, {}, near_tie_s=0.0, chance=0.0)
    assert decide(demand=Demand(1000, 1)).endpoint_id == "cold"
    assert decide(demand=Demand(1000, 1, behind=1.0)).endpoint_id == "warm, waits"


def test_as_many_come_behind_as_wait_at_an_average_endpoint_but_no_more_than_are_there() -> None:
    waiting = [msgspec.structs.replace(candidate(str(n), queued=n), queued_requests=9) for n in (3000, 1000)]
    assert behind(waiting, usual_tokens=500) == pytest.approx(4.0)
    assert behind(waiting, usual_tokens=0.0) == 0.0
    one_for_minutes = msgspec.structs.replace(candidate("long", queued=1_000_000), queued_requests=1)
    assert behind([one_for_minutes, candidate("idle")], usual_tokens=500) == 0.5


def test_near_ties_are_shared_out_by_chance_and_clear_wins_are_not() -> None:
    pair = (candidate("a"), candidate("b"))
    assert {choose(*pair, chance=0.1), choose(*pair, chance=0.9)} == {"a", "b"}
    clear = (candidate("a", cached=500), candidate("b"))
    assert {choose(*clear, chance=c / 10) for c in range(10)} == {"a"}


def test_replicas_that_see_the_same_figures_do_not_herd() -> None:
    picks = [choose(*(candidate(n) for n in "abcd"), chance=(i + 0.5) / 400) for i in range(400)]
    counts = [picks.count(name) for name in "abcd"]
    assert max(counts) / (sum(counts) / 4) <= 1.3


@pytest.mark.parametrize(
    ("cached", "chosen_reason"),
    [((0, 0), Reason.NO_PREFIX), ((500, 0), Reason.PREFIX_HIT)],
)
def test_the_reason_says_what_the_prefix_did(cached: tuple[int, int], chosen_reason: Reason) -> None:
    decision = decide_by_cost(
        [candidate("a", cached=cached[0]), candidate("b", cached=cached[1])],
        {},
        demand=Demand(1000, 1),
        near_tie_s=0.0,
        chance=0.0,
    )
    assert decision.reason is chosen_reason


def test_a_better_prefix_elsewhere_is_named_when_it_is_passed_by() -> None:
    decision = decide_by_cost(
        [candidate("a"), candidate("b", cached=800, queued=5000)],
        {},
        demand=Demand(1000, 1),
        near_tie_s=0.0,
        chance=0.0,
    )
    assert (decision.endpoint_id, decision.reason) == ("a", Reason.PREFIX_ELSEWHERE)


@pytest.mark.parametrize(
    ("matched", "prompt", "block", "expected"),
    [(64, 64, 16, 48), (64, 65, 16, 64), (0, 10, 16, 0), (48, 200, 32, 32), (16, 0, 16, 0), (5, 5, 1, 4)],
)
def test_a_prompt_is_never_expected_to_be_reused_whole(matched: int, prompt: int, block: int, expected: int) -> None:
    assert expected_cached_tokens(matched, prompt, block) == expected


candidates_lists = st.lists(
    st.builds(
        Candidate,
        endpoint_id=st.uuids().map(str),
        cached_tokens=st.floats(0, 5000),
        expected_cached_tokens=st.integers(0, 5000),
        queued_tokens=st.integers(0, 100_000),
        speed=st.builds(
            PerfModel,
            base_s=st.floats(0, 1),
            prefill_tokens_per_s=st.floats(1, 1e5),
            quad_s_per_token2=st.floats(0, 1e-6),
            itl_s=st.floats(0, 1),
        ),
        kv_use=st.none() | st.floats(0, 1),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda c: c.endpoint_id,
)


@given(candidates_lists, st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_the_chosen_endpoint_is_within_the_near_tie_of_the_best(
    candidates: list[Candidate], chance: float, near_tie_s: float
) -> None:
    decision = decide_by_cost(candidates, {}, demand=Demand(5000, 10), near_tie_s=near_tie_s, chance=chance)
    terms = {c.endpoint_id: terms_of(c, Demand(5000, 10)).cost_s for c in decision.candidates}
    assert terms[decision.endpoint_id] <= min(terms.values()) + near_tie_s + 1e-9
    assert set(terms) == {c.endpoint_id for c in candidates}


@given(candidates_lists, st.integers(0, 10_000), st.integers(0, 1000))
def test_costs_are_the_sums_of_their_terms(candidates: list[Candidate], prompt: int, output: int) -> None:
    demand = Demand(prompt, output, behind=prompt / 1000, wanted_again=0.3)
    sums = [terms_of(candidate, demand).cost_s for candidate in candidates]
    assert costs_s(candidates, demand) == pytest.approx(sums)


def gone(candidate: Candidate) -> Candidate:
    """A closer look: nothing of what was known is left."""
    return msgspec.structs.replace(candidate, cached_tokens=0.0, expected_cached_tokens=0, at_best=False)


def test_a_prefix_that_is_probably_gone_does_not_draw_a_prompt() -> None:
    pair = [candidate("was here", cached=900, queued=100), candidate("is here", cached=300)]
    decide = partial(decide_by_cost, pair, {}, demand=Demand(1000, 1), near_tie_s=0.0, chance=0.0)
    assert decide().endpoint_id == "was here"
    doubted = decide(refine=lambda one: gone(one) if one.endpoint_id == "was here" else one)
    assert doubted.endpoint_id == "is here"
    assert [one.cached_tokens for one in doubted.candidates] == [0, 300]


@pytest.mark.parametrize("backends", [MOST_REFINED, MOST_REFINED + 1, 500])
def test_500_backends_latency_only_so_many_are_looked_at_closer_however_large_the_fleet(
    backends: int,
) -> None:
    looked_at: list[str] = []

    def look(one: Candidate) -> Candidate:
        looked_at.append(one.endpoint_id)
        return msgspec.structs.replace(one, at_best=False)

    everyone = [candidate(f"e{number}", cached=500) for number in range(backends)]
    chosen = set()
    for chance in (0.0, 0.3, 0.6, 0.9):
        looked_at.clear()
        decision = decide_by_cost(
            everyone,
            {},
            demand=Demand(1000, 1),
            near_tie_s=0.002,
            chance=chance,
            refine=look,
        )
        assert len(looked_at) == MOST_REFINED
        assert {one.endpoint_id for one in decision.candidates if not one.at_best} == set(looked_at)
        assert len(decision.candidates) == backends
        chosen.add(decision.endpoint_id)
    assert len(chosen) == 4  # equals are taken from different places


@given(st.lists(st.integers(0, 3000), min_size=MOST_REFINED + 1, max_size=100), st.floats(0, 1, exclude_max=True))
def test_the_cheapest_is_found_however_many_there_are(queued: list[int], chance: float) -> None:
    everyone = [candidate(f"e{number}", queued=tokens) for number, tokens in enumerate(queued)]
    decision = decide_by_cost(everyone, {}, demand=Demand(1000, 1), near_tie_s=0.0, chance=chance)
    assert decision.chosen.queued_tokens == min(queued)
