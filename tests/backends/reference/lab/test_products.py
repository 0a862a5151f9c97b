"""Products with fewer bits are the products written out; a model of them is a model like any other."""

import re
from dataclasses import replace
from functools import partial

import httpx
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from backends.reference.embedded import run_engine
from backends.reference.errors import KernelMissing
from backends.reference.lab.calibration import observe
from backends.reference.lab.grids import Quantised, dequantise, from_codes, grouped, quantise
from backends.reference.lab.matrices import PARTS, Matrix, layer_bytes, with_matrices
from backends.reference.lab.products import (
    bfloat16,
    int4_weight_only,
    int8_weight_only,
    rounded_rows,
    w8a8,
    written_out,
)
from backends.reference.lab.quality import Quality, all_logits, common_start, greedy, judge, windows_of
from backends.reference.lab.recipes import group_of, recast
from backends.reference.lab.scaling import awq, rescaled, smooth
from backends.reference.types import EngineConfig, WeightForm
from backends.reference.weights import ModelWeights
from tests.backends.reference.micro_model import micro_weights
from tests.backends.reference.naive_llama import naive_greedy, naive_logits

VOCAB = 50
WEIGHTS = micro_weights(vocab=VOCAB)
WINDOWS = [[(7 * i + seed * i * i) % VOCAB for i in range(24)] for seed in range(1, 7)]
SIXTEEN_BITS = 2**-7
"""Relative: bfloat16 keeps eight binary digits, and sums of products are rounded once more."""


def with_matrix(weight: Tensor) -> ModelWeights:
    """A model of which only this one matrix matters."""
    return replace(WEIGHTS, layers=(replace(WEIGHTS.layers[0], qkv=weight),))


def times(x: Tensor, matrix: object) -> Tensor:
    """As the decoder multiplies."""
    return F.linear(x, matrix)  # type: ignore[arg-type]  # a Matrix stands for a tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_near(found: Tensor, expected: Tensor, relative: float) -> None:
    assert found.dtype == expected.dtype == torch.float32
    assert (found - expected).abs().max() <= relative * expected.abs().max()


def in_sixteen_bits(matrix: Quantised) -> Tensor:
    """What the INT4 kernel makes of the codes: scales, and what stands for code 8, are kept in 16 bits."""
    grid, middle = matrix.grid, 8
    middles = (grid.offsets + middle * grid.scales).bfloat16().float()
    short = replace(grid, scales=grid.scales.bfloat16().float(), offsets=middles)
    return from_codes(grouped(matrix) - middle, short).flatten(1)


rows = st.sampled_from([1, 2, 7, 33])
seeds = st.integers(0, 1000)


@settings(max_examples=20, deadline=None)
@given(rows=rows, seed=seeds)
def test_the_int8_kernel_computes_what_is_written_out(rows: int, seed: int) -> None:
    matrix = quantise(normal(64, 96, seed=seed), 8, symmetric=True)
    x = normal(rows, 96, seed=seed + 1)
    assert_near(times(x, int8_weight_only(matrix)), times(x, written_out(matrix)), 2 * SIXTEEN_BITS)


@settings(max_examples=20, deadline=None)
@given(rows=rows, seed=seeds, group=st.sampled_from([32, 64]), outputs=st.sampled_from([64, 192]))
def test_the_int4_kernel_computes_what_is_written_out(rows: int, seed: int, group: int, outputs: int) -> None:
    matrix = quantise(normal(outputs, 128, seed=seed), 4, group=group)
    x = normal(rows, 128, seed=seed + 1)
    expected = F.linear(x.bfloat16().float(), in_sixteen_bits(matrix))
    assert_near(times(x, int4_weight_only(matrix)), expected, SIXTEEN_BITS)
    assert_near(times(x, int4_weight_only(matrix)), times(x, written_out(matrix)), 4 * SIXTEEN_BITS)


def test_sizes_that_a_kernel_does_not_take_are_written_out() -> None:
    matrix, x = quantise(normal(24, 48), 4, group=16), normal(3, 48)
    torch.testing.assert_close(times(x, int4_weight_only(matrix)), F.linear(x, dequantise(matrix)))
    matrix, x = quantise(normal(8, 24), 8, symmetric=True), normal(3, 24)
    torch.testing.assert_close(times(x, int8_weight_only(matrix)), F.linear(x, dequantise(matrix)))


@settings(deadline=None)
@given(
    rows=st.integers(0, 9),
    outputs=st.integers(1, 70) | st.sampled_from([64, 128]),
    inputs=st.integers(1, 100) | st.sampled_from([32, 64, 96, 128]),
    is_transposed=st.booleans(),
    seed=seeds,
)
def test_any_sizes_are_multiplied_as_they_are_written_out(
    rows: int, outputs: int, inputs: int, is_transposed: bool, seed: int
) -> None:
    weight, x = normal(outputs, inputs, seed=seed), normal(rows, inputs, seed=seed + 1)
    if is_transposed:
        weight = weight.t().contiguous().t()
    codes, row_scales = rounded_rows(x)
    eight, four = quantise(weight, 8, symmetric=True), quantise(weight, 4, group=group_of(inputs))
    expected = {
        WeightForm.FLOAT32: F.linear(x, weight),
        WeightForm.BFLOAT16: F.linear(x, weight),
        WeightForm.INT8: F.linear(x, dequantise(eight)),
        WeightForm.INT4: F.linear(x, dequantise(four)),
        WeightForm.W8A8: F.linear(codes * row_scales, dequantise(eight)),
    }
    # No sum is further off than the sizes of what is summed allow.
    reach = x.norm(dim=1, keepdim=True) * weight.norm(dim=1)
    for form, product in expected.items():
        found = times(x, recast(with_matrix(weight), form).layers[0].qkv)
        assert found.shape == product.shape
        assert ((found - product).abs() <= 4 * SIXTEEN_BITS * reach + 1e-6).all()


