"""Requests through a batcher and a decoder, step by step, in the caller's thread: the engine without its fence.

    arrivals --add--> batcher --plan--> slices --decode--> next tokens --commit--> ... until each has its length

Whatever has the scheduler's interface is a batcher, and whatever says the next token of each complete slice decodes: a
model, or nothing at all where only lengths matter (`reservation`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from backends.reference.decoder import Chunk
from backends.reference.scheduler import Slice
from backends.reference.sequence import Sequence as Request
from backends.reference.types import GenerationRequest, RequestId, SamplingParams


class Batcher(Protocol):
    """What decides which tokens run in the next step."""

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""

    def add(self, sequence: Request) -> None:
        """Queue a request."""

    def plan(self) -> list[Slice]:
        """The slices of the next step."""

    def commit(self, slices: Iterable[Slice]) -> None:
        """The slices ran."""

    def remove(self, sequence: Request) -> None:
        """The request is finished."""


class Decoder(Protocol):
    """What runs chunks through a model."""

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Logits of the chunks that want them."""


Decode = Callable[[Sequence[Slice]], Sequence[int]]
"""The next token of each complete slice, in order."""


@dataclass(frozen=True, slots=True)
class Work:
    """A prompt, how many tokens to answer it with, and the step before which it arrives."""

    prompt: tuple[int, ...]
    output_tokens: int
    at_step: int = 0


@dataclass(slots=True)
class Served:
    """What became of one `Work`: its tokens, and when each came, in seconds since the first step began.

    `arrived_s`: when it was queued.
    """

    arrived_s: float
    tokens: list[int] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    @property
    def longest_pause_s(self) -> float:
        """The longest wait between two of its tokens; 0 for fewer than two."""
        return max((b - a for a, b in zip(self.times_s, self.times_s[1:], strict=False)), default=0.0)


def run(
    batcher: Batcher, decode: Decode, load: Sequence[Work], clock: Callable[[], float], block_size: int
) -> list[Served]:
    """Serve `load`, sorted by `at_step`, to its end; what became of each, in the same order."""
    served: list[Served] = []
    open_requests: dict[Request, tuple[Work, Served]] = {}
    began_s, step = clock(), 0
    while len(served) < len(load) or batcher.has_work:
        while len(served) < len(load) and load[len(served)].at_step <= step:
            work, mine = load[len(served)], Served(clock() - began_s)
            request = _request(work, len(served), block_size)
            open_requests[request] = (work, mine)
            served.append(mine)
            batcher.add(request)
        step += 1
        if not batcher.has_work:
            continue
        slices = batcher.plan()
        tokens = decode(slices)
        batcher.commit(slices)
        now_s = clock() - began_s
        for one, token in zip([one for one in slices if one.is_complete], tokens, strict=True):
            work, mine = open_requests[one.sequence]
            one.sequence.tokens.append(token)
            mine.tokens.append(token)
            mine.times_s.append(now_s)
            if len(mine.tokens) == work.output_tokens:
                batcher.remove(one.sequence)
    return served


def greedily(decoder: Decoder) -> Decode:
    """Next tokens by the largest logit."""

    def decode(slices: Sequence[Slice]) -> Sequence[int]:
        chunks = [
            Chunk(one.sequence.tokens[one.start : one.end], one.start, one.sequence.blocks, one.is_complete)
            for one in slices
        ]
        chosen: list[int] = torch.argmax(decoder.forward(chunks), dim=-1).tolist()
        return chosen

    return decode


def _request(work: Work, number: int, block_size: int) -> Request:
    sampling = SamplingParams(max_tokens=work.output_tokens, temperature=0.0, ignore_eos=True)
    return Request(GenerationRequest(RequestId(str(number)), work.prompt, sampling), block_size)
