"""A template's sources become segments, each with how often it changes.

    source --pieces--> slices --names, marks--> segments

A slot that its author marked has the volatility of the mark; another is judged by its name. In a literal text there are
no slots: what has the form of something that changes, and most likely does, stands for one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prefix_index.layout.environment import PROMPTS
from prefix_index.layout.errors import TemplateInvalid
from prefix_index.layout.jinja_source import Reads, jinja_pieces, read_by
from prefix_index.layout.names import OF_A_CLOCK, judged_name
from prefix_index.layout.template import Mark, PromptTemplate, Segment, SegmentKind, Syntax, TemplateMessage
from prefix_index.layout.types import Cause, Certainty, Volatility
from prefix_index.layout.volatile import spots

MOST_MARKS: Final = 4_000
"""Lines and opening braces of a template; the longest of those in use that we know has 700."""
_BRACE: Final = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True)
class Source:
    """What a message is read from; `slot` names a variable of messages, and has no text."""

    text: str = ""
    role: str = "user"
    slot: str | None = None


def read_template(
    sources: str | Sequence[Source], syntax: Syntax, marks: Mapping[str, Mark] | None = None
) -> PromptTemplate:
    """A template; one text alone is the message of a user. Raises `TemplateInvalid`, also for more than `MOST_MARKS`.

    Linear in the sources, but for their marks: Jinja looks at each of them in the light of the others.
    """
    given = [Source(sources)] if isinstance(sources, str) else sources
    marks_there = sum(one.text.count("{") + one.text.count("\n") for one in given)
    if syntax is not Syntax.LITERAL and marks_there > MOST_MARKS:
        raise TemplateInvalid(f"it has more than {MOST_MARKS:,} lines and braces")
    said = marks or {}
    messages = [
        TemplateMessage(one.role, slot=one.slot)
        if one.slot is not None
        else TemplateMessage(one.role, tuple(_segments(one.text, syntax, said)))
        for one in given
    ]
    return PromptTemplate(syntax, tuple(messages), said)


def _segments(text: str, syntax: Syntax, marks: Mapping[str, Mark]) -> Iterator[Segment]:
    match syntax:
        case Syntax.JINJA:
            yield from _of_jinja(text, marks)
        case Syntax.FORMAT:
            yield from _of_format(text, marks)
        case Syntax.LITERAL:
            yield from _of_literal(text)


def _of_jinja(text: str, marks: Mapping[str, Mark]) -> Iterator[Segment]:
    outside = read_by(PROMPTS, text).keys()
    set_here = Volatility.FIXED
    for piece in jinja_pieces(text):
        source = text[piece.start : piece.end]
        segment = Segment(piece.kind, source, piece.start, anchored=piece.anchored)
        if piece.kind is SegmentKind.FIXED:
            yield segment
            continue
        reads = read_by(PROMPTS, source)
        given = {name: read for name, read in reads.items() if name in outside}
        judged = _judged(segment, given, marks)
        if len(given) < len(reads):  # it reads what the template itself has set, out of what it was given
            judged = replace(judged, volatility=max(judged.volatility, set_here), cause=judged.cause or Cause.CONTENT)
        if piece.silent:
            set_here = max(set_here, judged.volatility)
            judged = replace(judged, volatility=Volatility.FIXED)
        yield judged


def _of_format(text: str, marks: Mapping[str, Mark]) -> Iterator[Segment]:
    at = 0
    for start, end in _fields(text):
        if start > at:
            yield Segment(SegmentKind.FIXED, text[at:start], at)
        yield _field(text[start:end], start, marks)
        at = end
    if at < len(text):
        yield Segment(SegmentKind.FIXED, text[at:], at)


def _fields(text: str) -> Iterator[tuple[int, int]]:
    """Where the fields of a format are; braces that stand twice outside of them are text."""
    start = depth = skipped = 0
    for found in _BRACE.finditer(text):
        place, brace = found.start(), found[0]
        if place < skipped:
            continue
        if depth == 0 and text.startswith(brace * 2, place):
            skipped = place + 2
        elif brace == "{":
            depth += 1
            start = place if depth == 1 else start
        elif depth == 0:
            raise TemplateInvalid(f"a single }} at character {place}: as text it is written twice")
        else:
            depth -= 1
            if depth == 0:
                yield start, place + 1
    if depth:
        raise TemplateInvalid(f"the {{ at character {start} is not closed: as text it is written twice")


def _field(source: str, offset: int, marks: Mapping[str, Mark]) -> Segment:
    name, layout = field_of(source)
    if not name:
        raise TemplateInvalid(f"the slot at character {offset} has no name")
    segment = _judged(Segment(SegmentKind.SLOT, source, offset), {name: Reads((name,), only_asks=False)}, marks)
    if segment.cause is Cause.TIME and not segment.marked and "%" in layout and not OF_A_CLOCK.search(layout):
        return replace(segment, volatility=Volatility.PER_SESSION, cause=Cause.DATE)
    return segment


def field_of(source: str) -> tuple[str, str]:
    """The name or expression of `{name!r:layout}`, and its layout."""
    inner, depth = source[1:-1], 0
    for place, letter in enumerate(inner):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and (letter == ":" or (letter == "!" and inner[place + 1 : place + 2] != "=")):
            return inner[:place].strip(), inner[place:]
    return inner.strip().removesuffix("=").strip(), ""


def _of_literal(text: str) -> Iterator[Segment]:
    at = 0
    for spot in spots(text):
        if spot.certainty < Certainty.LIKELY:
            continue
        if spot.start > at:
            yield Segment(SegmentKind.FIXED, text[at : spot.start], at)
        at = spot.end
        yield Segment(SegmentKind.LITERAL, text[spot.start : at], spot.start, spot.volatility, spot.cause)
    if at < len(text):
        yield Segment(SegmentKind.FIXED, text[at:], at)


def _judged(segment: Segment, reads: Mapping[str, Reads], marks: Mapping[str, Mark]) -> Segment:
    """`segment` with the volatility of the most volatile variable that it reads. One that is only asked about chooses
    between few texts, however many values it has."""
    volatility, cause, marked, anchored = Volatility.FIXED, None, True, segment.anchored
    for name, read in reads.items():
        mark = marks.get(name)
        if mark is not None and mark.pinned:
            anchored = f"{name} is pinned"
        said, why = _of_name(read.expressions)
        if read.only_asks and said > Volatility.PER_TENANT:
            said, why = Volatility.PER_TENANT, Cause.CONFIG
        if mark is not None and mark.volatility is not None:
            said = mark.volatility
        else:
            marked = False
        if said > volatility or cause is None:
            volatility, cause = max(said, volatility), why
    return replace(
        segment,
        volatility=volatility,
        cause=cause,
        names=tuple(reads),
        marked=marked and bool(reads),
        anchored=anchored,
    )


def _of_name(expressions: Sequence[str]) -> tuple[Volatility, Cause]:
    """By the expression that tells most: `user.name` more than `user`."""
    judged = [judged_name(expression) for expression in expressions]
    known = [one for one in judged if one[1] is not Cause.UNKNOWN]
    return max(known or judged, key=lambda one: one[0])
