"""Requests that can be read again: each reading starts from the beginning and gives the same ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from gateway.sim.types import SimRequest


@dataclass(frozen=True, slots=True)
class Again:
    """An iterable that is nothing but the way to start over; keeps no request."""

    start: Callable[[], Iterator[SimRequest]]

    def __iter__(self) -> Iterator[SimRequest]:
        return self.start()


def dice_of(seed: int) -> Random:
    """Chance that falls the same way each time."""
    return Random(seed)  # noqa: S311 -- a load keeps no secret