@pytest.mark.parametrize("outputs", [1, 2, 33, 64])
def test_a_single_input_is_multiplied_too(outputs: int) -> None:
    weight, x = normal(outputs, 1), normal(5, 1)
    for form in WeightForm:
        made = recast(with_matrix(weight), form).layers[0].qkv
        assert_near(times(x, made), F.linear(x, weight), 0.02)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (WeightForm.INT8, "_weight_int8pack_mm"),
        (WeightForm.INT4, "_weight_int4pack_mm_for_cpu"),
        (WeightForm.INT4, "_convert_weight_to_int4pack_for_cpu"),
        (WeightForm.W8A8, "_int_mm"),
    ],
)
def test_a_torch_without_a_kernel_is_refused_by_name_and_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, form: WeightForm, name: str
) -> None:
    monkeypatch.delattr(torch, name)
    with pytest.raises(KernelMissing, match=f"torch {re.escape(torch.__version__)} has no {name}"):
        recast(with_matrix(normal(64, 64)), form)


@settings(max_examples=20, deadline=None)
@given(rows=rows, seed=seeds)
def test_w8a8_sums_whole_numbers_exactly(rows: int, seed: int) -> None:
    matrix, x = quantise(normal(40, 96, seed=seed), 8, symmetric=True), normal(rows, 96, seed=seed + 1)
    codes, scales = rounded_rows(x)
    exact = (codes.double() @ matrix.codes.double().T) * scales * matrix.grid.scales[:, 0]
    torch.testing.assert_close(times(x, w8a8(matrix)).double(), exact, rtol=1e-6, atol=1e-6)
    assert ((codes.float() * scales - x).abs() <= scales / 2 + 1e-6).all()


@given(rows=st.integers(1, 12), before=st.integers(0, 12), seed=seeds)
def test_a_row_comes_out_the_same_to_the_bit_whatever_rows_are_beside_it(rows: int, before: int, seed: int) -> None:
    matrix, x = quantise(normal(40, 96, seed=seed), 8, symmetric=True), normal(24, 96, seed=seed + 1)
    mine = slice(before, before + rows)
    for product in (int8_weight_only(matrix), w8a8(matrix)):
        assert torch.equal(times(x[mine], product), times(x, product)[mine])


def test_a_row_of_zeros_stays_one() -> None:
    matrix = quantise(normal(8, 16), 8, symmetric=True)
    assert not times(torch.zeros(2, 16), w8a8(matrix)).any()


def test_eight_bits_need_one_symmetric_scale_a_row() -> None:
    for make in (int8_weight_only, w8a8):
        for matrix in (quantise(normal(8, 16), 8), quantise(normal(8, 16), 8, group=4, symmetric=True)):
            with pytest.raises(ValueError, match="one symmetric scale a row"):
                make(matrix)


def test_four_bits_need_codes_that_four_bits_have() -> None:
    for matrix in (quantise(normal(64, 32), 8), quantise(normal(64, 32), 4, group=32, symmetric=True)):
        with pytest.raises(ValueError, match="codes from 0 to 15"):
            int4_weight_only(matrix)


def test_a_matrix_refuses_whatever_is_no_product() -> None:
    matrix = bfloat16(normal(8, 8))
    with pytest.raises(TypeError):
        torch.add(matrix, 1)  # type: ignore[call-overload]  # a Matrix is no tensor, which is what this is about


def test_memory_is_what_the_codes_take() -> None:
    weight = normal(64, 128)
    assert bfloat16(weight).size_bytes == 64 * 128 * 2
    assert int8_weight_only(quantise(weight, 8, symmetric=True)).size_bytes == 64 * 128 + 64 * 2
    assert int4_weight_only(quantise(weight, 4, group=32)).size_bytes == 64 * 128 // 2 + 64 * 4 * 2 * 2
    assert layer_bytes(WEIGHTS) == sum(
        getattr(layer, part).nbytes for layer in WEIGHTS.layers for part in (*PARTS, "attention_norm", "mlp_norm")
    )


def rounded(weights: ModelWeights, bits: int) -> ModelWeights:
    return with_matrices(weights, lambda _layer, _part, weight: written_out(quantise(weight, bits, group=16)))


def compared(model: ModelWeights) -> Quality:
    return judge(all_logits(model, WINDOWS), all_logits(WEIGHTS, WINDOWS), WINDOWS)


