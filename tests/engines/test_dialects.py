"""The contract of dialects, kept by real engines: the same clauses that simulated ones and recorded pages pass."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from backends.features import Feature, Standing
from backends.registry import PollSettings, Registry
from gateway.checking import ask_backends
from gateway.config import load_config
from gateway.proof import Verdict
from gateway.types import TokenSource
from tests.backends.dialects import contract
from tests.backends.dialects.contract import CONTRACT, LiveEngine
from tests.engines.figures import Figures
from tests.engines.servers import MODEL, EngineServer, VllmOptions, free_port, llamacpp, vllm

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

Start = Callable[[], AbstractContextManager[EngineServer]]
WORDS = 600
"""Of a prompt: longer than the slowest way to tell what was cached."""
LONG_WORDS = 330
"""Of one that takes tens of seconds."""
LISTENS_WITHIN_S = 60.0


def starters(folder: Path) -> dict[str, Start]:
    """Each at a port of its own, which it keeps when it is started again."""
    ports = [free_port() for _ in range(3)]
    return {
        "vllm": lambda: vllm("tiny", folder, VllmOptions(port=ports[0])),
        "llamacpp": lambda: llamacpp("tiny", folder, ports[1]),
        "llamacpp-no-metrics": lambda: llamacpp("tiny", folder, ports[2], has_metrics=False),
    }


def until_it_listens(url: str) -> None:
    """vLLM says that it has started a moment before it does."""
    address, _, port = url.removeprefix("http://").partition(":")
    until_s = time.monotonic() + LISTENS_WITHIN_S
    while True:
        try:
            socket.create_connection((address, int(port))).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until_s, f"{url} does not listen"
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module", params=["vllm", "llamacpp", "llamacpp-no-metrics"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    start = starters(tmp_path_factory.mktemp(request.param))[request.param]
    with ExitStack() as stack:
        life = stack.enter_context(ExitStack())
        server = life.enter_context(start())
        until_it_listens(server.url)

        def again() -> None:
            life.close()
            until_it_listens(life.enter_context(start()).url)

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


async def test_prompts_of_every_shape_are_tokenised_by_the_engine_itself(live: LiveEngine, figures: Figures) -> None:
    """As `prefixgate check` proves it where no tokenizer is here."""
    config = load_config(None, {}, {"backends": [{"url": live.url, "id": "a"}]})
    _, proofs, _ = await ask_backends(config, {}, {})
    compared = [proof for proof in proofs if proof.engine_tokens is not None and proof.ours_tokens is not None]
    equal = [proof for proof in compared if proof.verdict is Verdict.EQUAL]
    what = "shapes of prompts tokenised as counted, by the engine"
    figures.add_share(live.dialect, what, len(equal), len(compared), least=1.0)
    assert {proof.source for proof in compared} == {TokenSource.ENGINE}
    assert [proof.shape for proof in compared if proof not in equal] == []
    assert len(equal) > 10


async def test_a_real_engine_is_another_one_after_a_restart(live: LiveEngine) -> None:
    await contract.is_another_one_after_a_restart(live)


@pytest.mark.parametrize("has_metrics", [True, False])
async def test_a_llamacpp_that_computes_a_long_prompt_stays_up(has_metrics: bool, tmp_path: Path) -> None:
    """Some of its pages are answered only between two batches, which take half a minute here."""
    with llamacpp("smollm2", tmp_path, has_metrics=has_metrics) as server:
        engine = LiveEngine(server.engine, server.url, MODEL, words=LONG_WORDS)
        settings = PollSettings(polls_to_detect=1)
        async with Registry([engine.config()], time.monotonic, settings=settings) as registry:
            await registry.poll(contract.A)
            first = registry.snapshot()[0]
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(contract.usage(engine, contract.new_prompt(engine)))
                seen = []
                while not asked.done():
                    await registry.poll(contract.A)
                    seen.append(registry.snapshot()[0])
                    await asyncio.sleep(0.5)
    assert first.healthy
    assert {one.unhealthy_reason for one in seen} == {None}
    assert {one.generation for one in seen} == {first.generation}
    assert 1 in {None if one.load is None else one.load.running for one in seen}
