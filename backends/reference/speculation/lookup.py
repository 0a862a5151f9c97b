"""Drafts from the request itself: what followed the last tokens when they stood there before.

    ... the cat sat on the mat . the cat sat on  ->  "the mat ."        the longest run of tokens that was seen counts,
        ^^^^^^^^^^^^^^^^^^       ^^^^^^^^^^^^^^^^                        and of several the last one

Costs nothing but the look-up, and wins where answers quote: edits, summaries, code, tool results. Behind the end of
what is known it goes on with its own draft, so that a loop is drafted as a loop.

Costs: O(`LONGEST`) a token, once; as many small entries of a dictionary for as long as the request lives.
"""

from collections.abc import Sequence as Items
from typing import Final
from weakref import WeakKeyDictionary

from backends.reference.generation import Generation
from backends.reference.scheduler import Slice
from backends.reference.sequence import Sequence
from backends.reference.speculation.drafts import Draft

LONGEST: Final = 4
SHORTEST: Final = 2
"""Tokens of the runs that are looked up. One token alone is followed by too much."""


class Seen:
    """Where runs of tokens ended last; the run at the end of all tokens is looked up, not in it."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._known_tokens = 0

    def guess(self, tokens: Items[int], count: int) -> list[int]:
        """Up to `count` tokens behind `tokens`, which may have grown since, and has not shrunk."""
        for end in range(self._known_tokens, len(tokens)):
            for length in range(SHORTEST, min(LONGEST, end) + 1):
                self._after[tuple(tokens[end - length : end])] = end
        self._known_tokens = len(tokens)
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            at = self._after.get(tuple(tokens[-length:]))
            if at is not None:
                return self._behind(tokens, at, count)
        return []

    def _behind(self, tokens: Items[int], at: int, count: int) -> list[int]:
        guessed: list[int] = []
        for place in range(at, at + count):
            guessed.append(tokens[place] if place < len(tokens) else guessed[place - len(tokens)])
        return guessed


class LookupDrafter:
    """Remembers what it has seen by request."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Sequence, Seen] = WeakKeyDictionary()

    def draft(self, slices: Items[Slice], complete: Items[Generation], room_tokens: Items[int]) -> Items[Draft]:
        """As `Drafter` says."""
        return [
            Draft(self._seen.setdefault(one.sequence, Seen()).guess(one.sequence.tokens, room))
            for one, room in zip(complete, room_tokens, strict=True)
        ]
