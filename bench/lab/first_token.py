"""Time to the first token, cold and warm, over the length of the prompt: the engine as it is served."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import Queue
from random import Random
from typing import Final

from backends.reference.engine import Engine
from backends.reference.types import Delta, EngineConfig, GenerationRequest, RequestId, SamplingParams
from bench.lab.turns import median_figures
from bench.lab.types import Lab, Row
from bench.result import Goal

LENGTHS: Final = (64, 256, 1024)
_DEADLINE_S: Final = 120


def measure(lab: Lab) -> Iterable[Row]:
    """One row a length: a prompt that nobody sent before, then the same once more."""
    config = EngineConfig(model="smollm2", kv_blocks=256, max_batched_tokens=2048)
    engine = Engine(config, lab.weights, lab.tokenizer)
    engine.start()
    try:
        dice = Random(3)
        runs = [partial(_cold_and_warm, _Asked(engine, lab.clock), length, dice) for length in LENGTHS]
        for length, figures in zip(LENGTHS, median_figures(min(lab.rounds, 3), runs), strict=True):
            yield Row(f"{length} tokens", figures)
    finally:
        engine.stop()


@dataclass(frozen=True, slots=True)
class _Asked:
    engine: Engine
    clock: Callable[[], float]

    def first_token(self, name: str, prompt: tuple[int, ...]) -> tuple[float, int]:
        """Seconds, and how many tokens were in the cache."""
        news: Queue[Delta] = Queue()
        request = GenerationRequest(RequestId(name), prompt, SamplingParams(max_tokens=1, temperature=0.0))
        began_s = self.clock()
        self.engine.submit(request, news.put)
        delta = news.get(timeout=_DEADLINE_S)
        return self.clock() - began_s, delta.receipt.cached_tokens


def _cold_and_warm(asked: _Asked, length: int, dice: Random) -> Mapping[str, float]:
    prompt = tuple(dice.randrange(asked.engine.shape.vocab) for _ in range(length))
    cold_s, _ = asked.first_token("cold", prompt)
    warm_s, cached = asked.first_token("warm", prompt)
    return {"cold, ms": 1e3 * cold_s, "warm, ms": 1e3 * warm_s, "cached tokens": cached, "cold / warm": cold_s / warm_s}


def goals(rows: list[Row]) -> Iterable[Goal]:
    """The longest prompt's first token comes ten times as soon when it is cached."""
    ratio = rows[-1].figures["cold / warm"]
    assert isinstance(ratio, float)
    yield Goal(f"{LENGTHS[-1]} tokens: cold, times warm", ratio, 10, ">=")
