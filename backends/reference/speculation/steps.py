"""The step of an engine that speculates.

    tokens known      [ p p p p o ]                     slice: the last one, 1 token
    + draft           [ p p p p o | d0 d1 d2 d3 ]       one forward, logits of 5 rows
    kept              [ p p p p o | d0 d1 | t2 ]        d0, d1: their keys are in the cache; t2: the next step's slice

A draft takes what is left of a step: of its tokens, of the free blocks, of the answer. It preempts nobody and delays
no prompt. What is written of rejected tokens is behind the end of the request, where nobody looks, until other tokens
are written over it.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from backends.reference.decoder import Chunk, PagedDecoder
from backends.reference.generation import Generation
from backends.reference.metrics import SpeculationCounters
from backends.reference.scheduler import Scheduler, Slice
from backends.reference.speculation.drafts import Draft, Drafter
from backends.reference.speculation.verifying import verified


class SpeculativeSteps:
    """Several tokens a step and request; `longest_tokens` is the longest draft, `budget_tokens` that of a step."""

    def __init__(
        self,
        decoder: PagedDecoder,
        scheduler: Scheduler,
        drafter: Drafter,
        counters: SpeculationCounters,
        *,
        longest_tokens: int,
        budget_tokens: int,
    ) -> None:
        self._decoder = decoder
        self._scheduler = scheduler
        self._drafter = drafter
        self._counters = counters
        self._longest_tokens = longest_tokens
        self._budget_tokens = budget_tokens
        self.computed_tokens = 0

    def run(self, slices: Sequence[Slice], complete: Sequence[Generation]) -> Sequence[Iterable[int]]:
        """As `Stepping` says; draft tokens count as computed."""
        drafts = self._drafter.draft(slices, complete, self._rooms(slices, complete))
        chunks = list(_chunks(slices, drafts))
        logits = self._decoder.forward(chunks).cpu()
        self.computed_tokens += sum(len(chunk.tokens) for chunk in chunks)
        self._scheduler.commit(slices)
        kept: list[Iterable[int]] = []
        row = 0
        for generation, draft in zip(complete, drafts, strict=True):
            rows = logits[row : row + len(draft.tokens) + 1]
            row += len(rows)
            self._count_draft(generation, len(draft.tokens))
            kept.append(self._one_by_one(generation, rows, draft))
        return kept

    def _rooms(self, slices: Sequence[Slice], complete: Sequence[Generation]) -> list[int]:
        """How long the drafts may be: the last token of an answer needs none behind it."""
        left = self._budget_tokens - sum(one.count for one in slices)
        rooms: list[int] = []
        for one, generation in zip((one for one in slices if one.is_complete), complete, strict=True):
            to_come = generation.request.sampling.max_tokens - one.sequence.output_tokens - 1
            room = self._scheduler.lend(one, max(min(self._longest_tokens, to_come, left), 0))
            left -= room
            rooms.append(room)
        return rooms

    def _one_by_one(self, generation: Generation, rows: Tensor, draft: Draft) -> Iterator[int]:
        with torch.inference_mode():
            tokens = verified(rows, draft, generation.request.sampling, generation.dice)
        sequence = generation.sequence
        for token in tokens[:-1]:
            sequence.accepted_tokens = (sequence.accepted_tokens or 0) + 1
            self._counters.accepted_tokens.inc()
            yield token
            self._scheduler.advance(sequence)
        yield tokens[-1]

    def _count_draft(self, generation: Generation, tokens: int) -> None:
        sequence = generation.sequence
        sequence.drafted_tokens = (sequence.drafted_tokens or 0) + tokens
        if tokens:
            self._counters.drafts.inc()
            self._counters.draft_tokens.inc(tokens)


def _chunks(slices: Sequence[Slice], drafts: Sequence[Draft]) -> Iterator[Chunk]:
    behind = iter(drafts)
    for one in slices:
        sequence = one.sequence
        known = sequence.tokens[one.start : one.end]
        if one.is_complete:
            guessed = next(behind).tokens
            yield Chunk([*known, *guessed], one.start, sequence.blocks, wants_logits=True, tail=len(guessed) + 1)
        else:
            yield Chunk(known, one.start, sequence.blocks, wants_logits=False)
