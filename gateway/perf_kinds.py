"""Which endpoints are of one kind, and how fast the kind is. Pure.

    fits of one prior, by their seconds for the usual prompt

      0.09  0.10  0.10  0.11  0.12        0.21  0.22            the middle one and all within ALIKE of it: one kind
      └──────────── kind ─────────┘       └─ kind ─┘            then the same among those that are left

Two machines of one kind do not differ by what their fits differ by; but the one that looks a hundredth faster would get
the queue. So decisions take an endpoint for its kind: the fit of the samples of all of it together, which is steadier
than any of theirs, since what a step took because of others' answers is not known of a single sample.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from backends import PerfModel
from backends.perf_fit import PerfFit, fit_of_all

ALIKE: Final = 0.3
"""Seconds for the usual prompt that differ by less are no difference: fits of equal engines under unequal loads differ
by a tenth and for moments by a quarter (decodes beside a prefill), GPUs of two generations by half."""
LEAST_SAMPLES: Final = 5
"""With fewer a fit is mostly its prior."""


def kinds_of(fits: Sequence[PerfFit], usual: tuple[float, int]) -> Iterator[tuple[list[PerfFit], PerfModel]]:
    """Each kind and its speed, the fits being of one prior; `usual` are the uncached tokens and the tokens of the usual
    prompt. Fits that hardly know anything are of the first kind, of which the endpoint in the middle is.
    O(endpoints log endpoints) for each kind."""
    left = sorted((fit for fit in fits if is_known(fit)), key=lambda fit: fit.model.prefill_s(*usual))
    unknown = [fit for fit in fits if not is_known(fit)]
    if not left:
        yield unknown, fit_of_all(unknown)
    while left:
        middle = left[(len(left) - 1) // 2].model
        alike = [fit for fit in left if are_alike(fit.model, middle, usual)]
        left = [fit for fit in left if not are_alike(fit.model, middle, usual)]
        yield alike + unknown, fit_of_all(alike)
        unknown = []


def is_known(fit: PerfFit) -> bool:
    """Whether it is more than its prior."""
    return fit.samples >= LEAST_SAMPLES


def are_alike(one: PerfModel, kind: PerfModel, usual: tuple[float, int]) -> bool:
    """Whether it takes as long for the usual prompt as its kind."""
    kind_s = kind.prefill_s(*usual)
    return abs(one.prefill_s(*usual) - kind_s) <= ALIKE * kind_s
