"""The order of a prompt: what is fixed first, then what changes, the most volatile last.

    before   [time]  [role]  [rules]  [language]  [examples]        cached: up to the time, so nothing
    after    [role]  [rules]  [examples]  [language]  [time]        cached: up to what really changed

Within the limits of meaning: messages, their roles and their order stay; a slot is moved with the unit that holds it
(units.py), behind the fixed units of the same message; units of one volatility keep their order; what is pinned or
anchored is not moved, and what stands behind it counts as at least as volatile as it, since no move could win
anything there. So a template that is in order already is left as it is, to the byte.

    key(unit) = max(volatility of unit, volatility of the anchored units before it)        a stable sort by key

The order is found once, not searched for: sorting twice changes nothing. Cost: linear in the source, and n log n in
its units.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefix_index.layout.errors import TemplateInvalid
from prefix_index.layout.reading import Source, read_template
from prefix_index.layout.template import PromptTemplate, SegmentKind, TemplateMessage
from prefix_index.layout.types import Volatility
from prefix_index.layout.units import Unit, leaves_open, units_of

_POINTS: Final = re.compile(
    r"\b(?:above|preceding|previous(?:ly)?|foregoing|aforementioned|oben|obig\w{0,2}|vorstehend\w{0,2})\b"
    r"|上述|以上|上面|前述|上記",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Move:
    """A unit that stands behind fixed text now. Offsets in characters of its message, before and after.

    `names` are the variables in it; `cautions` what an author should look at.
    """

    message: int
    names: tuple[str, ...]
    volatility: Volatility
    from_offset: int
    to_offset: int
    chars: int
    why: str
    cautions: tuple[str, ...] = ()
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Stay:
    """A unit that changes and stands before `chars_behind` characters that change less, and why it stays there."""

    message: int
    names: tuple[str, ...]
    volatility: Volatility
    offset: int
    chars_behind: int
    why: str


@dataclass(frozen=True, slots=True)
class Layout:
    """A template before and after; the same object where nothing is moved."""

    before: PromptTemplate
    after: PromptTemplate
    moves: tuple[Move, ...]
    stays: tuple[Stay, ...]


@dataclass(frozen=True, slots=True)
class _Ordered:
    source: str
    moves: tuple[Move, ...]


def ordered(template: PromptTemplate) -> Layout:
    """`template` in the order that lets the most of it be used again. Changes nothing that it is given.

    Where the text of an order would be read otherwise than it was written, the template is left as it is.
    """
    found = [_ordered_message(place, message, template) for place, message in enumerate(template.messages)]
    moves = tuple(move for one in found for move in one.moves)
    after = template
    if moves:
        sources = [
            Source(one.source, message.role, message.slot)
            for one, message in zip(found, template.messages, strict=True)
        ]
        after = read_template(sources, template.syntax, template.marks)
    return Layout(template, after, moves, tuple(_stays(after)))


def _ordered_message(place: int, message: TemplateMessage, template: PromptTemplate) -> _Ordered:
    """One message in order; one whose new text would be read otherwise, and ordered again, is left as it is."""
    step = _step(place, message, template)
    if step.moves:
        try:
            (again,) = read_template([Source(step.source, message.role)], template.syntax, template.marks).messages
        except TemplateInvalid:
            return _Ordered(message.source, ())
        if _step(place, again, template).moves:
            return _Ordered(message.source, ())
    return step


def _step(place: int, message: TemplateMessage, template: PromptTemplate) -> _Ordered:
    units = units_of(message.segments)
    keys = _keys(units, message.source)
    moved = _overtaken(keys)
    if not moved:
        return _Ordered(message.source, ())
    order = sorted(range(len(units)), key=lambda at: keys[at])
    source, offsets = _text(message.source, units, order, _references(units, moved, template))
    moves = [
        Move(
            message=place,
            names=_names(units[at]),
            volatility=units[at].volatility,
            from_offset=units[at].start,
            to_offset=offsets[at],
            chars=units[at].end - units[at].start,
            why=f"{_said(units[at])}, and fixed text stands behind",
            cautions=_cautions(message.source, units, keys, at),
            reference=_reference(units[at], template),
        )
        for at in sorted(moved)
    ]
    return _Ordered(source, tuple(moves))


def _keys(units: Sequence[Unit], source: str) -> list[Volatility]:
    """What units are sorted by; what the answer follows on stays the last."""
    floor, keys = Volatility.FIXED, []
    for unit in units:
        keys.append(max(unit.volatility, floor))
        if unit.anchored is not None:
            floor = max(floor, unit.volatility)
    if units and leaves_open(source[units[-1].start :]):
        keys[-1] = Volatility.PER_REQUEST
    return keys


def _overtaken(keys: Sequence[Volatility]) -> frozenset[int]:
    """The units that one with a lower key stands behind."""
    least, found = Volatility.PER_REQUEST, set()
    for at in range(len(keys) - 1, -1, -1):
        if keys[at] > least:
            found.add(at)
        least = min(least, keys[at])
    return frozenset(found)


def _text(
    source: str, units: Sequence[Unit], order: Sequence[int], references: dict[int, str]
) -> tuple[str, dict[int, int]]:
    """The source in a new order, and where each unit is in it. White space at both ends stays where it is."""
    pieces: list[str] = [source[: units[0].start]]
    offsets: dict[int, int] = {}
    length = len(pieces[0])
    sequence = _with_references(order, references)
    for at, (unit, left) in enumerate(sequence):
        text = source[units[unit].start : units[unit].end] if left is None else left
        if left is None:
            offsets[unit] = length
        gap = "" if at + 1 == len(sequence) else _gap(source, units, unit, sequence[at + 1][0])
        pieces += [text, gap]
        length += len(text) + len(gap)
    pieces.append(source[units[-1].end :])
    return "".join(pieces), offsets


def _with_references(order: Sequence[int], references: dict[int, str]) -> list[tuple[int, str | None]]:
    """The order, with what is left in place of a unit before the first that stood behind it."""
    sequence: list[tuple[int, str | None]] = [(at, None) for at in order]
    for moved, left in sorted(references.items()):
        place = next(at for at, (unit, _) in enumerate(sequence) if unit > moved)
        sequence.insert(place, (moved, left))
    return sequence


def _gap(source: str, units: Sequence[Unit], left: int, right: int) -> str:
    """The white space between two units: what stood between them, or the widest of what stood there."""
    if left < right:
        gaps = [source[units[at].end : units[at + 1].start] for at in range(left, right)]
        return max(gaps, key=lambda gap: (gap.count("\n"), len(gap)))
    return "\n" if units[left].paragraph == units[right].paragraph else "\n\n"


def _references(units: Sequence[Unit], moved: frozenset[int], template: PromptTemplate) -> dict[int, str]:
    left = {at: _reference(units[at], template) for at in moved}
    return {at: text for at, text in left.items() if text is not None}


def _reference(unit: Unit, template: PromptTemplate) -> str | None:
    marks = [template.marks[name] for name in _names(unit) if name in template.marks]
    return next((mark.reference for mark in marks if mark.reference is not None), None)


def _names(unit: Unit) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for segment in unit.segments for name in segment.names))


def _said(unit: Unit) -> str:
    """What makes a unit as volatile as it is."""
    most = next(segment for segment in unit.segments if segment.volatility is unit.volatility)
    what = ", ".join(most.names) or f"a literal {most.cause or 'text'}"
    by = "as marked" if most.marked else f"judged as {most.cause}"
    inside = " inside a control structure" if most.kind is SegmentKind.CONTROL else ""
    return f"{what}{inside} changes {most.volatility.label} ({by})"


def _cautions(source: str, units: Sequence[Unit], keys: Sequence[Volatility], moved: int) -> tuple[str, ...]:
    """Text that stood behind the unit, stands before it now, and points upwards."""
    for at in range(moved + 1, len(units)):
        if keys[at] >= keys[moved]:
            continue
        found = _POINTS.search(source, units[at].start, units[at].end)
        if found is not None:
            return (f"text that stood behind it says {found[0]!r} (at character {found.start()})",)
    return ()


def _stays(template: PromptTemplate) -> list[Stay]:
    """What changes, stands before text that changes less, and is held there."""
    found: list[Stay] = []
    for place, message in enumerate(template.messages):
        units = units_of(message.segments)
        for at, unit in enumerate(units):
            behind = sum(one.end - one.start for one in units[at + 1 :] if one.volatility < unit.volatility)
            if unit.anchored is not None and unit.volatility and behind:
                found.append(Stay(place, _names(unit), unit.volatility, unit.start, behind, unit.anchored))
    return found
