"""Engines without HTTP, and requests to them."""

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count

import pytest

from backends.reference.engine import Engine, EngineStats
from backends.reference.lab.recipes import recast
from backends.reference.model_files import ensure_model
from backends.reference.speculation import Drafter
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import Delta, EngineConfig, GenerationRequest, RequestId, SamplingParams
from backends.reference.weights import ModelWeights

DEADLINE_S = 60
ids = count()


class Call:
    """One request to an engine, and the deltas it got."""

    def __init__(self, engine: Engine, prompt: Sequence[int], sampling: SamplingParams, salt: str = "") -> None:
        self._waiting: queue.Queue[Delta] = queue.Queue()
        self.deltas: list[Delta] = []
        self.request = GenerationRequest(RequestId(str(next(ids))), tuple(prompt), sampling, salt)
        engine.submit(self.request, self._waiting.put)

    def next(self) -> Delta:
        """Wait for one more."""
        self.deltas.append(self._waiting.get(timeout=DEADLINE_S))
        return self.deltas[-1]

    def finish(self) -> Delta:
        """Wait for the last one."""
        while (delta := self.next()).finish is None:
            pass
        return delta

    @property
    def is_over(self) -> bool:
        return bool(self.deltas) and self.deltas[-1].finish is not None

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.token_ids]


def ask(engine: Engine, prompt: Sequence[int], sampling: SamplingParams, salt: str = "") -> Call:
    """A request that has ended."""
    call = Call(engine, prompt, sampling, salt)
    call.finish()
    return call


def stats(engine: Engine) -> EngineStats:
    return engine.stats().result(DEADLINE_S)


@contextmanager
def running(weights: ModelWeights, config: EngineConfig, drafter: Drafter | None = None) -> Iterator[Engine]:
    """An engine; with `drafter` in place of the one that is configured."""
    with pytest.MonkeyPatch.context() as patch:
        if drafter is not None:
            patch.setattr("backends.reference.engine.new_drafter", lambda *_: drafter)
        engine = Engine(config, recast(weights, config.weights), _tokenizer())
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@cache
def _tokenizer() -> ModelTokenizer:
    return ModelTokenizer(ensure_model("tiny"))
