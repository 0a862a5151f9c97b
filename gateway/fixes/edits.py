"""Changes of a text at places, all else kept character by character; and places of a decoded string in its JSON.

    decoded    A 😀 \\n B           offsets of characters
    literal    A \\ud83d\\ude00 \\n B    offsets in what stands between its quotes

A change of a string's content is made on the literal, so the client's own escapes stay as they are.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_PARTS: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]+", re.DOTALL
)


class Edit(NamedTuple):
    """The characters from `start` to `end` become `new`."""

    start: int
    end: int
    new: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with its edits, none of which reaches into another. O(text)."""
    parts: list[str] = []
    at = 0
    for edit in sorted(edits):
        assert edit.start >= at, "edits overlap"
        parts += (text[at : edit.start], edit.new)
        at = edit.end
    parts.append(text[at:])
    return "".join(parts)


def literal_offsets(literal: str, places: Sequence[int]) -> dict[int, int]:
    """Of places in a decoded string, in any order, those in its literal (without quotes). O(up to the last)."""
    wanted = sorted(set(places))
    if "\\" not in literal or not wanted:
        return {place: place for place in wanted}
    found: dict[int, int] = {}
    decoded, rank = 0, 0
    for part in _PARTS.finditer(literal):
        length = 1 if literal[part.start()] == "\\" else part.end() - part.start()
        while wanted[rank] < decoded + length:
            found[wanted[rank]] = part.start() + wanted[rank] - decoded
            rank += 1
            if rank == len(wanted):
                return found
        decoded += length
    return found | dict.fromkeys(wanted[rank:], len(literal))


def as_literal(text: str) -> str:
    """A text as it stands between quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
