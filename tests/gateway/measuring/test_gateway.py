"""Two simulated engines behind a gateway: the load's own clock and the gateway's ledger tell the same story."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from backends.perf import PerfModel
from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from gateway.cli import cli
from tests.gateway.conftest import StartGateway

PERF = PerfModel(0.01, 10_000.0, 0.0, 0.03, 0.001)
SPEED = 2.0


@pytest.fixture
def engines() -> Iterator[tuple[SimulatedServer, SimulatedServer]]:
    spec = ServerSpec(engine=EngineSpec(perf=PERF, capacity_blocks=50_000), speed=SPEED, max_model_len=50_000)
    with SimulatedServer(spec) as one, SimulatedServer(spec) as other:
        yield one, other


def measured(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["measure", *arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_load_on_a_gateway_and_its_ledger_agree(
    engines: tuple[SimulatedServer, SimulatedServer], start_gateway: StartGateway
) -> None:
    gateway = start_gateway(*(engine.url for engine in engines))
    lengths = ("--prompt", "400", "--output", "20", "--seed", "3")
    loaded = measured(gateway.url, *lengths, "--clients", "4", "--seconds", "1.5", "--warm", "0.2", "--drain", "10")
    assert loaded["engines"] == 2, "answers name the endpoints"
    kept = measured("--ledger", str(gateway.ledger_path))
    assert kept["engines"] == 2
    ours, theirs = loaded["levels"][0], kept["levels"][-1]
    # The client sees what the gateway saw, later by what a loaded machine adds; the engine is as fast as it is.
    assert PERF.prefill_s(380, 380) / SPEED <= theirs["ttft"]["p50"] <= 1.3 * ours["ttft"]["p50"]
    assert PERF.itl_s / SPEED <= theirs["itl"]["p50"] <= 1.3 * ours["itl"]["p50"]
    assert kept["lengths"]["output"]["most"] == 48  # of the probe


def test_a_running_gateway_is_watched_with_what_its_engines_say(
    engines: tuple[SimulatedServer, SimulatedServer], start_gateway: StartGateway, token_file: Path
) -> None:
    gateway = start_gateway(*(engine.url for engine in engines), admin_token_file=token_file)
    body = {"model": "simulated", "messages": [{"role": "user", "content": "a b"}], "max_tokens": 4, "stream": True}
    over = threading.Event()

    def ask_on() -> None:
        while not over.is_set():
            gateway.http.post("/v1/chat/completions", json=body).raise_for_status()

    asking = threading.Thread(target=ask_on)
    asking.start()
    try:
        whom = ("--gateway", gateway.url, "--token-file", str(token_file), "--ledger", str(gateway.ledger_path))
        found = measured("--live", "--seconds", "1.5", *whom)
        of_another = CliRunner().invoke(cli, ["measure", "--live", "--seconds", "0.3", "--model", "other", *whom])
    finally:
        over.set()
        asking.join()
    assert {one["endpoint"] for one in found["engine_use"]} == {"e0", "e1"}
    assert found["levels"][0]["requests"] >= 3
    assert (of_another.exit_code, "no request of that period" in of_another.stderr) == (1, True)


def test_a_gateway_that_is_watched_is_not_put_under_load() -> None:
    done = CliRunner().invoke(cli, ["measure", "http://127.0.0.1:1", "--live"])
    assert done.exit_code == 2
    assert "give one of both" in done.stderr
