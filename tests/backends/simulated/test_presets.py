"""The presets give back what was published or measured of the engines they stand for."""

import pytest

from backends.simulated import PRESETS


def test_the_two_h100_pod_decodes_as_fast_as_the_published_stage() -> None:
    perf = PRESETS["qwen3_32b_2xh100"].perf
    running = round(14.87 / 8 * 63.34)
    assert perf.decode_step_s(running, running * (7584 + 937 // 2)) == pytest.approx(0.063, rel=0.1)
    assert 7200 / perf.prefill_s(7200, 7200) == pytest.approx(15_928, rel=0.1)


def test_the_cpu_engine_takes_the_measured_time_for_a_cold_and_a_warm_prompt() -> None:
    perf = PRESETS["reference_cpu"].perf
    assert perf.prefill_s(2409, 2409) == pytest.approx(8.796)
    assert perf.prefill_s(11, 2411) == pytest.approx(0.125)


def test_an_eight_billion_model_on_one_h100_prefills_within_the_usual_range() -> None:
    spec = PRESETS["llama_8b_h100"]
    assert 25_000 < spec.perf.prefill_tokens_per_s < 30_000
    assert 400_000 < spec.capacity_blocks * spec.block_size < 460_000
