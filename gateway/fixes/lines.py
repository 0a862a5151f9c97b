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
as it was.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from gateway.fixes.line_verdicts import changing

_FENCE: Final = "---"
_CODE_FENCES: Final = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class Lines:
    """What is to be moved: the places of whole lines without their line ends (`spans`); what goes where they stood,
    line ends and all (`holes`); and whether they are to stand as a paragraph of their own."""

    spans: tuple[tuple[int, int], ...]
    holes: tuple[tuple[int, int], ...]
    paragraph: bool
    count: int
    """Lines that change, fences apart."""

    def said_by(self, text: str) -> str:
        """The lines, one below the other."""
        return "\n".join(text[start:end] for start, end in self.spans)


def movable_lines(text: str, most: int, *, also_last: bool = False) -> Lines | None:
    """The lines that can be moved behind all others; None where there are none, or more than `most` change. Those that
    end the text stay, unless `also_last`. O(text)."""
    lines = text.split("\n")
    found = changing(lines)
    if found and any(fence in text for fence in _CODE_FENCES):
        found -= _in_code(lines)
    if not 0 < len(found) <= most:
        return None
    groups = _with_fences(lines, found)
    last = next((at for at in range(len(lines) - 1, -1, -1) if at not in groups and not _is_blank(lines, at)), None)
    if last is None:
        return None
    moved = [place for place in sorted(groups) if also_last or place < last]
    if not moved:
        return None
    runs = _runs(moved)
    alone = [_is_blank(lines, first - 1) and _is_blank(lines, end + 1) for first, end in runs]
    starts = [*accumulate((len(line) + 1 for line in lines), initial=0)]
    return Lines(
        spans=tuple([(starts[place], starts[place + 1] - 1) for place in moved]),
        holes=tuple([_hole(starts, first, end, alone=one) for (first, end), one in zip(runs, alone, strict=True)]),
        paragraph=any(alone),
        count=len(found.intersection(moved)),
    )


def separator(rest: str, *, paragraph: bool) -> str:
    """What stands between a text and lines that are put behind it."""
    ends = len(rest) - len(rest.rstrip("\n"))
    return "\n" * max((2 if paragraph else 1) - ends, 0) if rest else ""


def _is_blank(lines: list[str], place: int) -> bool:
    """Whether there is nothing at a place: a blank line, or an end of the text."""
    return not 0 <= place < len(lines) or not lines[place].strip()


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Places that follow each other, as first and last."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return runs


def _hole(starts: list[int], first: int, end: int, *, alone: bool) -> tuple[int, int]:
    """What goes with some lines: their line ends, and of a paragraph one of the blank lines beside it."""
    lines = len(starts) - 1
    if end + 1 == lines:  # nothing but the line end before them
        return max(starts[first] - 1, 0), starts[-1] - 1
    return starts[first], starts[end + 2] if alone and end + 2 < lines else starts[end + 1]


def _in_code(lines: list[str]) -> set[int]:
    """The places of lines between fences of code; all to the end where one stays open."""
    inside, coded = False, set()
    for place, line in enumerate(lines):
        if line.lstrip().startswith(_CODE_FENCES):
            inside = not inside
        elif inside:
            coded.add(place)
    return coded


def _with_fences(lines: list[str], found: set[int]) -> set[int]:
    """The same, with the fences around them: at the head of the text, or at its end, where they were moved to."""
    groups = set(found)
    for first, end in _runs(sorted(found)):
        before, after = first - 1, end + 1
        if before < 0 or after >= len(lines) or lines[before].strip() != _FENCE or lines[after].strip() != _FENCE:
            continue
        at_head = all(_is_blank(lines, place) for place in range(before))
        if at_head or all(place in found or _is_blank(lines, place) for place in range(after + 1, len(lines))):
            groups |= {before, after}
    return groups
