"""The parts of a message that can be moved as a whole without changing what they say.

    ---                                     \\
    CURRENT_TIME: {{ CURRENT_TIME }}         > a paragraph: one unit
    ---                                     /

    You are a researcher. Today is {{ d }}.     a sentence that only tells the time is a unit of its own

    # Notes                                 \\
    - Cite your sources.                     > a list: its intro, and each item that holds a slot
    - Answer in {{ locale }}.               /

What belongs together stays together: a fence and what it encloses, `<tag>` to `</tag>`, a line that ends with a colon
and what it announces, a heading and its only paragraph, an item and what is indented below it, the lines of code, of
data, of a dialogue. An item of a numbered list stays in its place. Units are slices of the source without the white
space between them.

Structure is read in a copy of the source in which everything but fixed text is blotted out, so that what a slot or a
control structure holds is never taken for a line of the prompt.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from prefix_index.layout.template import Segment, SegmentKind
from prefix_index.layout.types import Cause, Volatility

_BLOT: Final = "\ufffc"
_FENCE: Final = re.compile(r"[ \t]*(?:```|~~~)")
_RULE: Final = re.compile(r"[ \t]*(?:-{3,}|\*{3,}|_{3,}|={3,})[ \t]*$")
_TAG: Final = re.compile(r"[ \t]*<(/?)([A-Za-z][\w =\"'(),.:-]{0,120})>[ \t]*$")
_HEADING: Final = re.compile(r"[ \t]*#{1,6}[ \t]")
_NUMBERED: Final = re.compile(r"[ \t]*(?:\d{1,3}[.)]|\(\d{1,3}\)|[一二三四五六七八九十]、)[ \t]?")
_BULLET: Final = re.compile(r"([ \t]*)[-*+•·][ \t]")
_ENDS_SENTENCE: Final = re.compile(r"[.!?。！？\ufffc][\"'”’)\]*_`]{0,4}[ \t]*$")
_LABELLED: Final = re.compile(r"[ \t>*_]{0,8}[\w][\w /'’.()-]{0,40}[*_]{0,2}[:：=][*_]{0,2}[ \t]*[^\s:：,]")
_ANNOUNCES: Final = re.compile(r"[:：][*_]{0,2}[ \t]*$")
_OPEN_END: Final = re.compile(r"(?:[:：][*_\"'`]{0,3}|\$|(?:^|\n)[>#]{1,3})[ \t]{0,8}\n{0,2}$")
_SENTENCE_GAP: Final = re.compile(r"(?<=[a-z0-9)\]”][.!?])[ \t]+(?=[A-Z])|(?<=[。！？])(?=\S)")
_BRACKETS: Final = re.compile(r"[ \t]*[}\])]+[;,]?[ \t]*$|.*[{(\[][ \t]*$")
_INDENTED: Final = re.compile(r"(?: {4}|\t)[ \t]{0,80}(?![-*+•·\d \t])\S")
_SPEAKER: Final = re.compile(
    r"[ \t>*_]{0,8}(?:user|assistant|human|ai|q|a|question|answer|input|output)[*_]{0,2}[ \t]{0,4}[:：]", re.IGNORECASE
)
_CONSTRUCTS: Final = (_FENCE, _RULE, _TAG, _NUMBERED, _BRACKETS, _INDENTED, _SPEAKER)
"""A paragraph with a line of one of these forms is no prose: it is moved as a whole, if at all."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice of a message, with the most volatile of its segments. `paragraph` numbers the paragraph it is from.

    `anchored` says why it cannot be moved, None where it can.
    """

    start: int
    end: int
    paragraph: int
    volatility: Volatility = Volatility.FIXED
    segments: tuple[Segment, ...] = ()
    anchored: str | None = None


def leaves_open(text: str) -> bool:
    """Whether a text ends with what the answer is to follow: `Answer:`, `bash-$`."""
    return _OPEN_END.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_blank(self) -> bool:
        return not self.text.strip()


_Lines = Sequence[_Line]


def units_of(segments: Sequence[Segment]) -> list[Unit]:
    """The units of a message, in order. Linear in its source, but for the nesting of tags."""
    blotted = _blotted(segments)
    paragraphs = _glued(_paragraphs(blotted))
    spans: list[tuple[int, int, int, str | None]] = []
    for place, lines in enumerate(paragraphs):
        behind = paragraphs[place + 1] if place + 1 < len(paragraphs) else ()
        anchored = _numbered(lines, behind)
        parts = [(lines[0].start, lines[-1].end)] if anchored else _parts(lines, segments)
        spans += [(start, end, place, anchored) for start, end in parts]
    return _filled(spans, blotted, segments)


def _blotted(segments: Sequence[Segment]) -> str:
    pieces = [
        segment.source if segment.kind is SegmentKind.FIXED else _BLOT * len(segment.source) for segment in segments
    ]
    return "".join(pieces).replace("\r", " ")


def _filled(spans: Sequence[tuple[int, int, int, str | None]], blotted: str, segments: Sequence[Segment]) -> list[Unit]:
    """Units with their segments; both are in order, so each segment is looked at once or twice."""
    units: list[Unit] = []
    first = 0
    for start, end, paragraph, anchored in spans:
        while first < len(segments) and segments[first].end <= start:
            first += 1
        inside: list[Segment] = []
        at = first
        while at < len(segments) and segments[at].offset < end:
            inside.append(segments[at])
            at += 1
        text = blotted[start:end]
        right = end - len(text) + len(text.rstrip())
        held = next((segment.anchored for segment in inside if segment.anchored is not None), anchored)
        volatility = max((segment.volatility for segment in inside), default=Volatility.FIXED)
        units.append(Unit(start, right, paragraph, volatility, tuple(inside), held))
    return units


def _paragraphs(blotted: str) -> list[list[_Line]]:
    found: list[list[_Line]] = [[]]
    at = 0
    for text in blotted.splitlines(keepends=True):
        line = _Line(at, text)
        at += len(text)
        if not line.is_blank:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [lines for lines in found if lines]


def _glued(paragraphs: list[list[_Line]]) -> list[list[_Line]]:
    """Paragraphs that belong together, as one."""
    closed = {match[2] for lines in paragraphs for line in lines if (match := _TAG.match(line.text)) and match[1]}
    glued: list[list[_Line]] = []
    fenced, tags = False, _Tags(closed)
    for place, lines in enumerate(paragraphs):
        before = glued[-1] if glued else None
        if before is not None and (fenced or tags.open or _belongs(before, paragraphs, place)):
            before.extend(lines)
        else:
            glued.append(list(lines))
        for line in lines:
            fenced ^= _FENCE.match(line.text) is not None
            if not fenced:
                tags.see(line.text)
    return glued


def _belongs(before: _Lines, paragraphs: list[list[_Line]], place: int) -> bool:
    """Whether a paragraph goes on with the one before it."""
    lines = paragraphs[place]
    if _ANNOUNCES.search(before[-1].text.rstrip()):
        return True
    if lines[0].text[:2].isspace() and not lines[0].text.startswith("\n"):
        return True
    is_last = place + 1 == len(paragraphs) or _HEADING.match(paragraphs[place + 1][0].text) is not None
    is_heading = all(_HEADING.match(line.text) for line in before)
    return is_heading and is_last and _HEADING.match(lines[0].text) is None


class _Tags:
    """Which tags are open; one that is closed nowhere is a placeholder and opens nothing."""

    def __init__(self, closed: set[str]) -> None:
        self._closed = closed
        self.open: list[str] = []

    def see(self, line: str) -> None:
        """Take notice of a line."""
        match = _TAG.match(line)
        if match is None:
            return
        if not match[1]:
            if any(match[2].startswith(name) for name in self._closed):
                self.open.append(match[2])
            return
        for place in range(len(self.open) - 1, -1, -1):
            if self.open[place].startswith(match[2]):
                del self.open[place:]
                return


def _numbered(lines: _Lines, behind: _Lines) -> str | None:
    """Why a part of a numbered list stays: it is one that begins elsewhere, or goes on behind."""
    numbers = [match[0].strip(" \t().、") for line in lines if (match := _NUMBERED.match(line.text))]
    goes_on = bool(behind) and _NUMBERED.match(behind[0].text) is not None
    begun_elsewhere = _NUMBERED.match(lines[0].text) is not None and numbers[0] not in ("1", "一")
    return "it is an item of a numbered list" if begun_elsewhere or (numbers and goes_on) else None


def _parts(lines: _Lines, segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """The units within a paragraph."""
    whole = [(lines[0].start, lines[-1].end)]
    if any(construct.match(line.text) for line in lines for construct in _CONSTRUCTS):
        return whole
    items = _items(lines)
    if items is not None:
        return items
    if len(lines) == 1:
        return _told_time(lines[0], segments)
    return [part for group in _groups(lines) for part in _told_time_of(group, segments)]


def _items(lines: _Lines) -> list[tuple[int, int]] | None:
    """The intro of a list and its items at the top; None where it is no list, or of one item."""
    bullets = [(place, match[1]) for place, line in enumerate(lines) if (match := _BULLET.match(line.text))]
    if not bullets:
        return None
    indent = min(len(indent) for _, indent in bullets)
    starts = [place for place, shift in bullets if len(shift) == indent]
    if len(starts) == 1:
        return [(lines[0].start, lines[-1].end)]
    cuts = sorted({0, *starts, len(lines)})
    if starts[0] and all(_BLOT in lines[at].text for at in starts):
        return [(lines[0].start, lines[-1].end)]
    return [(lines[a].start, lines[b - 1].end) for a, b in pairwise(cuts)]


def _groups(lines: _Lines) -> Iterator[list[_Line]]:
    """Lines in a row that are one sentence: a new one begins where the line before has ended its own."""
    group: list[_Line] = []
    for line in lines:
        if group and _ends_itself(group[-1].text) and not line.text.lstrip()[:1].islower():
            yield group
            group = []
        group.append(line)
    yield group


def _ends_itself(line: str) -> bool:
    if _ANNOUNCES.search(line.rstrip()) or line.rstrip().endswith((",", "，", "、", ";")):
        return False
    return _ENDS_SENTENCE.search(line.rstrip()) is not None or _LABELLED.match(line) is not None


def _told_time_of(group: Sequence[_Line], segments: Sequence[Segment]) -> list[tuple[int, int]]:
    return _told_time(group[0], segments) if len(group) == 1 else [(group[0].start, group[-1].end)]


def _told_time(line: _Line, segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """A line, with its last sentence by itself where all that changes in the line is a time or date told there."""
    gaps = list(_SENTENCE_GAP.finditer(line.text.rstrip()))
    if not gaps or _BLOT not in line.text:
        return [(line.start, line.end)]
    cut = line.start + gaps[-1].end()
    told = [one for one in segments if one.volatility and line.start <= one.offset < line.end]
    only_time = all(one.offset >= cut and one.cause in (Cause.TIME, Cause.DATE) for one in told)
    if not told or not only_time:
        return [(line.start, line.end)]
    return [(line.start, cut), (cut, line.end)]
