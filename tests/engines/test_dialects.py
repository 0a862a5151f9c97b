"""The contract of dialects, kept by real engines: the same clauses that simulated ones and recorded pages pass."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from backends.features import Feature, Standing
from tests.backends.dialects import contract
from tests.backends.dialects.contract import CONTRACT, LiveEngine
from tests.engines.figures import Figures
from tests.engines.servers import MODEL, EngineServer, VllmOptions, free_port, llamacpp, vllm

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

Start = Callable[[], AbstractContextManager[EngineServer]]
WORDS = 600
"""Of a prompt: longer than the slowest way to tell what was cached."""


def starters(folder: Path) -> dict[str, Start]:
    """Each at a port of its own, which it keeps when it is started again."""
    ports = [free_port() for _ in range(3)]
    return {
        "vllm": lambda: vllm("tiny", folder, VllmOptions(port=ports[0])),
        "llamacpp": lambda: llamacpp("tiny", folder, ports[1]),
        "llamacpp-no-metrics": lambda: llamacpp("tiny", folder, ports[2], has_metrics=False),
    }


@pytest.fixture(scope="module", params=["vllm", "llamacpp", "llamacpp-no-metrics"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    start = starters(tmp_path_factory.mktemp(request.param))[request.param]
    with ExitStack() as stack:
        life = stack.enter_context(ExitStack())
        server = life.enter_context(start())

        def again() -> None:
            life.close()
            life.enter_context(start())

        async def restart() -> None:
            await asyncio.to_thread(again)

        yield LiveEngine(server.engine, server.url, MODEL, restart, words=WORDS)


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_a_real_engine(live: LiveEngine, clause: Callable[[LiveEngine], Awaitable[None]]) -> None:
    await clause(live)


async def test_what_a_real_engine_has_turned_on_is_known(live: LiveEngine, figures: Figures) -> None:
    facts, load = await contract.look(live)
    standings = {feature.value: fact.standing.value for feature, fact in facts.features.items()}
    figures.add(live.dialect, "features", ", ".join(f"{name}: {standing}" for name, standing in standings.items()))
    assert facts.features[Feature.CACHED_TOKENS].standing is not Standing.OFF
    assert facts.features[Feature.PREFIX_CACHING].standing is not Standing.OFF
    assert load is not None
    if facts.features[Feature.METRICS].standing is Standing.OFF:
        assert (load.running, load.waiting) == (0, None)
    assert facts.capacity_tokens is not None


async def test_a_real_engine_is_another_one_after_a_restart(live: LiveEngine) -> None:
    await contract.is_another_one_after_a_restart(live)
