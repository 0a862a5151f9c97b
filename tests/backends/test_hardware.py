"""What is believed of a GPU and a model until something is measured."""

import pytest

from backends import EndpointId, PerfModel
from backends.hardware import BASE_S, GPUS, MODEL_SHAPES, expected_speed
from backends.simulated.presets import PRESETS
from gateway.config import Backend, ConfigInvalid, load_config
from gateway.edge.auth import open_to_all
from gateway.options import fleet_options, prior_of


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
    for model in MODEL_SHAPES:
        slow, middle, fast = (expected_speed(gpu, 1, model) for gpu in ("l4", "a100-80g", "h100"))
        assert slow.prefill_tokens_per_s < middle.prefill_tokens_per_s < fast.prefill_tokens_per_s
        assert slow.itl_s > middle.itl_s > fast.itl_s
    for gpu in GPUS:
        one, two = expected_speed(gpu), expected_speed(gpu, 2)
        assert two.prefill_tokens_per_s == pytest.approx(2 * one.prefill_tokens_per_s)


def test_an_endpoint_is_believed_to_be_as_its_gpu_and_by_its_own_rate_before_that() -> None:
    backends = [
        {"url": "http://a", "id": "a"},
        {"url": "http://b", "id": "b", "gpu": "l4"},
        {"url": "http://c", "id": "c", "gpu": "h100", "gpus": 4, "gpu_model": "llama-3.1-70b"},
        {"url": "http://d", "id": "d", "gpu": "l4", "prefill_tokens_per_s": 1234},
        {"url": "http://e", "id": "e", "prefill_tokens_per_s": 99},
    ]
    config = load_config(None, {}, {"backends": backends})
    speeds = fleet_options(config, open_to_all(b"")).speeds
    prior = config.scheduling
    alike = PerfModel(prior.base_s, prior.prefill_tokens_per_s, prior.quad_s_per_token2, prior.itl_s)
    assert speeds[EndpointId("a")] == alike
    assert speeds[EndpointId("b")] == expected_speed("l4")
    assert speeds[EndpointId("c")] == expected_speed("h100", 4, "llama-3.1-70b")
    assert speeds[EndpointId("d")].prefill_tokens_per_s == 1234
    assert speeds[EndpointId("d")].itl_s == expected_speed("l4").itl_s
    assert (speeds[EndpointId("e")].prefill_tokens_per_s, speeds[EndpointId("e")].itl_s) == (99, alike.itl_s)


@pytest.mark.parametrize("field", ["gpu", "gpu_model"])
def test_an_unknown_name_is_refused_with_those_that_are_known(field: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"abacus is none of .*(h100|llama)"):
        load_config(None, {}, {"backends": [{"url": "http://a", field: "abacus"}]})


def test_a_found_endpoint_is_believed_to_be_as_the_gpu_of_its_source() -> None:
    prior = load_config(None, {}, {}).scheduling
    assert prior_of(Backend.model_validate({"url": "http://p", "gpu": "b200"}), prior) == expected_speed("b200")
