"""Rounding to a grid is off by half a step at most, whatever the weights; calibrated rounding costs the output less."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.reference.lab.calibration import Observed
from backends.reference.lab.gptq import gptq
from backends.reference.lab.grids import Quantised, dequantise, quantise
from backends.reference.lab.scaling import awq

BITS = st.sampled_from([2, 3, 4, 8])


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """Normal, uniform, constant, sparse, tiny or huge weights, of a few rows and groups."""
    outputs, groups, group = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.sampled_from([4, 16, 32]))
    dice = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    weight = torch.randn(outputs, groups * group, generator=dice)
    kind = draw(st.sampled_from(["normal", "uniform", "constant", "sparse", "shifted"]))
    if kind == "uniform":
        weight = torch.rand(weight.shape, generator=dice)
    if kind == "constant":
        weight = weight[:, :1].expand(weight.shape).clone()
    if kind == "sparse":
        weight = weight * (torch.rand(weight.shape, generator=dice) < 0.1)
    if kind == "shifted":
        weight = weight + 100
    return weight * 10.0 ** draw(st.sampled_from([-30, -6, -1, 0, 1, 6, 30]))


def half_steps(matrix: Quantised) -> Tensor:
    """By how much rounding may be off, [out, in]: half a scale, and what float32 itself rounds."""
    reach = matrix.grid.scales.abs() * max(-matrix.grid.lowest, matrix.grid.highest) + matrix.grid.offsets.abs()
    bound = matrix.grid.scales / 2 + 4 * torch.finfo(torch.float32).eps * reach
    return bound.repeat_interleave(matrix.group, dim=1)


@settings(max_examples=150, deadline=None)
@given(weight=matrices(), bits=BITS, symmetric=st.booleans(), by_row=st.booleans())
def test_no_weight_is_off_by_more_than_half_a_step(weight: Tensor, bits: int, symmetric: bool, by_row: bool) -> None:
    group = weight.shape[1] if by_row else 4
    matrix = quantise(weight, bits, group=group, symmetric=symmetric)
    assert ((dequantise(matrix) - weight).abs() <= half_steps(matrix)).all()
    assert matrix.codes.min() >= matrix.grid.lowest
    assert matrix.codes.max() <= matrix.grid.highest
    assert matrix.group == group


@settings(max_examples=40, deadline=None)
@given(weight=matrices(), bits=BITS)
def test_rounding_what_was_rounded_changes_nothing_more(weight: Tensor, bits: int) -> None:
    once = dequantise(quantise(weight, bits, group=4, symmetric=True))
    again = dequantise(quantise(once, bits, group=4, symmetric=True))
    torch.testing.assert_close(again, once, rtol=1e-5, atol=0)


def test_a_matrix_of_as_many_values_as_codes_is_kept_exactly() -> None:
    weight = (torch.arange(16.0) * 0.25 - 1).repeat(3, 2)
    torch.testing.assert_close(dequantise(quantise(weight, 4, group=16)), weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_that_are_no_numbers_are_refused(weight: float, symmetric: bool) -> None:
    matrix = torch.randn(3, 8)
    matrix[1, 2] = weight
    with pytest.raises(ValueError, match="cannot be rounded to a grid"):
        quantise(matrix, 8, group=4, symmetric=symmetric)


def test_weights_that_are_too_far_apart_for_a_step_are_refused() -> None:
    with pytest.raises(ValueError, match="too far apart"):
        quantise(torch.tensor([[3e38, -3e38]]), 4)


def test_groups_must_fill_the_rows() -> None:
    with pytest.raises(ValueError, match="10 inputs are no groups of 4"):
        quantise(torch.ones(2, 10), 4, group=4)
    with pytest.raises(ValueError, match="10 inputs are no groups of 4"):
        gptq(torch.ones(2, 10), Observed(10), 4, 4)


def seen(x: Tensor) -> Observed:
    observed = Observed(x.shape[1])
    observed.see(x)
    return observed


def correlated(rows: int, inputs: int, seed: int) -> Tensor:
    """Inputs that go together, a few of them ten times as large, as those of a transformer are."""
    dice = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs // 4, generator=dice) @ torch.randn(inputs // 4, inputs, generator=dice)
    x += torch.randn(rows, inputs, generator=dice) / 2
    x[:, :: inputs // 4] *= 10
    return x


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), bits=st.sampled_from([3, 4]))
def test_what_is_rounded_off_is_made_good_by_the_weights_after_it(seed: int, bits: int) -> None:
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(seed))
    x = correlated(512, 64, seed)
    nearest = dequantise(quantise(weight, bits, group=16))
    calibrated = dequantise(gptq(weight, seen(x), bits, 16))
    assert (x @ (calibrated - weight).T).pow(2).sum() < (x @ (nearest - weight).T).pow(2).sum()


def test_inputs_that_have_nothing_to_do_with_each_other_are_rounded_to_the_nearest() -> None:
    weight = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
    apart = seen(torch.eye(32).repeat(4, 1))
    torch.testing.assert_close(
        dequantise(gptq(weight, apart, 4, 8)), dequantise(quantise(weight, 4, group=8)), rtol=1e-4, atol=1e-4
    )


def test_inputs_that_are_always_zero_are_no_obstacle() -> None:
    x = correlated(64, 32, 3)
    x[:, 5] = 0
    assert dequantise(gptq(torch.randn(8, 32), seen(x), 4, 8)).isfinite().all()
    assert dequantise(gptq(torch.randn(8, 32), Observed(32), 4, 8)).isfinite().all()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_scales_are_never_worse_than_none(seed: int) -> None:
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(seed))
    observed = seen(correlated(256, 64, seed))

    scales = awq(lambda matrix: quantise(matrix, 4, group=16))(weight, observed)
    scaled = dequantise(quantise(weight * scales, 4, group=16)) / scales
    plain = dequantise(quantise(weight, 4, group=16))
    assert observed.output_error(weight - scaled) <= observed.output_error(weight - plain) * 1.001


def test_the_gram_matrix_knows_the_error_of_the_output() -> None:
    x, off = correlated(300, 16, 4), torch.randn(5, 16)
    expected = (x @ off.T).pow(2).sum(1).mean()
    assert seen(x).output_error(off) == pytest.approx(float(expected), rel=1e-4)
