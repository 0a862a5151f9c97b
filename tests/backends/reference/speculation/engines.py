"""Engines that speculate, and what is asked of them."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest

from backends.reference.engine import Engine
from backends.reference.model_files import ensure_model
from backends.reference.speculation import Drafter
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import Delta, EngineConfig, GenerationRequest, RequestId, SamplingParams
from backends.reference.weights import ModelWeights

DEADLINE_S = 60
ids = count()


class Call:
    """A request, and what came of it."""

    def __init__(self, engine: Engine, prompt: Sequence[int], sampling: SamplingParams) -> None:
        self._deltas: queue.Queue[Delta] = queue.Queue()
        self.deltas: list[Delta] = []
        engine.submit(GenerationRequest(RequestId(f"s{next(ids)}"), tuple(prompt), sampling), self._deltas.put)

    def finish(self) -> "Call":
        """Wait for its end."""
        while not self.deltas or self.deltas[-1].finish is None:
            self.deltas.append(self._deltas.get(timeout=DEADLINE_S))
        return self

    @property
    def tokens(self) -> list[int]:
        """All that was output."""
        return [token for delta in self.deltas for token in delta.token_ids]


@cache
def _tokenizer() -> ModelTokenizer:
    return ModelTokenizer(ensure_model("tiny"))


@contextmanager
def running(config: EngineConfig, weights: ModelWeights, drafter: Drafter | None = None) -> Iterator[Engine]:
    """An engine; with `drafter` in place of the one that is configured."""
    with pytest.MonkeyPatch.context() as patch:
        if drafter is not None:
            patch.setattr("backends.reference.engine.new_drafter", lambda *_: drafter)
        engine = Engine(config, weights, _tokenizer())
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
