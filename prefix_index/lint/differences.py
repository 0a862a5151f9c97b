"""Where two texts part, where they meet again, and what stands between: as little as can be said without the text."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefix_index.layout import Cause, spots
from prefix_index.lint.types import CountTokens

_PARAGRAPHS: Final = re.compile(r"\n\s*\n|(?=<(?:document|doc|example|passage|chunk|context)\b)")
_STEP: Final = 4096


@dataclass(frozen=True, slots=True)
class Parting:
    """Two texts: the first `start` characters are the same, and the last `tail`; neither overlaps."""

    start: int
    tail: int

    def share(self, first: str, second: str) -> float:
        """How much of the shorter is the same."""
        return (self.start + self.tail) / max(min(len(first), len(second)), 1)


def parted(first: str, second: str) -> Parting:
    """Where two texts part and where they meet again. O(length)."""
    start = same_head(first, second)
    room = min(len(first), len(second)) - start
    return Parting(start, min(_same_tail(first, second), room))


def same_head(first: str, second: str) -> int:
    """How many characters two texts begin with in common; by steps, so that it costs little in Python."""
    limit = min(len(first), len(second))
    at = 0
    while at < limit and first[at : at + _STEP] == second[at : at + _STEP]:
        at = min(at + _STEP, limit)
    while at < limit and first[at] == second[at]:
        at += 1
    return at


def _same_tail(first: str, second: str) -> int:
    limit = min(len(first), len(second))
    at = 0
    while (
        at + _STEP <= limit
        and first[len(first) - at - _STEP : len(first) - at] == second[len(second) - at - _STEP : len(second) - at]
    ):
        at += _STEP
    while at < limit and first[-at - 1] == second[-at - 1]:
        at += 1
    return at


def cause_between(first: str, second: str, parting: Parting) -> Cause | None:
    """What changes from call to call and lies where two texts part; the same in both. None: nothing known."""
    ours = _causes(first, parting)
    theirs = _causes(second, parting)
    both = [cause for cause in ours if cause in theirs]
    return both[0] if both else next(iter([*ours, *theirs]), None)


def _causes(text: str, parting: Parting) -> list[Cause]:
    """By how near they are: what covers the place where the texts part comes first. Only the text around it is read."""
    begin = max(parting.start - 256, 0)
    end = min(len(text) - parting.tail + 256, parting.start + 4096)
    around = text[begin:end]
    at, until = parting.start - begin, max(len(text) - parting.tail - begin, parting.start - begin)
    return [one.cause for one in spots(around) if one.start <= until and one.end >= at]


def paragraphs(text: str) -> list[str]:
    """The blocks of a text that could stand in another order."""
    return [one.strip() for one in _PARAGRAPHS.split(text) if one.strip()]


def is_reordered(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two lists have the same items, at least three of them different ones, in another order."""
    return first != second and len(set(first)) > 1 and Counter(first) == Counter(second)


def moved_items(first: Sequence[str], second: Sequence[str]) -> int:
    """How many items both have that stand in another order than before; 0 where their order is the same."""
    common = Counter(first) & Counter(second)
    ours = [one for one in first if one in common]
    theirs = [one for one in second if one in common]
    return 0 if ours == theirs else sum(common.values())


def kept_tokens(before: Sequence[str], after: Sequence[str], count: CountTokens) -> int:
    """Tokens of texts of `after` that `before` had too: what could have been found again."""
    left = Counter(before)
    kept = 0
    for text in after:
        if left[text]:
            left[text] -= 1
            kept += count(text)
    return kept
