"""What happens between a plan and the tokens that it gives: the part of a step that strategies differ in.

    plan ──slices──> forward -> commit -> sample ──tokens of each complete slice──> deliver
                     `----- Stepping.run -----'

`PlainSteps` computes what is known and draws one token behind it. `speculation.SpeculativeSteps` computes guesses too.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.generation import Generation
from backends.reference.sampling import sample
from backends.reference.scheduler import Scheduler, Slice


class Stepping(Protocol):
    """How an engine makes tokens of a plan; used on the engine's thread."""

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the model so far."""

    def run(self, slices: Sequence[Slice], complete: Sequence[Generation]) -> Sequence[Iterable[int]]:
        """Run the slices, commit them, and give the next tokens, at least one, of each generation of `complete`, whose
        slices are those that are complete, in order. The caller appends each token before it asks for the next, and
        asks for no more when the generation has ended. Asking raises `NoNumbers` where the model makes no token
        of this one."""


class PlainSteps:
    """One token a step and request."""

    def __init__(self, decoder: PagedDecoder, scheduler: Scheduler) -> None:
        self._decoder = decoder
        self._scheduler = scheduler
        self.computed_tokens = 0

    def run(self, slices: Sequence[Slice], complete: Sequence[Generation]) -> Sequence[Iterable[int]]:
        """As `Stepping` says."""
        logits = self._decoder.forward([_chunk(one) for one in slices]).cpu()
        self.computed_tokens += sum(one.count for one in slices)
        self._scheduler.commit(slices)
        return [_drawn(row, generation) for row, generation in zip(logits, complete, strict=True)]


def _drawn(row: Tensor, generation: Generation) -> Iterator[int]:
    with torch.inference_mode():
        token = sample(row, generation.request.sampling, generation.dice)
    yield token


def _chunk(one: Slice) -> Chunk:
    sequence = one.sequence
    return Chunk(
        tokens=sequence.tokens[one.start : one.end],
        start=one.start,
        blocks=sequence.blocks,
        wants_logits=one.is_complete,
    )
