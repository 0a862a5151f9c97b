"""What the tests measured, collected while they run and printed as one table behind them."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: which engine, what was looked at, and what was found."""

    engine: str
    what: str
    found: str


@dataclass(slots=True)
class Figures:
    """The rows of one run, in the order of the tests."""

    rows: list[Figure] = field(default_factory=list)

    def add(self, engine: str, what: str, found: str) -> None:
        """Take down one finding."""
        self.rows.append(Figure(engine, what, found))

    def lines(self) -> Iterator[str]:
        """The table as text, a header first; nothing where nothing was found."""
        if not self.rows:
            return
        table = [Figure("engine", "what", "found"), *self.rows]
        engine_width, what_width = (max(len(text) for text in column) for column in self._columns(table))
        for row in table:
            yield f"{row.engine:<{engine_width}}  {row.what:<{what_width}}  {row.found}"

    @staticmethod
    def _columns(table: list[Figure]) -> tuple[list[str], list[str]]:
        return [row.engine for row in table], [row.what for row in table]


def share(part: int, whole: int) -> str:
    """For people: how many of how many, with the percentage."""
    return f"{part} of {whole}" + (f" ({part / whole:.2%})" if whole else "")
