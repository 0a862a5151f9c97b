"""The knee against curves whose law is known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.measuring.knee import knee_of, served_per_s
from gateway.measuring.levels import level_of
from gateway.measuring.types import Level, Limits, Window

NOTHING = level_of(Window(0.0, 1.0, []), Limits())
LOADS = (1, 2, 4, 8, 16, 32, 64)


def curve(alone_per_s: float, contention: float, coherency: float) -> list[Level]:
    return [
        replace(
            NOTHING,
            in_flight=float(n),
            requests_per_s=alone_per_s * n / (1 + contention * (n - 1) + coherency * n * (n - 1)),
        )
        for n in LOADS
    ]


@given(st.floats(0.1, 1000), st.floats(0.01, 0.9), st.floats(0.0001, 0.05))
def test_a_law_is_found_again_from_its_curve(alone_per_s: float, contention: float, coherency: float) -> None:
    knee = knee_of(curve(alone_per_s, contention, coherency))
    assert knee is not None
    assert knee.alone_per_s == pytest.approx(alone_per_s, rel=1e-3)
    assert knee.contention == pytest.approx(contention, rel=1e-2, abs=1e-4)
    assert knee.coherency == pytest.approx(coherency, rel=1e-2, abs=1e-5)
    assert knee.error < 1e-3
    assert knee.most_in_flight == pytest.approx(((1 - contention) / coherency) ** 0.5, rel=1e-2)
    assert knee.in_flight == pytest.approx(max(knee.most_per_s / alone_per_s, 1.0), rel=1e-3)
    levels = curve(alone_per_s, contention, coherency)
    assert knee.most_per_s >= max(level.requests_per_s for level in levels) * 0.999
    for level in levels:
        assert served_per_s(knee, level.in_flight) == pytest.approx(level.requests_per_s, rel=1e-3)


def test_without_coherency_the_most_is_a_bound_that_is_never_reached() -> None:
    knee = knee_of(curve(2.0, 0.1, 0.0))
    assert knee is not None
    assert knee.most_in_flight is None
    assert knee.most_per_s == pytest.approx(20.0)
    assert knee.in_flight == pytest.approx(10.0)
    assert knee.is_reached


def test_what_grows_in_proportion_has_no_knee() -> None:
    assert knee_of(curve(2.0, 0.0, 0.0)) is None


def test_two_levels_are_too_few() -> None:
    assert knee_of(curve(2.0, 0.1, 0.0)[:2]) is None
    assert knee_of([curve(2.0, 0.1, 0.0)[0]] * 5) is None
