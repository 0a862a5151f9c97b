"""The ledger against an engine's own counters: what spans show, and what lies across their borders."""

from hypothesis import given
from hypothesis import strategies as st

from billing.verification.reconciling import Passage, Sample, Spans, SpanStatus, one_sequence

S = 1_000_000
"""Microseconds."""


def samples(*counts: tuple[int | None, int | None], every_s: int = 60, owner: str = "a") -> list[Sample]:
    """Hits and queries, a minute apart."""
    return [Sample(n * every_s * S, owner, 1, *each) for n, each in enumerate(counts)]


def passage(began_s: float, ended_s: float, prompt: int = 100, cached: int = 64, *, told: bool = True) -> Passage:
    return Passage(int(began_s * S), int(ended_s * S), prompt, cached, told)


def spans_of(taken: list[Sample], *passages: Passage) -> Spans:
    spans = Spans(taken)
    for one in passages:
        spans.add(one)
    return spans


def statuses(spans: Spans) -> list[str]:
    return [span.status.value for span in spans.all]


def test_what_was_reported_is_what_was_counted() -> None:
    spans = spans_of(samples((0, 0), (64, 100), (192, 300)), passage(10, 20), passage(70, 80), passage(90, 91))
    assert statuses(spans) == ["matched", "matched"]
    assert [span.requests for span in spans.all] == [1, 2]


def test_answers_that_claim_more_than_the_cache_gave_are_over_reported() -> None:
    """The counters of a decode engine behind a split prefill know better than its answers."""
    spans = spans_of(samples((0, 0), (0, 200)), passage(10, 20, cached=99), passage(30, 40, cached=99))
    assert statuses(spans) == ["over_reported"]


def test_answers_that_claim_less_than_the_cache_gave_are_under_reported() -> None:
    assert statuses(spans_of(samples((0, 0), (64, 100)), passage(10, 20, cached=0))) == ["under_reported"]


def test_prompts_that_are_not_ours_are_other_clients() -> None:
    spans = spans_of(samples((0, 0), (640, 1100)), passage(10, 20))
    assert statuses(spans) == ["other_clients"]
    assert spans.all[0].engine is not None
    assert spans.all[0].engine.prompt - spans.all[0].reported.prompt == 1000


def test_other_clients_do_not_hide_answers_that_claim_too_much() -> None:
    assert statuses(spans_of(samples((0, 0), (10, 1100)), passage(10, 20))) == ["over_reported"]


def test_a_request_across_a_border_may_be_counted_on_either_side() -> None:
    across = passage(50, 70)
    for first in (0, 64):
        assert statuses(spans_of(samples((0, 0), (first, 100), (64, 100)), across)) == ["matched", "matched"]
    for prompt in (0, 100):
        assert statuses(spans_of(samples((0, 0), (64, prompt), (64, 100)), across)) == ["matched", "matched"]


def test_a_request_that_begins_while_a_sample_is_taken_may_be_in_it() -> None:
    assert statuses(spans_of(samples((0, 0), (64, 100), (64, 100)), passage(60.2, 70))) == ["matched", "matched"]
    assert statuses(spans_of(samples((0, 0), (64, 100), (64, 100)), passage(60.3, 70)))[0] == "other_clients"


def test_a_request_longer_than_a_span_may_be_counted_in_any_of_them() -> None:
    counts = [(0, 0), (0, 0), (64, 100), (64, 100), (64, 100)]
    assert set(statuses(spans_of(samples(*counts), passage(10, 200)))) == {"matched"}


def test_what_was_cut_may_have_been_counted_or_not() -> None:
    cut = passage(10, 20, told=False)
    for counted in ((0, 0), (0, 100), (96, 100)):
        spans = spans_of(samples((0, 0), counted), cut)
        assert statuses(spans) == ["matched"]
        assert spans.all[0].untold == 1
    assert statuses(spans_of(samples((0, 0), (101, 101)), cut)) == ["other_clients"]


def test_what_nobody_knows_where_it_was_may_have_been_here() -> None:
    for ended_us in (None, 70 * S):
        spans = Spans(samples((0, 0), (90, 100), (90, 100)))
        spans.may_have_seen(10 * S, ended_us, 100)
        assert statuses(spans) == ["matched", "matched"]


