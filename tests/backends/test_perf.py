"""The cost terms, in seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.perf import PerfModel

tokens = st.integers(0, 1_000_000)


def test_prefill_is_base_plus_linear_plus_attention() -> None:
    model = PerfModel(base_s=0.5, prefill_tokens_per_s=100.0, quad_s_per_token2=0.001, itl_s=0.1)
    assert model.prefill_s(10, 50) == pytest.approx(0.5 + 0.1 + 0.5)
    assert model.wait_s(200) == 2.0
    assert model.decode_s(30) == pytest.approx(3.0)


def test_the_end_of_a_long_prompt_costs_more_than_a_short_prompt_of_as_many_tokens() -> None:
    assert PerfModel().prefill_s(1000, 100_000) > PerfModel().prefill_s(1000, 1000)


@given(tokens, tokens, tokens)
def test_computing_more_of_a_prompt_never_takes_less_time(u: int, more: int, rest: int) -> None:
    prompt_tokens = u + more + rest
    assert PerfModel().prefill_s(u, prompt_tokens) <= PerfModel().prefill_s(u + more, prompt_tokens)


@pytest.mark.parametrize(
    "wrong", [{"prefill_tokens_per_s": 0}, {"base_s": -1}, {"quad_s_per_token2": -1}, {"itl_s": -1}]
)
def test_impossible_speeds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        PerfModel(**wrong)


def test_a_long_prompt_queues_as_more_tokens_than_it_has() -> None:
    model = PerfModel(base_s=0.5, prefill_tokens_per_s=1000.0, quad_s_per_token2=1e-7)
    queued = model.queue_tokens(10_000, 50_000)
    assert queued == pytest.approx(10_000 * 6)
    assert model.wait_s(queued) == pytest.approx(model.prefill_s(10_000, 50_000) - model.base_s)
