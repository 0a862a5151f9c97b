"""Whether two endpoints are cheaper than one: in seconds, and to the second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backends import PerfModel
from gateway.scheduling import (
    Candidate,
    Demand,
    SplitPart,
    SplitReason,
    as_handed_over,
    carried_tokens,
    cheapest_decode,
    split_terms,
)
from gateway.scheduling.splitting import STALL, USUAL_BATCH, answers_s, as_json, in_short

SPEED = PerfModel(base_s=0.02, prefill_tokens_per_s=10_000, quad_s_per_token2=0.0, itl_s=0.02)
WIRE = PerfModel(base_s=0.03, prefill_tokens_per_s=50_000, quad_s_per_token2=0.0)
ASKED = Demand(prompt_tokens=8_000, expected_output_tokens=256)


def at(name: str, *, cached: float = 0, queued: int = 0, requests: int = 0, kv_use: float | None = None) -> Candidate:
    """An endpoint as the decision sees it."""
    return Candidate(name, cached, int(cached), queued, SPEED, kv_use, queued_requests=requests)


def pays(prefill: Candidate, decode: Candidate, alone: Candidate | None = None) -> bool:
    """Whether the split is cheaper than `alone`, or than who answers alone."""
    return split_terms((prefill, ASKED), (decode, WIRE), (alone or decode, ASKED)).pays


def test_the_sides_are_sums_of_what_they_are_said_to_be() -> None:
    prefill, decode = at("p", cached=2_000, queued=5_000), at("d", cached=3_000, requests=10)
    terms = split_terms((prefill, ASKED), (decode, WIRE), (decode, ASKED))
    assert terms.prefill_s == pytest.approx(0.5 + 0.02 + 0.6)
    assert terms.transfer_s == pytest.approx(0.03 + 5_000 / 50_000)
    assert terms.answers_s == pytest.approx(256 * 0.02 / USUAL_BATCH * 10)
    assert terms.unsplit_s == pytest.approx(0.02 + 0.5)
    assert terms.unsplit_stall_s == pytest.approx(STALL * 0.5 * 10)
    assert terms.split_cost_s == pytest.approx(1.12 + 0.13 + 0.4)
    assert terms.unsplit_cost_s == pytest.approx(0.52 + 0.625 + 0.4)


def test_an_idle_endpoint_does_both_since_nothing_is_to_be_carried() -> None:
    assert not pays(at("p"), at("d"))


def test_answers_under_way_make_it_pay_to_compute_a_long_prompt_elsewhere() -> None:
    assert pays(at("p"), at("d", requests=30))


def test_a_short_rest_is_computed_where_the_answer_is_made() -> None:
    assert not pays(at("p"), at("d", cached=7_990, requests=30))


def test_a_prefix_that_was_computed_before_makes_it_pay() -> None:
    assert pays(at("p", cached=7_936), at("d"))


def test_an_adapter_that_both_would_load_first_is_no_reason_to_send_the_prompt_elsewhere() -> None:
    def loading(one: Candidate) -> Candidate:
        return replace(one, adapter_load_s=2.0, adapter_evicts_s=0.5)

    assert not pays(loading(at("p")), loading(at("d")))
    terms = split_terms((loading(at("p")), ASKED), (loading(at("d")), WIRE), (loading(at("d")), ASKED))
    assert terms.decode_wait_s == pytest.approx(2.5)
    assert terms.prefill_s == pytest.approx(terms.unsplit_s)


def test_a_long_queue_before_the_prompt_does_not_pay() -> None:
    assert not pays(at("p", queued=100_000), at("d", requests=30))


def test_where_nobody_can_do_both_it_always_pays() -> None:
    terms = split_terms((at("p", queued=10**7), ASKED), (at("d"), WIRE), None)
    assert terms.unsplit_cost_s is None
    assert terms.pays


def test_who_answers_is_the_least_loaded_and_of_equals_any() -> None:
    idle, busy, full = at("idle"), at("busy", requests=40), at("full", kv_use=0.97)
    chosen = {
        cheapest_decode([busy, full, idle, at("other")], ASKED, lambda _: WIRE, 0.001, chance).endpoint_id
        for chance in (0.0, 0.3, 0.6, 0.99)
    }
    assert chosen == {"idle", "other"}


def test_what_lies_there_already_need_not_be_carried() -> None:
    has, idle = at("has", cached=7_000, requests=2), at("idle")
    assert cheapest_decode([idle, has], ASKED, lambda _: WIRE, 0.0, 0.5) is has
    assert carried_tokens(has, ASKED) == 1_000


def test_who_was_handed_a_prompt_has_nothing_left_to_compute_and_reports_what_the_other_found() -> None:
    handed = as_handed_over(at("d", cached=64), 8_000, 4_096)
    assert (handed.cached_tokens, handed.expected_cached_tokens, handed.known_tokens) == (8_000, 4_096, 64)


def test_a_split_explains_itself() -> None:
    prefill, decode = at("p"), at("d", requests=30)
    terms = split_terms((prefill, ASKED), (decode, WIRE), (decode, ASKED))
    told = as_json(SplitPart(prefill, terms, 8_000, SplitReason.PAYS))
    assert told["prefill_endpoint"] == "p"
    pays_off = SplitPart(prefill, terms, 8_000, SplitReason.PAYS)
    assert in_short(pays_off).startswith("p computes the prompt, which saves ")
    needed = SplitPart(prefill, split_terms((prefill, ASKED), (decode, WIRE), None), 8_000, SplitReason.NEEDED)
    assert in_short(needed) == "p computes the prompt, since nobody can do both"
    assert told["reason"] == "pays"
    assert told["split_cost_s"] == terms.split_cost_s
    assert set(told["terms"]) == set(terms.__struct_fields__)  # type: ignore[call-overload]


COUNTS = st.integers(0, 200_000)


@given(
    cached=COUNTS,
    queued=COUNTS,
    requests=st.integers(0, 500),
    prompt=st.integers(1, 200_000),
    answer=st.integers(1, 4096),
)
def test_no_term_is_negative_and_more_load_is_never_cheaper(
    cached: int, queued: int, requests: int, prompt: int, answer: int
) -> None:
    asked = Demand(prompt, answer, behind=1.5, wanted_again=0.5)
    some, more = (
        at("d", cached=cached, queued=queued, requests=requests),
        at("d", queued=queued + 1, requests=requests + 1),
    )
    terms = split_terms((some, asked), (some, WIRE), (some, asked))
    assert all(getattr(terms, name) >= 0 for name in terms.__struct_fields__)
    dearer = split_terms((more, asked), (more, WIRE), (more, asked))
    assert dearer.split_cost_s > terms.split_cost_s
    assert answers_s(more, asked) > answers_s(some, asked)
