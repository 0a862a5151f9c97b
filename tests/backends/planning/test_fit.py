"""What was measured takes the place of what is usual."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.hardware import BANDWIDTH_SHARE, GPUS, expected_speed
from backends.models import CATALOGUE
from backends.perf import PerfModel
from backends.planning import ImpossibleSpeed, Machine, corrected, decode_step, prefill, shares_of

DENSE = [name for name, model in CATALOGUE.items() if model.experts is None]


@given(st.sampled_from(DENSE), st.sampled_from(sorted(GPUS)), st.sampled_from([1, 2, 4, 8]))
def test_an_endpoint_that_is_as_fast_as_usual_has_the_usual_shares(model: str, gpu: str, gpus: int) -> None:
    shares = shares_of(Machine(CATALOGUE[model], GPUS[gpu], gpus), expected_speed(gpu, gpus, model))
    assert shares.arithmetic == pytest.approx(GPUS[gpu].share)
    assert shares.bandwidth == pytest.approx(BANDWIDTH_SHARE)
    assert shares.arithmetic_over_usual == pytest.approx(1)
    assert shares.bandwidth_over_usual == pytest.approx(1)


@given(st.floats(0.1, 2.0), st.floats(0.2, 1.4))
def test_a_fitted_plan_says_of_an_endpoint_what_was_measured_there(arithmetic: float, bandwidth: float) -> None:
    """2 over the usual share of 0.45 and 1.4 over 0.7 are nearly all of the datasheet."""
    machine, usual = Machine(CATALOGUE["qwen3-32b"], GPUS["h100"]), expected_speed("h100", 1, "qwen3-32b")
    measured = replace(
        usual,
        prefill_tokens_per_s=usual.prefill_tokens_per_s * arithmetic,
        itl_s=usual.itl_s / bandwidth,
    )
    fitted = corrected(machine, [shares_of(machine, measured)])
    assert decode_step(fitted, 1, 0).seconds == pytest.approx(measured.itl_s)
    assert prefill(fitted, 4_000).arithmetic_s == pytest.approx(prefill(machine, 4_000).arithmetic_s / arithmetic)


def test_one_kind_of_gpu_teaches_about_another() -> None:
    usual = expected_speed("h100")
    slow = replace(usual, prefill_tokens_per_s=usual.prefill_tokens_per_s / 2)
    shares = [shares_of(Machine(CATALOGUE["llama-3.1-8b"], GPUS["h100"]), one) for one in (slow, slow, usual)]
    fitted = corrected(Machine(CATALOGUE["llama-3.1-8b"], GPUS["l4"]), shares)
    assert fitted.flops_share == pytest.approx(GPUS["l4"].share / 2)
    assert fitted.bandwidth_share == pytest.approx(BANDWIDTH_SHARE)


def test_without_measurements_nothing_changes() -> None:
    machine = Machine(CATALOGUE["llama-3.1-8b"], GPUS["l4"])
    assert corrected(machine, []) is machine


def test_what_is_faster_than_its_datasheet_is_refused() -> None:
    machine = Machine(CATALOGUE["llama-3.1-8b"], GPUS["l4"])
    with pytest.raises(ImpossibleSpeed, match="of the arithmetic of the datasheet"):
        shares_of(machine, expected_speed("b200"))
    with pytest.raises(ImpossibleSpeed, match="bandwidth"):
        shares_of(machine, PerfModel(prefill_tokens_per_s=100, itl_s=0.001))
    with pytest.raises(ValueError, match="no time between tokens"):
        shares_of(machine, PerfModel(itl_s=0))
