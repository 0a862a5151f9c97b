"""What is believed of a GPU and a model until something is measured."""

import pytest

from backends.hardware import BASE_S, GPUS, expected_speed
from backends.models import CATALOGUE
from backends.simulated.presets import PRESETS


def test_a_model_on_a_gpu_is_as_fast_as_the_arithmetic_says() -> None:
    """Llama-3.1-70B on four H100, a prompt of 8,192 tokens: 1.16 PFLOP of weights and 0.18 of attention, each of whose
    pairs is counted, at 4 · 989 · 0.45 TFLOP/s."""
    speed = expected_speed("h100", 4, "llama-3.1-70b")
    pflop = 2 * 70.6e9 * 8192 + 4 * 80 * 64 * 128 * 8192**2
    assert speed.prefill_s(8192, 8192) - BASE_S == pytest.approx(pflop / (4 * 0.45 * 989e12), rel=1e-6)
    assert speed.prefill_s(8192, 8192) == pytest.approx(0.77, abs=0.02)
    assert speed.itl_s == pytest.approx(2 * 70.6e9 / (0.7 * 4 * 3.35e12))


def test_it_agrees_with_the_simulated_engine_of_the_same_gpu_and_model() -> None:
    preset, expected = PRESETS["llama_8b_h100"].perf, expected_speed("h100")
    for name in ("base_s", "prefill_tokens_per_s", "quad_s_per_token2", "itl_s"):
        assert getattr(expected, name) == pytest.approx(getattr(preset, name), rel=1e-6)


def test_of_two_gpus_the_faster_one_is_believed_to_be_faster_by_any_model() -> None:
    for model in CATALOGUE:
        slow, middle, fast = (expected_speed(gpu, 1, model) for gpu in ("l4", "a100-80g", "h100"))
        assert slow.prefill_tokens_per_s < middle.prefill_tokens_per_s < fast.prefill_tokens_per_s
        assert slow.itl_s > middle.itl_s > fast.itl_s
    for gpu in GPUS:
        one, two = expected_speed(gpu), expected_speed(gpu, 2)
        assert two.prefill_tokens_per_s == pytest.approx(2 * one.prefill_tokens_per_s)
