"""Engines of one process, asked without HTTP: what a request output, and how long the engine took."""

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from backends.reference.engine import Engine
from backends.reference.types import Delta, EngineConfig, GenerationRequest, Receipt, RequestId, SamplingParams
from bench.lab.types import Lab

PATIENCE_S: Final = 120.0
_ids: Final = count()


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a request; `ttft_s` is from its arrival to its first token, `decode_s` to its last."""

    tokens: tuple[int, ...]
    receipt: Receipt
    ttft_s: float
    decode_s: float


@contextmanager
def running(lab: Lab, config: EngineConfig) -> Iterator[Engine]:
    """An engine of the lab's model."""
    engine = Engine(config, lab.weights, lab.tokenizer)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def answered(engine: Engine, prompt: Sequence[int], sampling: SamplingParams, clock: Callable[[], float]) -> Answered:
    """One request, alone; returns when it has ended."""
    deltas: queue.Queue[tuple[float, Delta]] = queue.Queue()
    began_s = clock()
    request = GenerationRequest(RequestId(f"lab-{next(_ids)}"), tuple(prompt), sampling)
    engine.submit(request, lambda delta: deltas.put((clock(), delta)))
    seen = [deltas.get(timeout=PATIENCE_S)]
    while seen[-1][1].finish is None:
        seen.append(deltas.get(timeout=PATIENCE_S))
    first_s, last_s = seen[0][0], seen[-1][0]
    tokens = tuple(token for _, delta in seen for token in delta.token_ids)
    return Answered(tokens, seen[-1][1].receipt, first_s - began_s, last_s - first_s)
