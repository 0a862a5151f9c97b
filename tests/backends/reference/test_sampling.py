"""Choosing the next token."""

import pytest
import torch

from backends.reference.sampling import new_generator, sample
from backends.reference.types import SamplingParams

LOGITS = torch.tensor([0.1, 3.0, 2.0, 2.9, -1.0])


def draws(params: SamplingParams, count: int = 300) -> list[int]:
    dice = new_generator(params)
    return [sample(LOGITS, params, dice) for _ in range(count)]


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_no_temperature_means_the_largest_logit(temperature: float) -> None:
    assert set(draws(SamplingParams(1, temperature=temperature), 5)) == {1}


def test_plain_sampling_reaches_every_token_in_proportion() -> None:
    seen = torch.tensor(draws(SamplingParams(1, seed=1), 4000)).bincount(minlength=5) / 4000
    torch.testing.assert_close(seen, LOGITS.softmax(-1), atol=0.04, rtol=0)


def test_top_k_keeps_the_k_largest() -> None:
    assert set(draws(SamplingParams(1, top_k=2, seed=1))) == {1, 3}
    assert set(draws(SamplingParams(1, top_k=99, seed=1))) >= {0, 1, 2, 3}


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    first, second = LOGITS.softmax(-1)[1].item(), LOGITS.softmax(-1)[3].item()
    assert set(draws(SamplingParams(1, top_p=first + second - 0.01, seed=1))) == {1, 3}
    assert set(draws(SamplingParams(1, top_p=first - 0.01, seed=1))) == {1}
    assert set(draws(SamplingParams(1, top_p=1e-9, seed=1))) == {1}
    # Below what float32 has, and no more than any other: nothing left to draw from would end the engine.
    assert set(draws(SamplingParams(1, top_p=1e-50, seed=1))) == {1}


def test_a_seed_fixes_the_draws_and_no_seed_does_not() -> None:
    seeded = SamplingParams(1, seed=7)
    assert draws(seeded) == draws(seeded)
    assert draws(SamplingParams(1)) != draws(SamplingParams(1))


def test_a_low_temperature_sharpens() -> None:
    assert draws(SamplingParams(1, temperature=0.1, seed=3)).count(1) > draws(SamplingParams(1, seed=3)).count(1)
