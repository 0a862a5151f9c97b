"""From logits to the next token: greedy, or drawn with temperature, top-k and top-p."""

import torch
from torch import Generator, Tensor

from backends.reference.types import SamplingParams

GREEDY_BELOW = 1e-5
"""Temperatures this small would overflow the softmax; they mean greedy."""


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
    least one. O(vocab) greedy, O(vocab log vocab) with top-p.
    """
    if params.temperature < GREEDY_BELOW:
        return int(logits.argmax())
    scaled = logits / params.temperature
    order: Tensor | None = None
    if params.top_p < 1.0 or params.top_k > 0:
        scaled, order = scaled.topk(params.top_k if 0 < params.top_k < len(logits) else len(logits))
    probabilities = scaled.softmax(-1)
    if params.top_p < 1.0:
        # Mass before a token, not including it: the first token always stays.
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= params.top_p, 0.0)
    choice = int(torch.multinomial(probabilities, 1, generator=generator))
    return choice if order is None else int(order[choice])
