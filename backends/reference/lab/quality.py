"""How good a model still is: what it makes of a text, and how often it says what the plain model says.

perplexity  exp of the mean -log p(next token), over windows of a text, each from an empty cache
divergence  mean KL(plain || this) a token, in nats: what of the plain model's odds is lost, whatever the text says
agreement   share of positions of the text at which both would say the same token next
answers     how many tokens of two greedy answers are the same before the first that differs (`common_start`)
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from backends.reference.decoder import Chunk
from backends.reference.lab.contiguous import ContiguousDecoder
from backends.reference.weights import ModelWeights


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one model on one text; the plain model has divergence 0 and agreement 1."""

    perplexity: float
    divergence_nats: float
    agreement: float


def windows_of(tokens: Sequence[int], length: int, count: int) -> list[list[int]]:
    """The first `count` windows of `length` tokens, side by side. ValueError where the text is too short."""
    if len(tokens) < length * count:
        raise ValueError(f"{len(tokens)} tokens are not {count} windows of {length}")
    return [list(tokens[at : at + length]) for at in range(0, length * count, length)]


def judge(logits: Iterable[Tensor], plain: Iterable[Tensor], windows: Sequence[Sequence[int]]) -> Quality:
    """Compare the logits of two models window by window, as `all_logits` gives them."""
    surprise, divergence, agreement, count = 0.0, 0.0, 0, 0
    for window, mine, theirs in zip(windows, logits, plain, strict=True):
        following = torch.tensor(window[1:], device=mine.device)
        mine_log, theirs_log = mine[:-1].log_softmax(-1), theirs[:-1].log_softmax(-1)
        surprise -= float(mine_log.gather(1, following[:, None]).sum())
        divergence += float(F.kl_div(mine_log, theirs_log, reduction="sum", log_target=True))
        agreement += int((mine_log.argmax(-1) == theirs_log.argmax(-1)).sum())
        count += len(following)
    return Quality(math.exp(surprise / count), divergence / count, agreement / count)


def greedy(weights: ModelWeights, prompt: Sequence[int], count: int) -> list[int]:
    """The next `count` tokens by the largest logit."""
    longest = len(prompt) + count
    decoder = ContiguousDecoder(weights, slots=1, max_positions=longest)
    said: list[int] = []
    fresh = list(prompt)
    for _ in range(count):
        [logits] = decoder.forward([Chunk(fresh, len(prompt) + len(said) - len(fresh), (0,), wants_logits=True)])
        fresh = [int(logits.argmax())]
        said += fresh
    return said


def common_start(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def all_logits(weights: ModelWeights, windows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """The logits [length, vocab] at every position of each window, one window after the other."""
    for window in windows:
        decoder = ContiguousDecoder(weights, slots=1, max_positions=len(window))
        yield decoder.forward([Chunk(window, 0, (0,), wants_logits=True, tail=len(window))])
