"""What of a text was there before: its lines as hashes, and where it first says something else.

    earlier    You are a clerk. | Today is Monday. | Rule 1 ... | Rule 2 ... | Rule 3 ...
    now        You are a clerk. | Today is Friday. | Rule 1 ... | Rule 2 ... | Rule 3 ...
                                  ^ first changed     `------ equal after it: what the change costs ------'

The hashes are those of Python's own dictionaries: keyed anew in each process. Of a text without lines the sentences are
taken, or a few words each, cut behind words that decide it by their own hash, so that a change moves no other cut.
Cost: 5 µs a KB to make one, the same to compare with it; so both are done for a sample.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

MOST_PIECES: Final = 512
MOST_CHARS: Final = 64 * 1024
"""Of a text: what comes behind is not looked at."""
LONG_PIECE_CHARS: Final = 400
"""Pieces longer than this on average are cut at words: a change would make a large part of the text another one."""
SIMILAR: Final = 0.3
"""So much of a text must have been there for it to be the same one, changed."""
LEAST_PIECE_CHARS: Final = 8
"""Shorter pieces (an empty line, a bracket) are the same in texts that have nothing to do with each other."""
_PROBES: Final = 8
_WORDS_MASK: Final = 7
"""One word in eight ends a piece."""


class Sketch(msgspec.Struct, frozen=True, gc=False):
    """The pieces of one text, as hashes."""

    pieces: frozenset[int]
    chars: int


class Difference(NamedTuple):
    """A text against an earlier one. `place` is the first piece that is new, `offset` its first character.

    `equal_chars` are the characters behind it that were there before, in whole pieces.
    """

    place: int
    offset: int
    equal_chars: int


def pieces_of(text: str) -> list[str]:
    """Lines and sentences of a text; some words each of one that has few of these. `MOST_PIECES` at most.

    Together they are the text, up to `MOST_CHARS`.
    """
    text = text[:MOST_CHARS]
    pieces = text.replace("\n", "\n\0").replace(". ", ". \0").replace("。", "。\0").split("\0")
    if len(text) > LONG_PIECE_CHARS * len(pieces):
        pieces = _by_words(text)
    if len(pieces) > MOST_PIECES:
        step = -(-len(pieces) // MOST_PIECES)
        pieces = ["".join(pieces[at : at + step]) for at in range(0, len(pieces), step)]
    return pieces


def _by_words(text: str) -> list[str]:
    pieces, begun, at = [], 0, 0
    for word in text.split(" "):
        at += len(word) + 1
        if not hash(word) & _WORDS_MASK:
            pieces.append(text[begun:at])
            begun = at
    return [*pieces, text[begun:]]


def sketch_of(pieces: Sequence[str]) -> Sketch:
    """The hashes of a text's pieces."""
    return Sketch(frozenset(map(hash, pieces)), sum(map(len, pieces)))


def resemblance(pieces: Sequence[str], earlier: Sketch) -> float:
    """The share of some pieces, spread over the text, that were there before: a guess in 1 µs."""
    probes = pieces[:: max(len(pieces) // _PROBES, 1)]
    return sum(hash(piece) in earlier.pieces for piece in probes) / len(probes)


def difference(pieces: Sequence[str], earlier: Sketch) -> Difference | None:
    """Where a text first differs from an earlier one, and what is equal behind; None where it is another text, or the
    same. O(pieces)."""
    known = [hash(piece) in earlier.pieces for piece in pieces]
    if all(known):
        return None
    place = known.index(False)
    behind = zip(pieces[place:], known[place:], strict=True)
    equal_chars = sum([len(piece) for piece, is_known in behind if is_known and len(piece) >= LEAST_PIECE_CHARS])
    offset = sum(map(len, pieces[:place]))
    if offset + equal_chars < SIMILAR * sum(map(len, pieces)):
        return None
    return Difference(place, offset, equal_chars)
