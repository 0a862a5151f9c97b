"""What the tests measured, collected while they run, printed as one table behind them and kept as a result.

test --add--> Figure, Figure, ... --lines--> the table
                                  --result--> bench/results/engines.json, after a run of all of them
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.result import RESULTS, Goal, write_result

PACKAGES = ("msgspec", "jinja2", "tokenizers", "openai", "anthropic")


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: which engine, what was looked at, and what was found; with numbers where it is `part` of `whole`.

    `least` is the share that is promised.
    """

    engine: str
    what: str
    found: str
    part: int | None = None
    whole: int | None = None
    least: float | None = None

    def row(self) -> dict[str, object]:
        """For a result."""
        row: dict[str, object] = {"engine": self.engine, "what": self.what.strip(), "found": self.found}
        return row if self.part is None else {**row, "part": self.part, "whole": self.whole}

    def goal(self) -> Goal | None:
        """What is promised of it, where something is."""
        if self.least is None or self.part is None or not self.whole:
            return None
        return Goal(f"{self.engine}: {self.what}, share", self.part / self.whole, self.least, ">=")


@dataclass(slots=True)
class Figures:
    """The rows of one run, in the order of the tests."""

    rows: list[Figure] = field(default_factory=list)

    def add(self, engine: str, what: str, found: str) -> None:
        """Take down one finding."""
        self.rows.append(Figure(engine, what, found))

    def add_share(self, engine: str, what: str, part: int, whole: int, *, least: float, more: str = "") -> None:
        """Take down that `part` of `whole` were so, of which a share of `least` is promised."""
        found = f"{part} of {whole}" + (f" ({part / whole:.2%})" if whole else "")
        self.rows.append(Figure(engine, what, f"{found}; {more}" if more else found, part, whole, least))

    def lines(self) -> Iterator[str]:
        """The table as text, a header first; nothing where nothing was found."""
        if not self.rows:
            return
        table = [Figure("engine", "what", "found"), *self.rows]
        engine_width, what_width = (max(len(text) for text in column) for column in self._columns(table))
        for row in table:
            yield f"{row.engine:<{engine_width}}  {row.what:<{what_width}}  {row.found}"

    def result(self, directory: Path = RESULTS) -> Path:
        """Write `engines.json`; returns the file."""
        goals = [goal for row in self.rows if (goal := row.goal()) is not None]
        return write_result("engines", [row.row() for row in self.rows], goals, PACKAGES, directory)

    @staticmethod
    def _columns(table: list[Figure]) -> tuple[list[str], list[str]]:
        return [row.engine for row in table], [row.what for row in table]
