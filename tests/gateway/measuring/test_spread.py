"""Quantiles against their definition, and arrivals whose burstiness is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.measuring.spread import burstiness_of, ranked, spread_of

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(values, st.floats(0, 1))
def test_a_quantile_is_the_least_value_that_so_many_do_not_exceed(found: list[float], share: float) -> None:
    ordered = sorted(found)
    quantile = ranked(ordered, share)
    assert sum(value <= quantile for value in found) >= share * len(found) - 1e-6
    assert sum(value < quantile for value in found) < max(share * len(found), 1)


@given(st.lists(st.none() | st.floats(0, 1e6)))
def test_a_spread_is_of_what_is_known(found: list[float | None]) -> None:
    spread = spread_of(found)
    known = [one for one in found if one is not None]
    if not known:
        assert spread is None
        return
    assert spread is not None
    assert spread.count == len(known)
    assert spread.least == min(known) <= spread.p50 <= spread.p90 <= spread.p99 <= spread.most == max(known)


def test_even_arrivals_have_no_variation() -> None:
    found = burstiness_of(0.5 * number for number in range(101))
    assert found is not None
    assert found.requests_per_s == pytest.approx(2.0)
    assert found.cv == pytest.approx(0.0, abs=1e-9)
    assert found.dispersion[1.0] == pytest.approx(0.0)
    assert found.peak_over_mean == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_gamma_arrivals_vary_as_much_as_they_were_made_to(cv: float) -> None:
    dice, at_s, times = random.Random(1), 0.0, []
    for _ in range(20_000):
        at_s += dice.gammavariate(1 / cv**2, cv**2 / 10)
        times.append(at_s)
    found = burstiness_of(times)
    assert found is not None
    assert found.requests_per_s == pytest.approx(10.0, rel=0.1)
    assert found.cv == pytest.approx(cv, rel=0.1)
    # Over spans that are long against the bursts the index of dispersion is the squared variation of the gaps.
    assert found.dispersion[60.0] == pytest.approx(cv**2, rel=0.4)


def test_one_request_or_all_at_once_say_nothing_of_how_they_come() -> None:
    assert burstiness_of([]) is None
    assert burstiness_of([1.0]) is None
    assert burstiness_of([1.0, 1.0]) is None
