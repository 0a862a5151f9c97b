"""Taking turns: on a machine that becomes slower meanwhile, every contender becomes slower."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median


def median_of_turns(rounds: int, *contenders: Callable[[], float]) -> list[float]:
    """The median of what each contender says, asked in turns `rounds` times; first a round that does not count."""
    for one in contenders:
        one()
    said = [[one() for one in contenders] for _ in range(rounds)]
    return [median(column) for column in zip(*said, strict=True)]


def median_figures(rounds: int, contenders: Sequence[Callable[[], Mapping[str, float]]]) -> Iterable[dict[str, float]]:
    """The same for contenders that say several figures, each by its own median, and run too long for a round more."""
    said = [[one() for one in contenders] for _ in range(rounds)]
    for runs in zip(*said, strict=True):
        yield {name: median(run[name] for run in runs) for name in runs[0]}
