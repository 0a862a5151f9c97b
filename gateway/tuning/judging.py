"""What quality is in figures: of a text that was read, of answers held against others, of tasks. Pure.

perplexity      exp of the mean of −ln p(token | those before); a model that guesses among n equal ones has n
change          of two settings by the same tokens, pair by pair: its error is far smaller than that of either
agreement       greedy answers, token by token from the first; after the first that differs they are different stories
"""

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.tuning.types import Answer, Reading, Token

_NO_WORD: Final = re.compile(r"[^\w.,%$€'+-]+")
_ENDS: Final = ".,'+-"
"""Marks that belong to a number within a word, and to nothing at its ends."""


@dataclass(frozen=True, slots=True)
class Change:
    """Perplexity over the baseline's, and the standard error of that ratio. Within two of them of 1 it is no change."""

    ratio: float
    error: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of answers with the baseline's. `equal` of all tokens, the longer answer's, stand before the first difference;
    `same` of `of` answers have none; `diverges_at` is the first place of one in any answer, None where there is none.
    """

    equal: float
    same: int
    of: int
    diverges_at: int | None


def perplexity(reading: Reading) -> float | None:
    """Of the tokens of the text but the first. None where it is more than any number: an engine that gives the text no
    chance at all tells -9999 for a token, or the like."""
    return _exp(-statistics.fmean(reading.logprobs))


def bits_per_byte(reading: Reading) -> float:
    """The same held against the text's length, so that models with different tokenizers can be compared."""
    return -math.fsum(reading.logprobs) / math.log(2) / reading.text_bytes


def change(base: Reading, other: Reading) -> Change | None:
    """None where they read different tokens, or it is more than any number. The error is that of a mean of pairs, by
    the delta method; infinite of one token. O(tokens)."""
    if len(base.logprobs) != len(other.logprobs):
        return None
    differences = [a - b for a, b in zip(base.logprobs, other.logprobs, strict=True)]
    ratio = _exp(statistics.fmean(differences))
    if ratio is None:
        return None
    count = len(differences)
    error = ratio * statistics.stdev(differences) / math.sqrt(count) if count > 1 else math.inf
    return Change(ratio, error)


def _exp(exponent: float) -> float | None:
    try:
        return math.exp(exponent)
    except OverflowError:
        return None


def agreement(base: Sequence[Answer], others: Sequence[Answer]) -> Agreement | None:
    """Answer by answer; None where they were not asked the same number of questions, or none. O(tokens)."""
    if len(base) != len(others):
        return None
    return _agreement([(one.tokens, other.tokens) for one, other in zip(base, others, strict=True)])


def repeated(answers: Sequence[Answer]) -> Agreement | None:
    """Of answers with themselves, asked again: what of any difference is chance. None where nothing was asked twice."""
    return _agreement([(one.tokens, one.again) for one in answers if one.again is not None])


def _agreement(pairs: Sequence[tuple[Sequence[Token], Sequence[Token]]]) -> Agreement | None:
    if not pairs:
        return None
    heads = [common(one, other) for one, other in pairs]
    lengths = [max(len(one), len(other)) for one, other in pairs]
    differing = [head for head, length in zip(heads, lengths, strict=True) if head < length]
    total = sum(lengths)
    return Agreement(
        equal=sum(heads) / total if total else 1.0,
        same=len(pairs) - len(differing),
        of=len(pairs),
        diverges_at=min(differing, default=None),
    )


def common(one: Sequence[Token], other: Sequence[Token]) -> int:
    """Tokens at the beginning that are the same. O(n)."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def is_exact(answer: str, right: Sequence[str]) -> bool:
    """Whether the answer is one of these, but for case, spaces, and marks at its ends."""
    return _plain(answer) in {_plain(one) for one in right}


def is_said(answer: str, right: Sequence[str]) -> bool:
    """Whether one of these stands in the answer's first line as whole words."""
    lines = answer.strip().splitlines()
    line = f" {_plain(lines[0])} " if lines else ""
    return any(f" {_plain(one)} " in line for one in right)


def _plain(text: str) -> str:
    words = (word.strip(_ENDS) for word in _NO_WORD.sub(" ", text.casefold()).split())
    return " ".join(word for word in words if word)
