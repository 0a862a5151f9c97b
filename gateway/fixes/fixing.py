"""Fixes made in the bytes of a request: what is not named by a fix stays as the client wrote it, byte by byte.

    body --day--> timestamps rounded --tools--> in order --lines--> moved --compact--> body

Each is a function of the text of the body that finds its places anew, and gives None where it changes nothing. What is
odd is left alone: two equal keys where a fix looks, tools without names or with the same, content of a form unknown,
what cannot be decoded or is nested too deeply. No fix looks into a tool, a schema, a turn or a result.

Made twice, a fix changes nothing the second time. O(body). Pure.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gateway.fixes.days import rounded_days
from gateway.fixes.edits import Edit, as_literal, edited, literal_offsets
from gateway.fixes.lines import Lines, movable_lines, separator
from gateway.fixes.places import UNREADABLE, Odd, Piece, last_user_of, system_of, tools_of
from gateway.fixes.types import ALL_FIXES, Fix, Fixed, How, VolatileTo

_ROUNDS: Final = 4
_TEXTS_AND_GAPS: Final = re.compile(r'("(?:[^"\\]++|\\.)*+")|[ \t\n\r]++', re.DOTALL)


def fixed(body: bytes, how: How) -> Fixed:
    """The body with its fixes. Never raises: what is odd is given back as it came. O(body)."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return Fixed(body)
    made: list[Fix] = []
    for fix in ALL_FIXES:
        if fix in how.fixes:
            new = _or_none(_FIXES[fix], text, how)
            if new is not None and new != text:
                text = new
                made.append(fix)
    return Fixed(text.encode(), tuple(made)) if made else Fixed(body)


def tool_names(body: bytes, how: How) -> tuple[str, ...] | None:
    """The names of the tools in the order in which they came; None where they are odd or fewer than two."""
    try:
        names = tuple(tool.name for tool in tools_of(body.decode(), how.route))
        "".join(names).encode()  # half a character in a name could not be kept
    except (Odd, *UNREADABLE):
        return None
    return names if len(names) > 1 else None


def _or_none(fix: Callable[[str, How], str | None], text: str, how: How) -> str | None:
    try:
        return fix(text, how)
    except (Odd, *UNREADABLE):
        return None


def _days(text: str, how: How) -> str | None:
    edits = []
    for piece in system_of(text, how.route):
        edits += _in_literal(text, piece, rounded_days(piece.text))
    return edited(text, edits) if edits else None


def _tools(text: str, how: How) -> str | None:
    """Each place of the list gets the tool of that rank; what stands between the tools stays there."""
    tools = tools_of(text, how.route)
    known = {name: rank for rank, name in enumerate(how.tools_in or ())}
    if how.tools_in is not None and known.keys() != {tool.name for tool in tools}:
        return None
    in_order = sorted(tools, key=lambda tool: known[tool.name] if known else tool.name)
    if in_order == tools:
        return None
    moved = zip(tools, in_order, strict=True)
    return edited(text, [Edit(place.start, place.end, text[new.start : new.end]) for place, new in moved])


def _lines(text: str, how: How) -> str | None:
    """Until nothing is left to move; None where there was nothing, or where it does not come to rest."""
    for _ in range(_ROUNDS):
        step = _lines_once(text, how)
        if step is None:
            return None
        text, pieces = step
        if not _moves(pieces, how):
            return text
    return None


def _lines_once(text: str, how: How) -> tuple[str, list[Piece]] | None:
    """The text after one round, and its system text then; None where nothing can be moved."""
    pieces = system_of(text, how.route)
    moves = _moves(pieces, how)
    if not moves:
        return None
    target = last_user_of(text, how.route) if how.volatile_to is VolatileTo.LAST_USER else pieces[-1]
    if target is None or target.marked:
        return None
    edits: list[Edit] = []
    said: list[str] = []
    left = {piece.start: piece.text for piece in (*pieces, target)}
    for piece, found in moves:
        holes = [Edit(start, end, "") for start, end in found.holes]
        edits += _in_literal(text, piece, holes)
        left[piece.start] = edited(piece.text, holes)
        begin = piece.start + 1
        offsets = literal_offsets(text[begin : piece.end - 1], [at for span in found.spans for at in span])
        said += [text[begin + offsets[start] : begin + offsets[end]] for start, end in found.spans]
    paragraph = any(found.paragraph for _, found in moves) or all(piece.start != target.start for piece, _ in moves)
    between = separator(left[target.start], paragraph=paragraph)
    tail = Edit(target.end - 1, target.end - 1, as_literal(between) + "\\n".join(said))
    left[target.start] += between + "\n".join([found.said_by(piece.text) for piece, found in moves])
    return edited(text, [*edits, tail]), [replace(piece, text=left[piece.start]) for piece in pieces]


def _moves(pieces: list[Piece], how: How) -> list[tuple[Piece, Lines]]:
    """What is to be moved from where: nothing from before the last cache mark, and nothing where it is too much."""
    to_user = how.volatile_to is VolatileTo.LAST_USER
    first = max((place + 1 for place, piece in enumerate(pieces) if piece.marked), default=0)
    found = [
        (piece, movable_lines(piece.text, how.most_lines, also_last=to_user or piece is not pieces[-1]))
        for piece in pieces[first:]
    ]
    moves = [(piece, lines) for piece, lines in found if lines is not None]
    return moves if sum(lines.count for _, lines in moves) <= how.most_lines else []


def _in_literal(text: str, piece: Piece, edits: list[Edit]) -> list[Edit]:
    """Edits of what a piece says, as edits of the body."""
    if not edits:
        return []
    begin = piece.start + 1
    literal = text[begin : piece.end - 1]
    offsets = literal_offsets(literal, [at for edit in edits for at in (edit.start, edit.end)])
    return [Edit(begin + offsets[edit.start], begin + offsets[edit.end], as_literal(edit.new)) for edit in edits]


def _compact(text: str, how: How) -> str | None:
    return _TEXTS_AND_GAPS.sub(lambda found: found[1] or "", text)


_FIXES: Final[dict[Fix, Callable[[str, How], str | None]]] = {
    Fix.DAY: _days,
    Fix.TOOLS: _tools,
    Fix.LINES: _lines,
    Fix.COMPACT: _compact,
}