def test_a_restart_within_a_span_leaves_nothing_to_compare() -> None:
    taken = [*samples((500, 900), (600, 1000)), Sample(70 * S, "a", 2, 0, 0), Sample(130 * S, "a", 2, 64, 100)]
    spans = spans_of(taken, passage(65, 66), passage(80, 90))
    assert statuses(spans) == ["other_clients", "restarted", "matched"]


def test_counters_that_went_back_are_a_restart_too() -> None:
    assert statuses(Spans(samples((500, 900), (20, 1000)))) == ["restarted"]


def test_an_engine_without_counters_cannot_be_compared() -> None:
    assert statuses(Spans(samples((None, 5), (None, 9)))) == ["not_counted"]


def test_two_gateways_who_sample_one_engine_are_taken_one_after_the_other() -> None:
    """Their clocks differ by more than their polls: taken together, the counters would seem to go back."""
    mine = [Sample(n * S, "a", 1, n, n) for n in range(0, 60, 10)]
    theirs = [Sample(n * S + 1, "b", 1, n - 3, n - 3) for n in range(5, 100, 10)]
    taken = one_sequence([*mine, *theirs])
    assert [one.owner_id for one in taken] == ["a"] * 6 + ["b"] * 5
    assert set(statuses(Spans([*mine, *theirs]))) == {"other_clients"}


def test_a_gateway_that_ran_beside_another_one_for_a_while_is_not_needed() -> None:
    mine = [Sample(n * S, "a", 1, n, n) for n in (0, 60)]
    assert one_sequence([*mine, Sample(20 * S, "b", 1, 5, 5), Sample(30 * S, "b", 1, 6, 6)]) == mine


def test_a_gateway_that_starts_anew_counts_generations_anew_and_that_is_no_restart_of_the_engine() -> None:
    assert statuses(Spans([Sample(0, "a", 7, 1, 1), Sample(S, "b", 0, 1, 1)])) == ["matched"]
    times = (1_795_961_218, 1_795_961_300)
    assert statuses(Spans([Sample(0, "a", times[0], 1, 1), Sample(S, "b", times[1], 5, 5)])) == ["restarted"]


def test_many_samples_are_joined_and_both_sides_of_a_restart_stay() -> None:
    taken = [Sample(n * S, "a", n // 550, n % 550, n % 550) for n in range(1000)]
    spans = Spans(taken, most=10)
    assert len(spans.all) <= 14
    assert [(span.start_us // S, span.end_us // S) for span in spans.all if span.restarted] == [(549, 550)]
    assert (spans.all[0].start_us, spans.all[-1].end_us) == (0, 999 * S)


def test_without_two_samples_there_is_no_span() -> None:
    for taken in ([], samples((1, 1))):
        spans = spans_of(taken, passage(0, 1))
        spans.may_have_seen(0, None, 1)
        assert spans.all == []


CALLS = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 130), st.integers(1, 1000), st.floats(0, 1), st.floats(0, 1), st.booleans()
    ),
    max_size=30,
)


@given(CALLS, st.lists(st.integers(0, 400), min_size=2, max_size=8, unique=True))
def test_an_honest_engine_is_never_accused(
    calls: list[tuple[int, int, int, float, float, bool]], borders: list[int]
) -> None:
    """It counts each prompt somewhere between its beginning and its end; the ledger has it at its end."""
    counted: list[tuple[float, int, int]] = []
    passages = []
    for began_s, lasted_s, prompt, share, when, told in calls:
        cached = int(prompt * share)
        counted.append((began_s + when * lasted_s, cached, prompt))
        passages.append(passage(began_s, began_s + lasted_s, prompt, cached if told else 0, told=told))
    taken = [
        Sample(
            border * S,
            "a",
            1,
            sum(cached for at_s, cached, _ in counted if at_s <= border),
            sum(prompt for at_s, _, prompt in counted if at_s <= border),
        )
        for border in sorted(borders)
    ]
    spans = spans_of(taken, *passages)
    assert {span.status for span in spans.all} <= {SpanStatus.MATCHED}
    assert sum(span.requests for span in spans.all) == sum(
        min(borders) * S <= one.ended_us < max(borders) * S for one in passages
    )
