"""Which lines of a text change from call to call and say by themselves what they are.

    Current time: 2026-11-30T12:05:11Z     changes: a label, and a literal that is sure to change
    Turn 7 of 10                           changes, unless other lines count with the same word: then it is a list
    Cite at least 3 sources.               stays

What a line says is judged once and remembered: of a prompt that came before, only the lines that changed are looked at.
Costs 0.1 µs for a line that is known, some 50 µs for one that is not; memory is bounded.
"""

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from prefix_index.layout import Cause, Certainty, Spot, spots

MOVABLE: Final = frozenset(
    {
        Cause.TIME,
        Cause.DATE,
        Cause.EPOCH,
        Cause.UUID,
        Cause.HEX_ID,
        Cause.REQUEST_ID,
        Cause.SESSION_ID,
        Cause.COUNTER,
    }
)
LONGEST_LINE_CHARS: Final = 160
_REMEMBERED_LINES: Final = 16_384
_MOST_WORDS_BEFORE: Final = 8
_MOST_CHARS_BEFORE: Final = 64
_MOST_WORDS_AFTER: Final = 3
_PART_OF_SOMETHING: Final = re.compile(r"^\s*(?:[|\"'{\[#`~]|\d{1,3}[.)] )|[,{\[\\|]\s*$")
"""A table, JSON, code, a heading, a numbered item."""
_SENTENCE_ENDS: Final = re.compile(r"[.!?]\s|[。！？]")
_OF_EXAMPLES: Final = re.compile(
    r"\W*(?:example|sample|input|output|question|answer|query|response|user|assistant|human|ai|q|a|in|out)"
    r"(?: ?\d+)?[*_]{0,2} ?[:：=]",
    re.IGNORECASE,
)
"""What is shown to the model, and no news."""
_LABEL: Final = re.compile(r"[^:：=\d]{1,64}[:：=]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_SUSPECT: Final = re.compile(r"\d|(?i:day|tag)\b|[曜星]")
"""Without any of these there is no literal of these kinds in a line."""


class _Verdict(Enum):
    STAYS = auto()
    CHANGES = auto()
    COUNTS = auto()


_STAYS: Final = _Verdict.STAYS


def changing(lines: Sequence[str]) -> set[int]:
    """The places of the lines that change. O(lines) where they are known."""
    found: set[int] = set()
    counts: set[int] = set()
    for place, line in enumerate(lines):
        if len(line) <= LONGEST_LINE_CHARS:
            verdict = _judged(line)
            if verdict is not _STAYS:
                (counts if verdict is _Verdict.COUNTS else found).add(place)
    found |= counts & _alone(lines) if counts else set()
    return _of_no_list(lines, found) if found else found


def _of_no_list(lines: Sequence[str], found: set[int]) -> set[int]:
    """Without those whose label other lines have too: `Input: ...` of one example and of the next."""
    labels = Counter(label[0].strip().lower() for line in lines if (label := _LABEL.match(line)))
    named = {place: label[0].strip().lower() for place in found if (label := _LABEL.match(lines[place]))}
    return {place for place in found if labels[named.get(place, "")] < 2}


@lru_cache(_REMEMBERED_LINES)
def _judged(line: str) -> _Verdict:
    if not _SUSPECT.search(line) or _PART_OF_SOMETHING.search(line) or len(line.splitlines()) > 1:
        return _STAYS
    found = spots(line)
    if not _stands_alone(line, found):
        return _STAYS
    return _Verdict.COUNTS if any(spot.cause is Cause.COUNTER for spot in found) else _Verdict.CHANGES


def _stands_alone(line: str, found: list[Spot]) -> bool:
    """Whether a line is a label and something that is sure to change."""
    sure = [spot for spot in found if spot.certainty >= Certainty.LIKELY]
    if not sure or any(spot.cause not in MOVABLE for spot in sure):
        return False
    before, after = line[: found[0].start], line[found[-1].end :]
    if len(before) > _MOST_CHARS_BEFORE or len(_WORD.findall(before)) > _MOST_WORDS_BEFORE:
        return False
    if _OF_EXAMPLES.match(before):
        return False
    if len(_WORD.findall(after)) > _MOST_WORDS_AFTER or _SENTENCE_ENDS.search(f"{before}|{after}"):
        return False
    return _WORD.search(before) is not None


def _alone(lines: Sequence[str]) -> set[int]:
    """The places of lines that stand alone also when all lines with numbers are looked at together."""
    numbered = [place for place, line in enumerate(lines) if _SUSPECT.search(line)]
    found: dict[int, list[Spot]] = {}
    ends, at = [], 0
    for place in numbered:
        at += len(lines[place]) + 1
        ends.append(at)
    rank = 0
    for spot in spots("\n".join([lines[place] for place in numbered])):
        while spot.start >= ends[rank]:
            rank += 1
        begin = ends[rank] - len(lines[numbered[rank]]) - 1
        moved = Spot(spot.start - begin, spot.end - begin, spot.cause, spot.volatility, spot.certainty)
        found.setdefault(numbered[rank], []).append(moved)
    return {place for place, in_line in found.items() if _stands_alone(lines[place], in_line)}
