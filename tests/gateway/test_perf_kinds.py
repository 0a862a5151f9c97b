"""Endpoints of one kind."""

import random

import pytest

from backends import PerfModel
from backends.perf_fit import PerfFit, PrefillSample
from gateway.perf_kinds import LEAST_SAMPLES, kinds_of

PRIOR = PerfModel(base_s=0.01, prefill_tokens_per_s=8000.0)
USUAL = (1000.0, 1000)


def fit_of(seconds: float, samples: int = 40, prior: PerfModel = PRIOR) -> PerfFit:
    """A fit of an endpoint that takes so long for the usual prompt, give or take."""
    fit, rng = PerfFit(prior), random.Random(seconds)
    for at in range(samples):
        fit.prefill(PrefillSample(seconds * rng.lognormvariate(0, 0.1), 1000, 1000**2), 0.3 * at)
    return fit


def test_equal_endpoints_are_one_kind_whatever_prior_they_began_with() -> None:
    fits = [fit_of(0.2), fit_of(0.21), fit_of(0.19), fit_of(0.2, prior=PerfModel(base_s=0.3))]
    ((kind, speed),) = kinds_of(fits, USUAL)
    assert {id(fit) for fit in kind} == {id(fit) for fit in fits}
    assert speed.prefill_s(*USUAL) == pytest.approx(0.2, rel=0.05)


def test_two_speeds_are_two_kinds_and_who_is_hardly_known_is_of_the_first() -> None:
    slow, fast, new = [fit_of(0.2), fit_of(0.21), fit_of(0.22)], [fit_of(0.1), fit_of(0.11)], fit_of(9.0, 1)
    (first, first_speed), (second, second_speed) = kinds_of([*slow, *fast, new], USUAL)
    assert {id(fit) for fit in first} == {id(fit) for fit in [*slow, new]}
    assert {id(fit) for fit in second} == {id(fit) for fit in fast}
    assert first_speed.prefill_s(*USUAL) == pytest.approx(0.21, rel=0.05)
    assert second_speed.prefill_s(*USUAL) == pytest.approx(0.105, rel=0.05)


def test_at_the_start_all_are_of_one_kind() -> None:
    fits = [fit_of(0.3, samples) for samples in range(LEAST_SAMPLES)]
    ((kind, _),) = kinds_of(fits, USUAL)
    assert len(kind) == LEAST_SAMPLES
