"""Who is left out because it does worse than its peers by far, and who never is."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.outliers import Ejector, Measured, Odd, Oddity, OutlierRules, least_share, odd_ones

RULES = OutlierRules(slow=True)
names = [f"e{number}" for number in range(12)]


def failing(*faults: int, of: int = 100) -> list[Measured]:
    return [Measured(name, of, count) for name, count in zip(names, faults, strict=False)]


def timed(*prefills: float, samples: int = 100) -> list[Measured]:
    return [
        Measured(name, prefill_ratio=one, prefill_samples=samples) for name, one in zip(names, prefills, strict=False)
    ]


def out(group: Sequence[Measured], rules: OutlierRules = RULES) -> list[str]:
    return [odd.endpoint_id for odd in odd_ones(group, rules)]


def test_one_that_fails_far_more_often_than_its_peers_stands_out() -> None:
    [odd] = odd_ones(failing(0, 1, 0, 42), RULES)
    assert (odd.endpoint_id, odd.oddity, odd.value, odd.usual) == ("e3", Oddity.FAILS, 0.42, 0.0 + 0.005)
    assert odd.excess > 1


def test_one_that_computes_far_more_slowly_than_its_peers_stands_out() -> None:
    [odd] = odd_ones(timed(1.0, 1.1, 0.9, 5.0), RULES)
    assert (odd.endpoint_id, odd.oddity, odd.value) == ("e3", Oddity.SLOW_PREFILL, 5.0)
    decoding = [
        Measured(name, decode_ratio=one, decode_samples=50) for name, one in zip("abcd", (1, 1, 1, 9), strict=True)
    ]
    assert [odd.oddity for odd in odd_ones(decoding, RULES)] == [Oddity.SLOW_DECODE]


def test_a_fast_one_does_not() -> None:
    assert out(timed(1.0, 1.1, 0.9, 0.01)) == []


def test_a_scattered_fleet_has_no_outlier_where_an_even_one_would() -> None:
    assert out(timed(1.0, 1.0, 1.0, 3.5)) == ["e3"]
    assert out(timed(0.5, 1.0, 2.0, 3.5)) == []


def test_few_failures_prove_nothing() -> None:
    assert out(failing(0, 0, 0, 3, of=3)) == []
    assert out(failing(0, 0, 0, 3, of=20)) == []
    assert out(failing(0, 0, 0, 12, of=20)) == ["e3"]


def test_two_cannot_say_which_of_them_is_the_odd_one() -> None:
    assert out(failing(0, 100)) == []
    assert out(timed(1.0, 9.0)) == []


def test_times_are_not_judged_unless_that_is_on() -> None:
    assert out(timed(1.0, 1.1, 0.9, 5.0), OutlierRules()) == []
    assert out(failing(0, 1, 0, 42), OutlierRules(fails=False)) == []


def test_the_lower_end_of_a_share_is_wilsons() -> None:
    assert least_share(3, 3) == pytest.approx(0.4385, abs=1e-3)  # (published tables of the interval have 0.4385)
    assert least_share(0, 10) == 0.0


def test_it_is_left_out_for_longer_each_time_and_comes_back() -> None:
    ejector, now_s, lengths = Ejector(OutlierRules(base_s=30, most_s=100)), 0.0, []
    for _ in range(4):
        [odd], _ = ejector.look([failing(0, 0, 0, 50)], now_s)
        assert odd.endpoint_id == "e3"
        until_s = ejector.until_s("e3")
        assert until_s is not None
        assert ejector.look([failing(0, 0, 0, 50)], until_s - 1) == ([], [])
        lengths.append(until_s - now_s)
        now_s = until_s
        assert ejector.look([failing(0, 0, 0, 50)], now_s) == ([], ["e3"])
    assert lengths == [30, 60, 100, 100]
    now_s += 100
    [_], _ = ejector.look([failing(0, 0, 0, 50)], now_s)
    assert ejector.until_s("e3") == now_s + 30  # long well, so all is forgotten


def test_the_oddest_go_first_where_not_all_may() -> None:
    ejector = Ejector(OutlierRules(most_share=0.2))
    went, _ = ejector.look([failing(0, 0, 0, 0, 0, 0, 30, 90, 0, 60)], 0.0)
    assert [odd.endpoint_id for odd in went] == ["e7", "e9"]


def test_who_is_away_already_counts_against_the_share() -> None:
    group = [*failing(0, 0, 0, 90, 0, 0), Measured("e6", available=False), Measured("e7", available=False)]
    assert Ejector(OutlierRules(most_share=0.25)).look([group], 0.0) == ([], [])


measured = st.builds(
    Measured,
    endpoint_id=st.just(""),
    requests=st.integers(0, 500),
    faults=st.integers(0, 500),
    prefill_ratio=st.none() | st.floats(1e-3, 1e3),
    decode_ratio=st.none() | st.floats(1e-3, 1e3),
    prefill_samples=st.integers(0, 100),
    decode_samples=st.integers(0, 100),
    available=st.booleans(),
)


def fleet(ones: list[Measured]) -> list[Measured]:
    return [
        Measured(
            name,
            one.requests,
            min(one.faults, one.requests),
            one.prefill_ratio,
            one.decode_ratio,
            one.prefill_samples,
            one.decode_samples,
            one.available,
        )
        for name, one in zip(names, ones, strict=False)
    ]


@settings(max_examples=200)
@given(st.lists(st.lists(measured, max_size=12), min_size=1, max_size=6), st.floats(0, 1), st.floats(1, 50))
def test_never_more_than_the_share_is_left_out_whatever_is_measured(
    looks: list[list[Measured]], most_share: float, every_s: float
) -> None:
    ejector = Ejector(OutlierRules(most_share=most_share, slow=True, least_samples=1, base_s=20))
    for number, ones in enumerate(looks):
        group = fleet(ones)
        before = set(ejector.ejected)
        went, _ = ejector.look([group], number * every_s)
        out_now = {one.endpoint_id for one in group} & set(ejector.ejected)
        away = {one.endpoint_id for one in group if not one.available}
        if went:
            assert len(out_now | away) <= math.floor(most_share * len(group))
        assert {odd.endpoint_id for odd in went}.isdisjoint(before & set(ejector.ejected) - out_now)


@given(st.integers(3, 12), st.floats(1e-3, 1e3), st.integers(0, 100), st.integers(100, 400))
def test_a_fleet_that_is_uniformly_slow_or_failing_leaves_out_nobody(
    size: int, time: float, faults: int, requests: int
) -> None:
    group = [Measured(name, requests, faults, time, time, 100, 100) for name in names[:size]]
    assert out(group) == []


@given(st.lists(st.integers(0, 500), min_size=3, max_size=12))
def test_nobody_is_left_out_for_what_clients_did(requests: list[int]) -> None:
    """Mistakes, departures and limits are requests, and no faults: any number of them, however spread."""
    group = [Measured(name, count, 0) for name, count in zip(names, requests, strict=False)]
    assert out(group) == []


@given(st.lists(measured, min_size=3, max_size=12), st.floats(0.1, 10))
def test_a_clock_that_runs_otherwise_changes_nothing(ones: list[Measured], factor: float) -> None:
    """Times are compared with each other, and with nothing else."""
    group = fleet(ones)
    scaled = [
        Measured(
            one.endpoint_id,
            one.requests,
            one.faults,
            None if one.prefill_ratio is None else one.prefill_ratio * factor,
            None if one.decode_ratio is None else one.decode_ratio * factor,
            one.prefill_samples,
            one.decode_samples,
            one.available,
        )
        for one in group
    ]

    def clear(odd: Odd) -> bool:
        return odd.excess > 1 + 1e-6

    assert {odd.endpoint_id for odd in filter(clear, odd_ones(group, RULES))} <= set(out(scaled))
