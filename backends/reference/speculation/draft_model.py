"""Drafts by a model that costs less: a small one of the same vocabulary, or the first layers of the served one.

    block table of a request     [ 3 | 1 | 8 ]
    the model's cache            blocks 0 ... n        one numbering: what is shared, evicted and preempted there is
    the draft's cache            blocks 0 ... n        shared, evicted and preempted here

The draft computes every token that the model computes, prompts included, so whatever the prefix cache holds it holds
for both, and there is nothing else to keep in step. Of its own guesses the draft has computed all but the last, so it
begins each slice one token early: where that token was its guess it is new, else it is written once more as it was.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.errors import NoNumbers
from backends.reference.generation import Generation
from backends.reference.sampling import GREEDY_BELOW, distribution
from backends.reference.scheduler import Slice
from backends.reference.speculation.drafts import Draft
from backends.reference.weights import ModelWeights


def first_layers(weights: ModelWeights, layers: int) -> ModelWeights:
    """A model of the first `layers` layers, with the norm and head of the whole; shares all tensors."""
    count = min(layers, len(weights.layers))
    return replace(weights, shape=replace(weights.shape, layers=count), layers=weights.layers[:count])


class ModelDrafter:
    """A draft model with a cache of its own. Greedy requests are drafted greedily, others drawn with the request's own
    temperature, top-k and top-p."""

    def __init__(self, weights: ModelWeights, *, kv_blocks: int, block_size: int, max_positions: int) -> None:
        self._decoder = PagedDecoder(weights, kv_blocks=kv_blocks, block_size=block_size, max_positions=max_positions)
        # A block that ends with the last guess of an answer that is over is cached here without that token, until a
        # request that goes on behind it computes it. Zeros until then, so that no draft can be worse than wrong.
        self._decoder.kv.zero_()

    @torch.inference_mode()
    def draft(
        self, slices: Sequence[Slice], complete: Sequence[Generation], room_tokens: Sequence[int]
    ) -> Sequence[Draft]:
        """As `Drafter` says."""
        rooms = iter(room_tokens)
        chunks = [self._caught_up(one, next(rooms) > 0 if one.is_complete else False) for one in slices]
        guesses = [_Guess(generation, room) for generation, room in zip(complete, room_tokens, strict=True)]
        growing = [guess for guess in guesses if guess.room_tokens > 0]
        while True:
            for guess, row in zip(growing, self._decoder.forward(chunks).cpu(), strict=True):
                guess.take(row)
            growing = [guess for guess in growing if len(guess.tokens) < guess.room_tokens]
            if not growing:
                return [guess.draft() for guess in guesses]
            chunks = [guess.last_chunk() for guess in growing]

    def _caught_up(self, one: Slice, wants_logits: bool) -> Chunk:
        start = max(one.start - 1, 0)
        return Chunk(one.sequence.tokens[start : one.end], start, one.sequence.blocks, wants_logits)


class _Guess:
    """A draft in the making."""

    def __init__(self, generation: Generation, room_tokens: int) -> None:
        self._generation = generation
        self.room_tokens = room_tokens
        self.tokens: list[int] = []
        self._shares: list[Tensor] = []

    def take(self, logits: Tensor) -> None:
        """Guess a token; none any more where nothing can be drawn."""
        params = self._generation.request.sampling
        if params.temperature < GREEDY_BELOW:
            self.tokens.append(int(logits.argmax()))
            return
        try:
            shares = distribution(logits, params)
        except NoNumbers:
            self.room_tokens = len(self.tokens)
            return
        self._shares.append(shares)
        self.tokens.append(int(torch.multinomial(shares, 1, generator=self._generation.dice)))

    def last_chunk(self) -> Chunk:
        """The last guess, to be computed."""
        sequence = self._generation.sequence
        at = len(sequence.tokens) + len(self.tokens) - 1
        return Chunk(self.tokens[-1:], at, sequence.blocks, wants_logits=True)

    def draft(self) -> Draft:
        """What has become of it."""
        return Draft(self.tokens, torch.stack(self._shares) if self._shares else None)
