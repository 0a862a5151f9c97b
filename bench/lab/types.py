"""The nouns of `make bench-engine`: what a measurement gets, and what it gives back."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from backends.reference.tokenizer import ModelTokenizer
from backends.reference.weights import ModelWeights
from bench.result import Goal

Figure = float | int | str | None
"""What stands in a cell: a number, a word, or None where nothing is known."""


def number(figure: Figure) -> float:
    """A figure that is known, and no word. TypeError for another."""
    if not isinstance(figure, float | int):
        raise TypeError(f"{figure!r} is no number")
    return figure


@dataclass(frozen=True, slots=True)
class Lab:
    """What every measurement works with: a model, texts, and how often to repeat.

    `weights` lie on `device`. `text` is what quality is measured on, `calibration` another text of its kind. `rounds`:
    how often what takes time is repeated, plain engine and technique in turns, so that a machine that becomes slower
    meanwhile is slower for both; the median of the rounds is what counts. `clock`: seconds, of the wall, or of the
    processor where the machine has other work.
    """

    weights: ModelWeights
    tokenizer: ModelTokenizer
    text: str
    calibration: str
    device: str
    rounds: int
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Row:
    """A technique and its figures, by the heading of their column, unit included; rows of a theme share their keys."""

    technique: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Theme:
    """One table of docs/lab.md, between the marks of its `name`, and what measures it.

    `measure` takes a minute or two on two cores: all themes together must end within ten. `goals` holds the figures of
    the rows against what was meant.
    """

    name: str
    measure: Callable[[Lab], Iterable[Row]]
    goals: Callable[[list[Row]], Iterable[Goal]]
