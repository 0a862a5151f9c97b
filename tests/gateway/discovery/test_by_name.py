"""Endpoints behind a name, behind a gateway; and what `prefixgate check` says of all that is found."""

import json
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from backends.reference.embedded import RunningEngine
from gateway.cli import cli
from gateway.config import ConfigInvalid, load_config
from tests.backends.discovery.dns_server import dns_server
from tests.gateway.conftest import StartGateway, start
from tests.gateway.discovery.test_file import ask, takers, until_shown


def port_of(engine: RunningEngine) -> int:
    port = urlsplit(engine.url).port
    assert port is not None
    return port


async def test_a_name_that_this_machine_knows_is_an_endpoint_that_serves(
    start_gateway: StartGateway, engine: RunningEngine
) -> None:
    port = port_of(engine)
    gateway = await start(start_gateway, discovery__dns=[{"name": "localhost", "port": port, "family": "ipv4"}])
    assert takers(gateway) == [f"127.0.0.1-{port}"]
    assert ask(gateway).headers["x-prefixgate-endpoint"] == f"127.0.0.1-{port}"
    assert gateway.metric("prefixgate_discovered_endpoints", source=f"dns:localhost:{port}", state="up") == 1


async def test_a_service_that_appears_later_joins(start_gateway: StartGateway, engine: RunningEngine) -> None:
    async with dns_server() as dns:
        name = {"name": "_http._tcp.engines.example", "kind": "srv", "server": f"127.0.0.1:{dns.port}"}
        gateway = await start(start_gateway, discovery__dns=[{**name, "interval_s": 0.1}], poll_interval_s=0.1)
        assert takers(gateway) == []
        health = gateway.http.get("/health").json()
        assert health["degraded"]["discovery"] == "dns:_http._tcp.engines.example: it stands for nothing"
        dns.zone = {("_http._tcp.engines.example.", "SRV"): (1, [f"0 0 {port_of(engine)} localhost."])}
        await until_shown(lambda: takers(gateway) == [f"localhost-{port_of(engine)}"])
        assert "discovery" not in gateway.http.get("/health").json()["degraded"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "engines.example"}, "`address` needs a port"),
        ({"name": "engines.example", "kind": "srv", "port": 80}, "have their own"),
        ({"name": "engines example", "port": 80}, "should match pattern"),
        ({"name": "engines.example", "port": 80, "server": "dns:99999"}, "no such port"),
    ],
)
def test_a_name_that_cannot_be_looked_up_is_refused_at_the_start(given: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigInvalid, match=why):
        load_config(None, {}, {"discovery.dns": [given]})


def test_check_shows_who_lists_each_endpoint_and_what_is_wrong(engine: RunningEngine, tmp_path: Path) -> None:
    listing, config = tmp_path / "endpoints.json", tmp_path / "prefixgate.yaml"
    listing.write_text(json.dumps([{"url": engine.url, "id": "listed"}]))
    ledger = {"path": str(tmp_path / "ledger.db")}
    config.write_text(json.dumps({"discovery": {"file": str(listing)}, "ledger": ledger}))
    shown = CliRunner().invoke(cli, ["check", "-c", str(config), "--no-proof"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert ["listed", "file", "yes"] in [line.replace("│", " ").split()[:3] for line in shown.output.splitlines()]
    listing.write_text("nonsense: true")
    shown = CliRunner().invoke(cli, ["check", "-c", str(config), "--no-proof"])
    assert shown.exit_code == 1
    assert "not found: file: endpoints.json: it must hold a list of endpoints" in shown.output


def test_check_fails_and_names_a_source_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.checking.ASK_S", 0.1)
    with socket.socket(type=socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        name = {"name": "_http._tcp.engines.example", "kind": "srv", "server": f"127.0.0.1:{deaf.getsockname()[1]}"}
        config = tmp_path / "prefixgate.yaml"
        config.write_text(json.dumps({"discovery": {"dns": [name]}, "ledger": {"path": str(tmp_path / "ledger.db")}}))
        shown = CliRunner().invoke(cli, ["check", "-c", str(config), "--no-proof"])
    assert shown.exit_code == 1
    assert "not found: dns:_http._tcp.engines.example: it said nothing for 0.1 s" in shown.output
