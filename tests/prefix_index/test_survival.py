"""How likely a run is still there: bounded, never rising, the holder's own, and true of a cache that evicts."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index import survival
from prefix_index.fill_rates import FADING_S, FillRates
from prefix_index.survival import AGE_EDGES_S, TURNOVER_EDGES, SurvivalBook, SurvivalRow, never_rising
from tests.prefix_index.lru_cache import Clients, LruCache

AGES = st.none() | st.floats(-10, 1e6)
LESSONS = st.lists(
    st.tuples(st.sampled_from("abc"), AGES, st.none() | st.floats(0, 20), st.integers(0, 10**6), st.floats(0, 1.1)),
    max_size=60,
)
GRID_S = [edge * 1.1 for edge in (0.0, *AGE_EDGES_S)]
GRID = [edge * 1.01 for edge in (0.0, *TURNOVER_EDGES)]


def taught(lessons: list[tuple[str, float | None, float | None, int, float]]) -> SurvivalBook[str]:
    book: SurvivalBook[str] = SurvivalBook()
    for holder, age_s, turnovers, expected, share in lessons:
        book.learn(holder, age_s, turnovers, expected, int(expected * share))
    return book


@given(LESSONS, st.booleans())
def test_whatever_is_learned_a_probability_it_stays_and_never_rises_with_age(
    lessons: list[tuple[str, float | None, float | None, int, float]], forgotten: bool
) -> None:
    book = taught(lessons)
    if forgotten:
        book.forget("a")
    for holder in ("a", "b", "stranger"):
        for curve in (
            [book.probability(holder, None, turnovers) for turnovers in GRID],
            [book.probability(holder, age_s, None) for age_s in GRID_S],
            [book.assured(holder, age_s, None) for age_s in GRID_S],
        ):
            assert all(0 <= p <= 1 for p in curve)
            assert all(later <= earlier + 1e-9 for earlier, later in pairwise(curve))
        assert 0 <= book.probability(holder, None, None) <= 1
        for age_s in GRID_S:
            assert book.assured(holder, age_s, None) <= book.probability(holder, age_s, None) + 1e-9


@given(LESSONS)
def test_the_table_holds_every_match_that_was_learned(
    lessons: list[tuple[str, float | None, float | None, int, float]],
) -> None:
    rows = taught(lessons).table()
    learned = [lesson for lesson in lessons if lesson[3] > 0]
    assert sum(row.matches for row in rows) == len(learned)
    assert sum(row.expected_tokens for row in rows) == sum(lesson[3] for lesson in learned)
    assert all(0 <= row.share <= 1 and 0 <= row.predicted <= 1 and row.matches for row in rows)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 100)), min_size=1, max_size=40))
def test_pooling_keeps_the_mean_and_leaves_alone_what_falls_already(points: list[tuple[float, float]]) -> None:
    values, weights = [value for value, _ in points], [weight for _, weight in points]
    pooled = never_rising(values, weights)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(pooled))
    mean = sum(v * w for v, w in points) / sum(weights)
    assert sum(v * w for v, w in zip(pooled, weights, strict=True)) / sum(weights) == pytest.approx(mean)
    falling = sorted(values, reverse=True)
    assert never_rising(falling, weights) == falling


def test_before_anything_is_known_a_cache_is_taken_for_lru() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    assert book.probability("a", 1e6, 0.4) > 0.95  # turnovers go before age
    assert book.probability("a", None, 2.5) < 0.05
    assert book.probability("a", 60.0, None) > 0.9
    assert book.probability("a", 8 * 3600.0, None) < 0.2
    assert book.probability("a", None, None) == 0.95
    assert book.table() == []


@settings(max_examples=20)
@given(st.floats(0.05, 1), st.sampled_from([(None, 0.3), (None, 1.3), (100.0, None), (None, None)]), st.integers(0, 99))
def test_what_is_learned_comes_to_what_is_true(truth: float, at: tuple[float | None, float | None], seed: int) -> None:
    rng, book = random.Random(seed), SurvivalBook[str]()
    for _ in range(400):
        tokens = rng.randrange(500, 5000)
        book.learn("a", *at, tokens, tokens if rng.random() < truth else 0)
    assert book.probability("a", *at) == pytest.approx(truth, abs=0.2)  # of at most 127 matches: 4.5 deviations


def test_few_matches_swing_nothing_and_a_long_prompt_is_one_match() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    for _ in range(40):
        book.learn("a", None, 0.3, 1000, 1000)
    book.learn("a", None, 0.3, 1_000_000, 0)
    assert book.probability("a", None, 0.3) > 0.75
    book.learn("b", None, 0.3, 1000, 0)
    assert book.probability("b", None, 0.3) > 0.6


def test_contradictions_at_one_holder_pull_that_holder_alone() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    for name in "abcdefgh":
        for _ in range(30):
            book.learn(name, None, 0.3, 1000, 1000)
    for _ in range(200):
        book.learn("a", None, 0.3, 1000, 0)
    book.learn("b", None, 0.3, 1000, 1000)
    assert book.probability("a", None, 0.3) < 0.1
    assert book.probability("b", None, 0.3) > 0.97
    assert book.probability("stranger", None, 0.3) > 0.85  # one vote of eight


def test_a_holder_that_is_new_is_taken_for_one_like_the_others_and_what_it_shows_goes_before() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    for name in "abc":
        for _ in range(30):
            book.learn(name, 100.0, None, 1000, 0)
    assert book.probability("new", 100.0, None) < 0.1
    for _ in range(60):
        book.learn("new", 100.0, None, 1000, 1000)
    assert book.probability("new", 100.0, None) > 0.9


def test_what_was_learned_at_a_holder_that_is_gone_stays_as_one_vote() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    for _ in range(500):
        book.learn("a", 100.0, None, 1000, 0)
    book.forget("a")
    book.forget("a")
    assert book.probability("a", 100.0, None) < 0.15
    for _ in range(12):
        book.learn("b", 100.0, None, 1000, 1000)
    assert book.probability("b", 100.0, None) > 0.7


def test_holders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survival, "MOST_HOLDERS", 3)
    book: SurvivalBook[int] = SurvivalBook()
    for holder in range(10):
        for _ in range(50):
            book.learn(holder, None, 0.3, 1000, 0)
    assert book.probability(9, None, 0.3) < 0.1
    assert book.probability(0, None, 0.3) == book.probability(99, None, 0.3)  # forgotten, but for its vote


def test_where_ages_are_a_guess_only_runs_that_were_found_assure_of_one() -> None:
    book: SurvivalBook[str] = SurvivalBook()
    assert book.assured("a", 60.0, None) == 0
    assert book.assured("a", None, 0.3) > 0.9
    assert book.assured("a", None, 0.75) < 0.5  # half as old again, it would be beyond the cliff
    for _ in range(100):
        book.learn("a", 600.0, None, 1000, 1000)
    assert book.assured("a", 60.0, None) > 0.9
    assert book.assured("a", 600.0, None) == 0  # none was found that was half as old again


def played(capacity_known: bool, capacity: int, seed: int, visits: int = 12_000) -> list[SurvivalRow]:
    """The rows of the second half of a simulation: what was predicted, and what was there."""
    clients = Clients(random.Random(seed), growing=False)
    book: SurvivalBook[str] = SurvivalBook()
    fills: FillRates[str] = FillRates()
    cache = LruCache(capacity)
    for at, visit in enumerate(clients.visits(cache, visits)):
        if at == visits // 2:
            first_half = {(row.variable, row.above): row for row in book.table()}
        if visit.age_s is not None:
            turnovers = fills.turnovers("e", visit.age_s, capacity if capacity_known else None, visit.at_s)
            book.learn("e", visit.age_s, turnovers, visit.confirmed * 16, visit.reported * 16)
        fills.note("e", visit.blocks - visit.reported, visit.at_s)
    return [less(row, first_half.get((row.variable, row.above))) for row in book.table()]


def less(row: SurvivalRow, before: SurvivalRow | None) -> SurvivalRow:
    if before is None:
        return row
    return SurvivalRow(
        row.variable,
        row.above,
        row.up_to,
        row.matches - before.matches,
        row.expected_tokens - before.expected_tokens,
        row.reported_tokens - before.reported_tokens,
        row.predicted_tokens - before.predicted_tokens,
        row.present,
    )


@pytest.mark.parametrize("capacity", [1500, 4000])
@pytest.mark.parametrize("capacity_known", [True, False])
def test_of_an_lru_cache_what_was_predicted_is_what_was_there_bucket_by_bucket(
    capacity: int, capacity_known: bool
) -> None:
    rows = [row for row in played(capacity_known, capacity, seed=7) if row.matches >= 150]
    assert {row.variable for row in rows} == {"turnovers" if capacity_known else "age_s"}
    assert len(rows) >= 5
    wrong = [(abs(row.predicted - row.share), row.matches) for row in rows]
    assert max(wrong)[0] < 0.1  # where the cliff is: of 150 matches, two deviations are 0.08
    assert sum(by * matches for by, matches in wrong) / sum(matches for _, matches in wrong) < 0.02
    assert rows[0].share > 0.99
    assert rows[-1].share < 0.7


def test_a_steady_rate_is_found_over_any_time_from_the_first_minute_on() -> None:
    fills: FillRates[str] = FillRates()
    for second in range(120):
        fills.note("a", 50.0, float(second))
    for over_s in (1.0, 50.0, 500.0, 10_000.0, 1e6):
        assert fills.rate("a", over_s, 120.0) == pytest.approx(50.0, rel=0.06)
    assert fills.turnovers("a", 60.0, 3000, 120.0) == pytest.approx(1.0, rel=0.06)


def test_a_quiet_night_does_not_make_old_runs_fresh_nor_a_burst_young_ones_old() -> None:
    fills: FillRates[str] = FillRates()
    for second in range(3600):
        fills.note("a", 50.0, float(second))
    morning_s = 3600.0 + 4 * 3600
    assert fills.rate("a", 60.0, morning_s) == pytest.approx(0, abs=1e-6)
    filled = fills.turnovers("a", 5 * 3600.0, 50 * 3600, morning_s)
    assert filled is not None
    assert 0.5 < filled < 1.5
    fills.note("a", 6000.0, morning_s)
    assert (fills.rate("a", 3600.0, morning_s) or 0) < 5 < (fills.rate("a", 5.0, morning_s) or 0)


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(-5, 1e4)), max_size=20),
    st.floats(-1, 1e6),
    st.floats(-100, 1e6),
)
def test_a_rate_is_never_below_nothing_whatever_the_clock_does(
    notes: list[tuple[float, float]], age_s: float, now_s: float
) -> None:
    fills: FillRates[str] = FillRates()
    for blocks, at_s in notes:
        fills.note("a", blocks, at_s)
    filled = fills.turnovers("a", age_s, 100, now_s)
    assert (filled is None) == (not notes)
    assert filled is None or 0 <= filled < float("inf")


def test_where_age_capacity_or_rate_is_unknown_so_are_turnovers(monkeypatch: pytest.MonkeyPatch) -> None:
    fills: FillRates[int] = FillRates()
    fills.note(1, 10.0, 0.0)
    assert fills.turnovers(1, None, 100, 1.0) is None
    assert fills.turnovers(1, 1.0, None, 1.0) is None
    assert fills.turnovers(1, 1.0, 0, 1.0) is None
    assert fills.turnovers(2, 1.0, 100, 1.0) is None
    assert fills.rate(2, FADING_S[0], 1.0) is None
    fills.forget(1)
    fills.forget(1)
    assert fills.turnovers(1, 1.0, 100, 1.0) is None
    monkeypatch.setattr("prefix_index.fill_rates.MOST_HOLDERS", 3)
    for holder in range(5):
        fills.note(holder, 10.0, 0.0)
    assert [fills.rate(holder, 1.0, 1.0) is None for holder in range(5)] == [True, True, False, False, False]
