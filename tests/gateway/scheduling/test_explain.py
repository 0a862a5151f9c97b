"""Decisions in words, and short: what is kept of a choice among hundreds."""

import pytest
from msgspec.structs import fields

from backends import PerfModel
from gateway.scheduling import Candidate, Decision, Demand, Filtered, Terms, decision_as_json, shortened
from gateway.scheduling.explain import FILTERED_WORDS, MOST_SHOWN, REASON_WORDS, in_words
from gateway.types import Reason

SPEED = PerfModel(base_s=0.0, prefill_tokens_per_s=1000.0, quad_s_per_token2=0.0, itl_s=0.02)


def fleet(count: int) -> list[Candidate]:
    """Endpoints of which each waits a second longer than the one before, the longest first."""
    return [Candidate(f"e{at}", 0, 0, 1000 * at, SPEED) for at in reversed(range(count))]


def decision(candidates: list[Candidate], chosen: str, filtered: dict[str, Filtered] | None = None) -> Decision:
    (taken,) = (one for one in candidates if one.endpoint_id == chosen)
    return Decision(taken, Reason.NO_PREFIX, candidates, filtered or {}, Demand(1000, 100))


def test_every_reason_has_words() -> None:
    assert set(REASON_WORDS) == set(Reason)
    assert set(FILTERED_WORDS) == set(Filtered)


def test_the_cheapest_are_kept_in_order_and_the_others_counted() -> None:
    short = shortened(decision(fleet(500), "e0"))
    assert [one.endpoint_id for one in short.decision.candidates] == [f"e{at}" for at in range(MOST_SHOWN)]
    assert short.left_out == 500 - MOST_SHOWN
    assert short.least_left_out_s == pytest.approx(MOST_SHOWN + 1.0)


def test_the_chosen_one_and_the_one_that_is_only_watched_are_kept_however_dear() -> None:
    candidates = fleet(500)
    made = decision(candidates, "e400")
    watched = Decision(candidates[0], Reason.POLICY, (), {}, Demand(1000, 100))
    short = shortened(Decision(made.chosen, made.reason, candidates, {}, Demand(1000, 100), observed=watched))
    kept = [one.endpoint_id for one in short.decision.candidates]
    assert kept[MOST_SHOWN:] == ["e400", "e499"]
    assert short.left_out == 500 - MOST_SHOWN - 2
    observed = decision_as_json(short)["observed"]
    assert isinstance(observed, dict)
    assert observed["endpoint"] == "e499"


def test_of_many_that_were_filtered_some_are_named_and_the_others_counted_by_reason() -> None:
    filtered = {f"f{at}": Filtered.DRAINING if at % 2 else Filtered.UNHEALTHY for at in range(MOST_SHOWN + 10)}
    short = shortened(decision(fleet(1), "e0", filtered))
    assert len(short.decision.filtered) == MOST_SHOWN
    assert short.filtered_left_out == {Filtered.DRAINING: 5, Filtered.UNHEALTHY: 5}
    shown = decision_as_json(short)
    assert shown["filtered_others"] == {"draining": 5, "unhealthy": 5}
    assert shown["filtered_why"] == {why.value: FILTERED_WORDS[why] for why in (Filtered.DRAINING, Filtered.UNHEALTHY)}


def test_every_term_of_the_cost_is_told() -> None:
    terms = decision_as_json(shortened(decision(fleet(2), "e0")))["terms"]
    assert isinstance(terms, dict)
    assert set(terms["e0"]) == {field.name for field in fields(Terms)} | {"cost_s", "at_best"}
    assert terms["e1"]["cost_s"] == pytest.approx(2.0)


def test_the_words_say_how_much_dearer_or_cheaper_the_next_was() -> None:
    assert in_words(shortened(decision(fleet(3), "e0"))).endswith("it costs 1.000 s, 1.000 s less than the next, e1")
    assert in_words(shortened(decision(fleet(3), "e2"))).endswith(
        "it costs 3.000 s, 2.000 s more than the cheapest, e0"
    )
    assert in_words(shortened(decision(fleet(1), "e0"))).endswith("no other endpoint could take the request")
