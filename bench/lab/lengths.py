"""Lengths of requests as people send them: prompts and answers of very different length, most of them short.

Log-normal about the means that were published of ShareGPT's conversations with OPT's tokenizer, 161 tokens of prompt
and 338 of answer (Kwon et al. 2023, arXiv:2309.06180, section 6.1). The spread is ours: a standard deviation of 1 of
the logarithm, so that one in ten is two and a half times as long as the mean, or more.
"""

import math
from random import Random
from typing import Final

from backends.reference.lab.loop import Work

PROMPT_MEAN: Final = 161
ANSWER_MEAN: Final = 338
_SPREAD: Final = 1.0
_VOCAB: Final = 40_000


def sharegpt_like(count: int, *, share: float, longest: int, seed: int = 1) -> list[Work]:
    """`count` requests of `share` of those lengths, each of `longest` tokens at most, prompts of random tokens."""
    dice = Random(seed)

    def length(mean: float, at_most: int) -> int:
        drawn = dice.lognormvariate(math.log(mean * share) - _SPREAD**2 / 2, _SPREAD)
        return max(1, min(round(drawn), at_most))

    load = []
    for _ in range(count):
        prompt = length(PROMPT_MEAN, longest // 2)
        answer = length(ANSWER_MEAN, longest - prompt)
        load.append(Work(tuple(dice.randrange(_VOCAB) for _ in range(prompt)), answer))
    return load
