"""Simulated engines say what real ones say: the same status to every request, the same fields in every answer."""

from collections.abc import Iterator

import httpx
import pytest

from backends.reference.model_files import ensure_model
from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from tests.backends.simulated.serving.battery import BATTERY, asked_of
from tests.engines.figures import Figures
from tests.engines.servers import CONTEXT_TOKENS, MODEL, VLLM_BLOCK_TOKENS, EngineServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

SPECS = {
    "vllm": EngineSpec(block_size=VLLM_BLOCK_TOKENS),
    "llamacpp": EngineSpec(block_size=1, capacity_blocks=4 * CONTEXT_TOKENS, max_running=1),
}

OTHER_STATUS: dict[str, frozenset[str]] = {"vllm": frozenset(), "llamacpp": frozenset()}
"""Requests to which the simulated engine says something else, on purpose."""

FEWER_NAMES = {
    "vllm": frozenset[str](),
    # Settings of samplers and properties of a file, of which a simulated engine has none.
    "llamacpp": frozenset({"models", "props"}),
}


@pytest.fixture
def simulated(engine: EngineServer) -> Iterator[httpx.Client]:
    spec = ServerSpec(
        dialect=engine.engine,
        model=MODEL,
        engine=SPECS[engine.engine],
        max_model_len=CONTEXT_TOKENS,
        speed=200,
        tokenizer=ensure_model("tiny"),
    )
    with SimulatedServer(spec) as server, httpx.Client(base_url=server.url, timeout=300) as http:
        yield http


@pytest.mark.parametrize("engine", [("vllm", "tiny"), ("llamacpp", "tiny")], indirect=True, ids="-".join)
def test_a_simulated_engine_answers_every_request_as_the_real_one(
    engine: EngineServer, simulated: httpx.Client, figures: Figures
) -> None:
    # A connection for each: a server may close one that it kept just as the next request is sent.
    each_anew = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(base_url=engine.url, timeout=300, limits=each_anew) as http:
        real = {name: asked_of(http, one) for name, one in BATTERY.items()}
    ours = {name: asked_of(simulated, one) for name, one in BATTERY.items()}
    statuses = {
        name: (real[name].status, ours[name].status) for name in BATTERY if real[name].status != ours[name].status
    }
    names = {
        name: (sorted(real[name].names - ours[name].names), sorted(ours[name].names - real[name].names))
        for name in BATTERY.keys() - FEWER_NAMES[engine.engine]
        if name not in statuses and real[name].names != ours[name].names
    }
    kind = engine.engine
    figures.add_share(
        kind, "requests that a simulated one answers alike", len(BATTERY) - len(statuses), len(BATTERY), least=1.0
    )
    assert statuses.keys() == OTHER_STATUS[kind], statuses
    assert names == {}
