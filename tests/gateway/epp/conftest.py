"""Pickers on real ports, before engines that only take time."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.config import load_config
from gateway.epp import EnvoyPlane, EppServer
from tests.gateway.conftest import RunningGateway, running_gateway


@dataclass(frozen=True, slots=True)
class RunningPicker:
    """`address` is that of gRPC, `pages` the gateway's own."""

    address: str
    pages: RunningGateway
    server: EppServer


StartPicker = Callable[..., RunningPicker]


@dataclass(frozen=True, slots=True)
class SimulatedEngine:
    """A process of its own."""

    url: str
    process: "subprocess.Popen[str]"

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


@contextmanager
def simulated_engine(*options: str) -> Iterator[SimulatedEngine]:
    """Run one until the block ends; fast, with room for a few thousand blocks."""
    command = (sys.executable, "-m", "backends.simulated.serving", "--speed", "200", "--blocks", "4000", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield SimulatedEngine(json.loads(process.stdout.readline())["url"], process)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def engines() -> Iterator[list[SimulatedEngine]]:
    """Two for all tests of this folder."""
    with simulated_engine() as one, simulated_engine() as two:
        yield [one, two]


@contextmanager
def running_picker(folder: Path, *urls: str, **flags: object) -> Iterator[RunningPicker]:
    """Run a picker in a thread until the block ends; flags as `start_gateway` has them."""
    defaults: dict[str, object] = {
        "backends": [{"url": url, "id": f"e{position}"} for position, url in enumerate(urls)],
        "listen.port": 0,
        "epp.port": 0,
        "epp.host": "127.0.0.1",
        "epp.tls": "off",
        "ledger.path": folder / f"ledger-{len(list(folder.glob('ledger-*.db')))}.db",
        "poll_interval_s": 0.2,
        "health.failures": 1000,  # those of one test are not another's
        "limits.drain_s": 2,
        "limits.close_idle_s": 0,
    }
    config = load_config(None, {}, {**defaults, **{name.replace("__", "."): value for name, value in flags.items()}})
    plane = EnvoyPlane(config.epp, config.limits.connect_s, time.monotonic)
    server = EppServer(config, {}, plane)
    server.announces = False
    with running_gateway(config, server) as pages:
        assert server.address is not None
        yield RunningPicker(server.address, pages, server)


@pytest.fixture(scope="module")
def picker(engines: list[SimulatedEngine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPicker]:
    """One before both engines, for the tests of a module: tests elsewhere look at the threads of their process."""
    with running_picker(tmp_path_factory.mktemp("picker"), *(engine.url for engine in engines)) as running:
        yield running


@pytest.fixture
def start_picker(tmp_path: Path) -> Iterator[StartPicker]:
    """Start pickers over given backends."""
    with ExitStack() as stack:
        yield lambda *urls, **flags: stack.enter_context(running_picker(tmp_path, *urls, **flags))
