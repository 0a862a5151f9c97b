"""Two simulated engines behind a gateway: the load's own clock and the gateway's ledger tell the same story."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from backends.perf import PerfModel
from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from gateway.cli import cli
from tests.gateway.conftest import StartGateway

PERF = PerfModel(0.01, 10_000.0, 0.0, 0.03, 0.001)


@pytest.fixture
def engines() -> Iterator[tuple[SimulatedServer, SimulatedServer]]:
    spec = ServerSpec(engine=EngineSpec(perf=PERF, capacity_blocks=50_000), speed=2.0, max_model_len=50_000)
    with SimulatedServer(spec) as one, SimulatedServer(spec) as other:
        yield one, other


def measured(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(cli, ["measure", *arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
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
    ours, theirs = loaded["levels"][0], kept["levels"][-1]  # type: ignore[index]  # of JSON
    assert theirs["itl"]["p50"] == pytest.approx(ours["itl"]["p50"], rel=0.3)
    assert theirs["ttft"]["p50"] == pytest.approx(ours["ttft"]["p50"], rel=0.3)
    assert kept["lengths"]["output"]["most"] == 48  # type: ignore[index]  # that of the probe
    assert kept["verdict"]["bottleneck"] == loaded["verdict"]["bottleneck"] == "decode"  # type: ignore[index]
