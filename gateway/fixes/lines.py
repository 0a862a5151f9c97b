"""Lines of a system text that change from call to call, and that can go to its end without a hole where they stood.

    ---                                        You are a researcher.
    CURRENT_TIME: 2026-11-30T12:05:11Z         ...
    ---                                 -->    ---
    You are a researcher.                      CURRENT_TIME: 2026-11-30T12:05:11Z
    ...                                        ---

A line goes where it says by itself what it is: a label and a literal that is sure to change, and no sentence beside it.
It stays where it may be a part of something: of code, a table, JSON, a list that is numbered, a heading. Fences around
such lines at the head of a text go with them. Nothing is moved where more lines change than are allowed.

Lines are moved until none is left to move, so that a second time changes nothing; what does not come to rest is left
as it was. O(text), and the detectors only see lines that could hold such a literal.
"""

import re
from dataclasses import dataclass
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
_MOST_WORDS_BEFORE: Final = 8
_MOST_CHARS_BEFORE: Final = 64
_MOST_WORDS_AFTER: Final = 3
_FENCE: Final = "---"
_CODE_FENCES: Final = ("```", "~~~")
_PART_OF_SOMETHING: Final = re.compile(r"^\s*(?:[|\"'{\[#`~]|\d{1,3}[.)] )|[,{\[\\|]\s*$")
"""A table, JSON, code, a heading, a numbered item."""
_SENTENCE_ENDS: Final = re.compile(r"[.!?]\s|[。！？]")
_WORD: Final = re.compile(r"[^\W\d_]+")
_SUSPECT: Final = re.compile(r"\d|(?i:day|tag)\b|[曜星]")
"""Without any of these there is no literal of these kinds in a line."""


@dataclass(frozen=True, slots=True)
class Lines:
    """What is to be moved: the places of whole lines without their line ends (`spans`); what goes where they stood,
    line ends and all (`holes`); and whether they are to stand as a paragraph of their own."""

    spans: tuple[tuple[int, int], ...]
    holes: tuple[tuple[int, int], ...]
    paragraph: bool

    def said_by(self, text: str) -> str:
        """The lines, one below the other."""
        return "\n".join(text[start:end] for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


def movable_lines(text: str, *, also_last: bool = False) -> Lines | None:
    """The lines that can be moved behind all others; None where there are none. Those that end the text stay, unless
    `also_last`."""
    lines = _lines(text)
    changing = _changing(lines)
    groups = _groups(lines, changing) if changing else changing
    rest = [place for place, line in enumerate(lines) if place not in groups and not line.is_blank]
    if not groups or not rest:
        return None
    moved = [place for place in sorted(groups) if also_last or place < rest[-1]]
    if not moved:
        return None
    runs = _runs(moved)
    alone = [_is_paragraph(lines, first, last) for first, last in runs]
    holes = [_hole(lines, first, last, alone=one) for (first, last), one in zip(runs, alone, strict=True)]
    spans = tuple((lines[place].start, lines[place].end) for place in moved)
    return Lines(spans, tuple(holes), any(alone))


def how_many_change(text: str) -> int:
    """Lines that could be moved, wherever they stand."""
    return len(_changing(_lines(text)))


def separator(rest: str, *, paragraph: bool) -> str:
    """What stands between a text and lines that are put behind it."""
    ends = len(rest) - len(rest.rstrip("\n"))
    return "\n" * max((2 if paragraph else 1) - ends, 0) if rest else ""


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Places that follow each other, as first and last."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


def _is_paragraph(lines: list[_Line], first: int, last: int) -> bool:
    """Whether on both sides of some lines is a blank one, or the end of the text."""
    return (first == 0 or lines[first - 1].is_blank) and (last + 1 == len(lines) or lines[last + 1].is_blank)


def _hole(lines: list[_Line], first: int, last: int, *, alone: bool) -> tuple[int, int]:
    """What goes with some lines: their line ends, and of a paragraph one of the blank lines beside it."""
    if last + 1 == len(lines):  # nothing but the line end before them
        return max(lines[first].start - 1, 0), lines[last].end
    blank = alone and last + 2 < len(lines)
    return lines[first].start, lines[last + 1].end + 1 if blank else lines[last].end + 1


def _lines(text: str) -> list[_Line]:
    found, at = [], 0
    for piece in text.split("\n"):
        found.append(_Line(at, at + len(piece), piece))
        at += len(piece) + 1
    return found


def _changing(lines: list[_Line]) -> set[int]:
    """The places of lines that change and say by themselves what they are."""
    coded = _in_code(lines)
    suspects = [place for place, line in enumerate(lines) if _SUSPECT.search(line.text)]
    found = _spots_by_line([lines[place].text for place in suspects])
    return {
        place
        for place, in_line in zip(suspects, found, strict=True)
        if in_line and place not in coded and _stands_alone(lines[place].text, in_line)
    }


def _spots_by_line(texts: list[str]) -> list[list[Spot]]:
    """The spots of each of these lines; they are looked at together, since a list of steps is known by its numbers."""
    joined = "\n".join(texts)
    found: list[list[Spot]] = [[] for _ in texts]
    ends, at = [], 0
    for text in texts:
        at += len(text) + 1
        ends.append(at)
    place = 0
    for spot in spots(joined) if texts else ():
        while spot.start >= ends[place]:
            place += 1
        begin = ends[place] - len(texts[place]) - 1
        found[place].append(Spot(spot.start - begin, spot.end - begin, spot.cause, spot.volatility, spot.certainty))
    return found


def _in_code(lines: list[_Line]) -> set[int]:
    """The places of lines between fences of code; all to the end where one stays open."""
    inside, coded = False, set()
    for place, line in enumerate(lines):
        if line.text.lstrip().startswith(_CODE_FENCES):
            inside = not inside
        elif inside:
            coded.add(place)
    return coded


def _stands_alone(line: str, found: list[Spot]) -> bool:
    """Whether a line is a label and something that is sure to change."""
    sure = [spot for spot in found if spot.certainty >= Certainty.LIKELY]
    if not sure or any(spot.cause not in MOVABLE for spot in sure):
        return False
    if len(line) > LONGEST_LINE_CHARS or _PART_OF_SOMETHING.search(line):
        return False
    before, after = line[: found[0].start], line[found[-1].end :]
    if len(before) > _MOST_CHARS_BEFORE or len(_WORD.findall(before)) > _MOST_WORDS_BEFORE:
        return False
    if len(_WORD.findall(after)) > _MOST_WORDS_AFTER or _SENTENCE_ENDS.search(f"{before}|{after}"):
        return False
    return _WORD.search(before) is not None


def _groups(lines: list[_Line], changing: set[int]) -> set[int]:
    """The same, with the fences around them: at the head of the text, or at its end, where they were moved to."""
    groups = set(changing)
    for place, line in enumerate(lines):
        if line.text.strip() != _FENCE or place in groups:
            continue
        end = place + 1
        while end < len(lines) and end in changing:
            end += 1
        closed = end > place + 1 and end < len(lines) and lines[end].text.strip() == _FENCE
        if closed and (_all_blank(lines[:place]) or _all_done(lines, end + 1, changing)):
            groups |= {place, end}
    return groups


def _all_blank(lines: list[_Line]) -> bool:
    return all(line.is_blank for line in lines)


def _all_done(lines: list[_Line], place: int, changing: set[int]) -> bool:
    return all(line.is_blank or at in changing for at, line in enumerate(lines[place:], place))
