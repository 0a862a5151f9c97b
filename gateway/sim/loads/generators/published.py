"""The shared-prefix tests that public benchmarks publish, with their numbers and their arrivals.

    test                     groups x prompts   shared / own / output tokens   arrivals
    llm-d, 73 % of capacity  150 x 5            6,000 / 1,200 / 1,000          Poisson, a ladder up to 60 a second
    llm-d, 37 % of capacity   83 x 3            8,000 / 1,000 / 1,000          even, a ladder up to 20 a second
    SGLang's own test         64 x 16           2,048 / 128 / 256              all at once
    SGLang, issue 21199        1 x 400          2,548 / 7,252 / 430            3 a second, 36 in flight at most
    SGLang, issue 31170       16 x 32           4,096 / 128 / 256              64 in flight

The ladders are far longer than their prompts: the prompts come again, in the same order, as long as the ladder lasts.
"""

from dataclasses import replace
from math import ceil

from gateway.sim.loads.arrivals import Stage, closed_loop, ladder, poisson
from gateway.sim.loads.generators.shared_prefix import shared_prefix
from gateway.sim.types import Workload

LLM_D_73_STAGES: tuple[Stage, ...] = (
    (15, 50),
    (3, 20),
    (10, 20),
    (15, 20),
    (20, 38),
    (22, 34),
    (25, 30),
    (30, 25),
    (35, 21),
    (40, 38),
    (43, 36),
    (46, 33),
    (49, 30),
    (52, 29),
    (55, 27),
    (57, 26),
    (60, 25),
)
"""Requests per second, seconds; the first is the warm-up."""

LLM_D_37_STAGES: tuple[Stage, ...] = (
    (9, 30),
    (3, 210),
    (4, 180),
    (5, 120),
    (6, 120),
    (8, 90),
    (10, 70),
    (12, 60),
    (15, 50),
    (20, 50),
)


def llm_d_73(seed: int) -> Workload:
    """llm-d's test whose prefixes fill 73 % of the fleet's caches; about 17,000 requests in 502 seconds."""
    load = shared_prefix(150, 5, 6000, 1200, 1000, seed=seed, rounds=_rounds(LLM_D_73_STAGES, 750))
    return replace(ladder(load, LLM_D_73_STAGES, seed), name="llm-d-73")


def llm_d_37(seed: int) -> Workload:
    """llm-d's test whose prefixes fill 37 % of the fleet's caches; 6,830 requests in 980 seconds."""
    load = shared_prefix(83, 3, 8000, 1000, 1000, seed=seed, rounds=_rounds(LLM_D_37_STAGES, 249))
    return replace(ladder(load, LLM_D_37_STAGES, None), name="llm-d-37")


def sglang(seed: int) -> Workload:
    """The shared-prefix test of SGLang's benchmark with its defaults, all requests at once."""
    return replace(shared_prefix(64, 16, 2048, 128, 256, seed=seed), name="sglang-shared-prefix")


def sglang_21199(seed: int) -> Workload:
    """One prefix for all, a known bad case of greedy affinity: two endpoints, one of them idle."""
    load = poisson(shared_prefix(1, 400, 2548, 7252, 430, seed=seed), 3, seed)
    return replace(load, name="sglang-21199", most_in_flight=36)


def sglang_31170(seed: int) -> Workload:
    """Sixteen prefixes, 64 requests in flight."""
    return replace(closed_loop(shared_prefix(16, 32, 4096, 128, 256, seed=seed), 64), name="sglang-31170")


def _rounds(stages: tuple[Stage, ...], prompts: int) -> int:
    """Enough for a Poisson ladder that has a twentieth more requests than on average, and one round more."""
    return ceil(1.05 * sum(rate * seconds for rate, seconds in stages) / prompts) + 1
