"""The ways requests arrive: each function takes a load and gives one with the same prompts at other times.

The order and the numbers of the requests stay, so a recorded load keeps who came before whom. All are lazy and read
their load anew each time: the same seed gives the same times. Times given by a rate take the place of `after` and
`think_s`: the load is an open loop then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count, groupby, islice, repeat, takewhile
from random import Random
from typing import TypeAlias

from gateway.sim.loads.again import Again, dice_of
from gateway.sim.loads.names import require
from gateway.sim.types import SimRequest, Workload

Stage: TypeAlias = tuple[float, float]
"""Requests per second, and for how many seconds."""


def as_recorded(load: Workload) -> Workload:
    """At the times of the load itself, whatever came before whom."""
    return replace(load, closed_loop=False)


def poisson(load: Workload, rate_per_s: float, seed: int) -> Workload:
    """Independent arrivals: exponential gaps with mean 1 / `rate_per_s`, the first one gap after 0."""
    require(rate_per_s > 0, "requests per second are more than 0")
    return _at(load, lambda: accumulate(_exponential(dice_of(seed), rate_per_s)))


def constant(load: Workload, rate_per_s: float) -> Workload:
    """One request each 1 / `rate_per_s` seconds, the first at 0."""
    require(rate_per_s > 0, "requests per second are more than 0")
    return _at(load, lambda: (number / rate_per_s for number in count()))


def bursty(load: Workload, rate_per_s: float, cv: float, seed: int) -> Workload:
    """Gamma gaps with mean 1 / `rate_per_s` and coefficient of variation `cv`: above 1 burstier than Poisson."""
    require(rate_per_s > 0 and cv > 0, "requests per second and the variation of gaps are more than 0")
    shape = 1 / cv**2
    return _at(load, lambda: accumulate(_gamma(dice_of(seed), shape, 1 / rate_per_s / shape)))


def ladder(load: Workload, stages: Sequence[Stage], seed: int | None) -> Workload:
    """Stage after stage, each with its own rate; the load is cut at the end of the last stage.

    Within a stage arrivals are Poisson, or evenly spaced where `seed` is None. A stage of rate 0 is a pause.
    """
    require(all(rate >= 0 and seconds >= 0 for rate, seconds in stages), "rates and durations are not negative")
    return _at(load, lambda: _climb(stages, None if seed is None else dice_of(seed)))


def at_speed(load: Workload, factor: float) -> Workload:
    """The recorded times, `factor` times as fast: pauses before a turn shrink alike."""
    require(factor > 0, "a speed is more than 0")

    def faster() -> Iterator[SimRequest]:
        for r in load.requests:
            yield _moved(r, r.at_s / factor, r.think_s / factor)

    return replace(load, requests=Again(faster))


def spread(load: Workload, step_s: float, seed: int) -> Workload:
    """Times recorded in steps of `step_s`, spread at random over the step that each one begins."""
    require(step_s > 0, "a step takes time")

    def scattered() -> Iterator[SimRequest]:
        dice = dice_of(seed)
        for at_s, together in groupby(load.requests, lambda r: r.at_s):
            step = list(together)
            for r, within in zip(step, sorted(dice.random() for _ in step), strict=True):
                yield _moved(r, at_s + within * step_s, r.think_s)

    return replace(load, requests=Again(scattered), closed_loop=False)


def closed_loop(load: Workload, concurrency: int) -> Workload:
    """All at once, `concurrency` in flight: a request is sent as soon as one of them ends, and its `after` has."""
    require(concurrency > 0, "at least one is in flight")
    waiting = _at(load, lambda: repeat(0.0))
    return replace(waiting, closed_loop=True, most_in_flight=concurrency)


def turn_by_turn(load: Workload) -> Workload:
    """First turns at their times, each later one its `think_s` after the answer before it: a slow fleet slows users."""
    return replace(load, closed_loop=True)


def take(load: Workload, most: int) -> Workload:
    """The first `most` requests."""
    require(most >= 0, "a number of requests is not negative")
    return replace(load, requests=Again(lambda: islice(iter(load.requests), most)))


def until(load: Workload, seconds: float) -> Workload:
    """The requests that arrive before `seconds`."""
    return replace(load, requests=Again(lambda: takewhile(lambda r: r.at_s < seconds, load.requests)))


def _at(load: Workload, times: Callable[[], Iterable[float]]) -> Workload:
    """The load at these times; it ends with whichever ends first."""

    def timed() -> Iterator[SimRequest]:
        for at_s, r in zip(times(), load.requests, strict=False):
            yield _moved(r, at_s, r.think_s)

    return replace(load, requests=Again(timed), closed_loop=False)


def _moved(r: SimRequest, at_s: float, think_s: float) -> SimRequest:
    # Three times as fast as dataclasses.replace, which matters for a million of them.
    return SimRequest(r.number, at_s, r.chain, r.output_tokens, r.session, r.tenant, r.after, think_s)


def _exponential(dice: Random, rate_per_s: float) -> Iterator[float]:
    while True:
        yield dice.expovariate(rate_per_s)


def _gamma(dice: Random, shape: float, scale_s: float) -> Iterator[float]:
    while True:
        yield dice.gammavariate(shape, scale_s)


def _climb(stages: Sequence[Stage], dice: Random | None) -> Iterator[float]:
    begin = 0.0
    for rate_per_s, seconds in stages:
        end = begin + seconds
        if rate_per_s > 0:
            # Evenly: by number, as a sum of gaps would drift and let in one more.
            gaps = (n / rate_per_s for n in count()) if dice is None else accumulate(_exponential(dice, rate_per_s))
            for gap in gaps:
                if begin + gap >= end:
                    break
                yield begin + gap
        begin = end
