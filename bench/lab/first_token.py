"""Time to the first token, cold and warm, over the length of the prompt: the engine as it is served."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Final

from backends.reference.engine import Engine
from backends.reference.types import EngineConfig, SamplingParams
from bench.lab.asked import answered, running
from bench.lab.turns import median_figures
from bench.lab.types import Lab, Row, number
from bench.result import Goal

LENGTHS: Final = (64, 256, 1024)
GREEDY: Final = SamplingParams(1, temperature=0)


def measure(lab: Lab) -> Iterable[Row]:
    """One row a length: a prompt that nobody sent before, then the same once more."""
    with running(lab, EngineConfig(model="", kv_blocks=256, max_batched_tokens=2048)) as engine:
        dice = Random(3)
        runs = [partial(_cold_and_warm, engine, lab.clock, length, dice) for length in LENGTHS]
        for length, figures in zip(LENGTHS, median_figures(min(lab.rounds, 3), runs), strict=True):
            yield Row(f"{length} tokens", figures)


def _cold_and_warm(engine: Engine, clock: Callable[[], float], length: int, dice: Random) -> Mapping[str, float]:
    prompt = tuple(dice.randrange(engine.shape.vocab) for _ in range(length))
    cold, warm = (answered(engine, prompt, GREEDY, clock) for _ in range(2))
    return {
        "cold, ms": 1e3 * cold.ttft_s,
        "warm, ms": 1e3 * warm.ttft_s,
        "cached tokens": warm.receipt.cached_tokens,
        "cold / warm": cold.ttft_s / warm.ttft_s,
    }


def goals(rows: list[Row]) -> Iterable[Goal]:
    """The longest prompt's first token comes ten times as soon when it is cached."""
    yield Goal(f"{LENGTHS[-1]} tokens: cold, times warm", number(rows[-1].figures["cold / warm"]), 10, ">=")