def test_the_more_bits_the_nearer_to_the_plain_model() -> None:
    found = [compared(rounded(WEIGHTS, bits)).divergence_nats for bits in (3, 4, 8)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1e-3


def test_perplexity_is_that_of_a_plain_forward_pass() -> None:
    surprise = [
        -naive_logits(WEIGHTS, window).log_softmax(-1)[range(len(window) - 1), window[1:]] for window in WINDOWS
    ]
    found = compared(WEIGHTS)
    assert found.perplexity == pytest.approx(float(torch.cat(surprise).mean().exp()), rel=1e-4)
    assert found.divergence_nats == pytest.approx(0, abs=1e-6)
    assert found.agreement == 1


def test_greedy_answers_are_those_of_a_plain_forward_pass() -> None:
    assert greedy(WEIGHTS, WINDOWS[0], 6) == naive_greedy(WEIGHTS, WINDOWS[0], 6)
    assert common_start([1, 2, 3], [1, 2, 4]) == 2
    assert common_start([1, 2], [1, 2]) == 2
    assert common_start([], []) == 0


def test_windows_lie_side_by_side() -> None:
    assert windows_of(range(10), 3, 2) == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="10 tokens are not 4 windows of 3"):
        windows_of(range(10), 3, 4)


def test_scales_move_without_changing_what_the_model_says() -> None:
    book = observe(WEIGHTS, WINDOWS)
    for scales in (smooth, awq(partial(quantise, bits=4, group=16))):
        moved = rescaled(WEIGHTS, book, scales)
        assert not torch.equal(moved.layers[0].qkv, WEIGHTS.layers[0].qkv)
        assert compared(moved).divergence_nats < 1e-6


def test_what_is_observed_is_what_each_matrix_is_multiplied_with() -> None:
    book = observe(WEIGHTS, WINDOWS)
    assert set(book) == {(layer, part) for layer in range(2) for part in PARTS}
    assert {one.rows for one in book.values()} == {sum(len(window) for window in WINDOWS)}
    embedded = torch.cat([WEIGHTS.embedding[window] for window in WINDOWS])
    x = embedded * torch.rsqrt(embedded.pow(2).mean(-1, keepdim=True) + 1e-5) * WEIGHTS.layers[0].attention_norm
    torch.testing.assert_close(book[0, "qkv"].products, x.T @ x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(book[0, "qkv"].peaks, x.abs().amax(0))


def test_a_model_of_matrices_is_a_model_of_tensors() -> None:
    made: list[tuple[int, str]] = []

    def same(layer: int, part: str, weight: Tensor) -> Matrix:
        made.append((layer, part))
        return Matrix(lambda x: F.linear(x, weight), weight.nbytes)

    model = with_matrices(WEIGHTS, same)
    assert made == [(layer, part) for layer in range(len(WEIGHTS.layers)) for part in PARTS]
    assert greedy(model, WINDOWS[0], 8) == naive_greedy(WEIGHTS, WINDOWS[0], 8)
    assert layer_bytes(model) == layer_bytes(WEIGHTS)


@pytest.mark.parametrize("form", list(WeightForm))
def test_each_form_of_weights_serves_and_takes_the_less_memory_the_fewer_its_bits(form: WeightForm) -> None:
    model = recast(WEIGHTS, form)
    bits = {WeightForm.FLOAT32: 32, WeightForm.BFLOAT16: 16, WeightForm.INT4: 4}.get(form, 8)
    # Micro matrices have as many scales as large ones have weights: a scale of 32 bits for 16 weights of four.
    assert layer_bytes(model) <= layer_bytes(WEIGHTS) * (bits + 4) / 32 + 1024
    assert compared(model).divergence_nats < {4: 1.0, 32: 1e-9}.get(bits, 1e-2)
    assert (model is WEIGHTS) == (form is WeightForm.FLOAT32)


def test_groups_fill_rows_of_any_length() -> None:
    assert [group_of(inputs) for inputs in (576, 1536, 96, 48, 10)] == [64, 64, 32, 16, 10]


def test_an_engine_serves_weights_of_the_form_that_is_asked_for(micro: ModelWeights) -> None:
    prompt = [(7 * i * i + 100) % 49_152 for i in range(24)]
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
    with run_engine(EngineConfig(model="tiny", kv_blocks=8, weights=WeightForm.INT4), micro) as running:
        answer = httpx.post(f"{running.url}/v1/completions", json=body, timeout=30).json()
    told = answer["choices"][0]["prompt_logprobs"][1:]
    served = torch.tensor([one[str(token)]["logprob"] for one, token in zip(told, prompt[1:], strict=True)])
    plain, rounded_to_four = (logprobs(model, prompt) for model in (micro, recast(micro, WeightForm.INT4)))
    torch.testing.assert_close(served, rounded_to_four, rtol=0.02, atol=0.02)
    assert (served - plain).abs().max() > 0.2


def logprobs(model: ModelWeights, tokens: list[int]) -> Tensor:
    """ln p of each token but the first."""
    [logits] = all_logits(model, [tokens])
    return logits.log_softmax(-1)[range(len(tokens) - 1), tokens[1:]]
