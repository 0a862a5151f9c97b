"""Counts that vary: how long prompts, answers and conversations are. Tokens, or whatever is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random
from typing import TypeAlias

Draw: TypeAlias = Callable[[Random], int]
"""One count out of a distribution."""

Z90 = 1.2815515655446004
"""The 90 % quantile of the standard normal distribution."""
MOST = 1 << 40


@dataclass(frozen=True, slots=True)
class Lognormal:
    """exp(normal): many short, a few very long. Values beyond `low` and `high` become these."""

    median: float
    sigma: float
    low: int = 1
    high: int = MOST

    @property
    def p90(self) -> float:
        """Its 90 % quantile, unbounded."""
        return self.median * exp(self.sigma * Z90)

    def __call__(self, dice: Random) -> int:
        return max(self.low, min(self.high, round(self.median * exp(self.sigma * dice.gauss(0, 1)))))


@dataclass(frozen=True, slots=True)
class Normal:
    """Values beyond `low` and `high` become these."""

    mean: float
    deviation: float
    low: int = 1
    high: int = MOST

    def __call__(self, dice: Random) -> int:
        return max(self.low, min(self.high, round(dice.gauss(self.mean, self.deviation))))


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same."""

    value: int

    def __call__(self, dice: Random) -> int:
        return self.value


def by_mean(mean: float, deviation: float, low: int = 1, high: int = MOST) -> Lognormal:
    """The lognormal with this mean and standard deviation before it is bounded."""
    variance = log(1 + (deviation / mean) ** 2)
    return Lognormal(mean * exp(-variance / 2), sqrt(variance), low, high)


def by_median(median: float, mean: float, low: int = 1, high: int = MOST) -> Lognormal:
    """The lognormal with this median and mean: mean = median * exp(sigma² / 2)."""
    return Lognormal(median, sqrt(2 * log(mean / median)), low, high)


def by_p90(median: float, p90: float, low: int = 1, high: int = MOST) -> Lognormal:
    """The lognormal with these two quantiles."""
    return Lognormal(median, log(max(p90, median) / median) / Z90, low, high)
