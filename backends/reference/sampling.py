"""From logits to the next token: greedy, or drawn with temperature, top-k and top-p."""

import math
from typing import Final

import torch
from torch import Generator, Tensor

from backends.reference.errors import NoNumbers
from backends.reference.types import SamplingParams

GREEDY_BELOW = 1e-5
"""Temperatures this small would overflow the softmax; they mean greedy."""
_LEAST_MASS: Final = torch.finfo(torch.float32).tiny


def new_generator(params: SamplingParams) -> Generator:
    """The dice of one request: seeded when it asks for a seed, so its draws do not depend on its neighbours."""
    generator = Generator()
    if params.seed is None:
        generator.seed()
    else:
        generator.manual_seed(params.seed)
    return generator


def sample(logits: Tensor, params: SamplingParams, generator: Generator) -> int:
    """The next token for one row of logits [vocab].

    top-k keeps the k largest; top-p then keeps the smallest set of the most probable tokens whose mass reaches p, at
    least one. O(vocab) greedy, O(vocab log vocab) with top-p. Raises `NoNumbers`.
    """
    if params.temperature < GREEDY_BELOW:
        _check_numbers(logits)
        return int(logits.argmax())
    probabilities, order = _shares(logits, params)
    choice = int(torch.multinomial(probabilities, 1, generator=generator))
    return choice if order is None else int(order[choice])


def distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """The probabilities [vocab] that `sample` draws from, where `params` is not greedy; they sum to 1.
    Raises `NoNumbers`."""
    kept, order = _shares(logits, params)
    if order is not None:
        kept = torch.zeros_like(logits).index_copy_(0, order, kept)
    return kept / kept.sum()


def _shares(logits: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor | None]:
    """What each token is drawn with, in proportion, and which token each is; None where all stand in order."""
    _check_numbers(logits)
    scaled = logits / params.temperature
    order: Tensor | None = None
    if params.top_p < 1.0 or params.top_k > 0:
        scaled, order = scaled.topk(params.top_k if 0 < params.top_k < len(logits) else len(logits))
    probabilities = scaled.softmax(-1)
    if params.top_p < 1.0:
        # Mass before a token, not including it: the first token always stays, also with a top_p that would be 0 here.
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= max(params.top_p, _LEAST_MASS), 0.0)
    return probabilities, order


def _check_numbers(logits: Tensor) -> None:
    # The largest is NaN where any is.
    if not math.isfinite(float(logits.max())):
        raise NoNumbers
