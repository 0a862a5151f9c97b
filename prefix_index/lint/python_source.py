"""A Python module as text: where its nodes stand, and what its imported names are in full.

Python 3.11 places what is inside an f-string wrongly; so those places are found in the text, from left to right.
"""

import ast
import re
import warnings
from typing import Final

from prefix_index.lint.lines import Lines

_FIRST_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class Source:
    """One parsed module. Raises `SyntaxError`, `ValueError`, `RecursionError` or `MemoryError` where it is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self._is_ascii = text.isascii()
        self._imported = imported_names(self.tree)

    def at(self, node: ast.expr | ast.stmt) -> int:
        """The offset in characters at which a node begins."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr) -> int:
        """The offset behind a node."""
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def at_text(self, node: ast.Constant) -> int:
        """Where the text of a constant begins, behind its quotes; the constant's own place where that is not plain."""
        start, end = self.at(node), self.end(node)
        found = self.text.find(node.value[:200], start, end) if isinstance(node.value, str) else -1
        return start if found < 0 else found

    def cursor(self, node: ast.JoinedStr) -> "Cursor":
        """Finds the pieces of an f-string."""
        return Cursor(self.text, self.at(node), self.end(node))

    def full_name(self, written: str) -> str:
        """An expression with its first name in full, where that was imported."""
        match = _FIRST_NAME.match(written)
        if match is None or match[0] not in self._imported:
            return written
        return self._imported[match[0]] + written[match.end() :]

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self.lines.offset_of(min(line, len(self.lines.starts)))
        if self._is_ascii:
            return start + column_bytes
        text = self.text[start : start + column_bytes]
        return start + len(text.encode()[:column_bytes].decode(errors="ignore"))


class Cursor:
    """Walks along an f-string's source; every piece is found at or behind the one before."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text, self._at, self._end = text, start, end

    def literal(self, text: str) -> int:
        """Where fixed text stands."""
        found = self._text.find(text[:60].partition("{")[0].partition("\n")[0] or text[:1], self._at, self._end)
        at = self._at if found < 0 else found
        if found >= 0:
            self._at = min(found + len(text), self._end)
        return at

    def slot(self, expression: str) -> int:
        """Where the braces of an expression open."""
        name = _FIRST_NAME.search(expression)
        at = self._at
        while True:
            at = self._text.find("{", at, self._end)
            if at < 0:
                return self._at
            inside = self._text[at + 1 : at + 80].lstrip()
            if name is None or inside.startswith((name[0], "(", "await")):
                self._at = at + 1
                return at
            at += 1


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Names in the module and what they are in full: `dt` is `datetime.datetime`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return names
