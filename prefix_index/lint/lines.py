"""Offsets in a text as lines and columns, and how many tokens a text may be."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

CHARS_PER_TOKEN: Final = 4
"""Of English with the tokenizers of today; other scripts are counted a token a character and a half."""


class Lines:
    """Where the lines of a text begin; a lookup is O(log lines)."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)
        self.length = len(text)

    def place_of(self, offset: int) -> tuple[int, int]:
        """Line and column from 1 of the character at `offset`."""
        line = bisect_right(self._starts, offset) - 1
        return line + 1, offset - self._starts[line] + 1

    def offset_of(self, line: int, column: int = 0) -> int:
        """The offset of the character `column` (from 0) in `line` (from 1)."""
        return self._starts[line - 1] + column

    @property
    def starts(self) -> Sequence[int]:
        """The offset of each line's first character."""
        return self._starts


def estimated_tokens(text: str) -> int:
    """About how many tokens a text is, without a tokenizer: within a fifth for prose, worse for code. O(length)."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    return ascii_chars // CHARS_PER_TOKEN + (len(text) - ascii_chars) * 2 // 3
