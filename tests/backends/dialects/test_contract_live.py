"""The contract of dialects, kept by servers that live: the reference engine, and simulated ones of every kind."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from backends.reference.embedded import run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from backends.reference.weights import load_weights
from backends.simulated.serving import DIALECTS, ServerSpec, SimulatedServer
from tests.backends.dialects import contract
from tests.backends.dialects.contract import CONTRACT, Convention, LiveEngine

SPEED = 200.0
"""Seconds of a simulated engine in one of ours: fast enough to wait for, slow enough to be one."""


class Reference:
    """The reference engine in this process, which can be started anew at its port."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._weights = load_weights(ensure_model("tiny"))
        self._life = stack.enter_context(ExitStack())
        self.url = self._start(0)

    def _start(self, port: int) -> str:
        config = EngineConfig(model="tiny", kv_blocks=512, block_size=16)
        return self._life.enter_context(run_engine(config, self._weights, port=port)).url

    def restart(self) -> None:
        """Nothing cached, the same port."""
        self._life.close()
        self._start(int(self.url.rpartition(":")[2]))


@pytest.fixture(scope="module")
def reference() -> Iterator[LiveEngine]:
    with ExitStack() as stack:
        engine = Reference(stack)

        async def restart() -> None:
            await asyncio.to_thread(engine.restart)

        yield LiveEngine("reference", engine.url, "tiny", restart)


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_reference_engine(reference: LiveEngine, clause: Callable[[LiveEngine], Awaitable[None]]) -> None:
    await clause(reference)


async def test_the_reference_engine_is_another_one_after_a_restart(reference: LiveEngine) -> None:
    await contract.is_another_one_after_a_restart(reference)


VARIANTS = {
    **{dialect: ServerSpec(dialect=dialect) for dialect in DIALECTS},
    "vllm-0.23": ServerSpec(dialect="vllm", version="0.23.0"),
    "vllm-silent": ServerSpec(dialect="vllm", reports_cached_tokens=False),
    "vllm-ranks": ServerSpec(dialect="vllm", ranks=2),
    "sglang-silent": ServerSpec(dialect="sglang", reports_cached_tokens=False, has_metrics=False),
    "llamacpp-no-metrics": ServerSpec(dialect="llamacpp", has_metrics=False),
}
SILENT = frozenset({"vllm-silent", "sglang-silent"})
UNSEEN = frozenset({"openai"})


@pytest.fixture(scope="module", params=VARIANTS)
def simulated(request: pytest.FixtureRequest) -> Iterator[LiveEngine]:
    with SimulatedServer(replace(VARIANTS[request.param], speed=SPEED)) as server:

        async def restart() -> None:
            await asyncio.to_thread(server.restart)

        yield LiveEngine(
            dialect=server.spec.dialect,
            url=server.url,
            model=server.spec.model,
            restart=restart,
            convention=Convention.NOTHING if request.param in SILENT else None,
            tells_zero=request.param != "vllm-0.23",
            shows_restart=request.param not in UNSEEN,
        )


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_a_simulated_engine(simulated: LiveEngine, clause: Callable[[LiveEngine], Awaitable[None]]) -> None:
    await clause(simulated)


async def test_a_simulated_engine_is_another_one_after_a_restart(simulated: LiveEngine) -> None:
    await contract.is_another_one_after_a_restart(simulated)
