"""Real parts on real ports: engines, gateways, and clients between them."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from backends.reference.types import EngineConfig
from gateway.config import Config, load_config
from gateway.serving import Server, server_config
from tests.until import until

if TYPE_CHECKING:
    from backends.reference.embedded import RunningEngine

MODEL = "tiny"
STORY = "A caravan crosses the desert by night, and every well on its way has a keeper with a name. " * 6


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway on a real port, with its ledger's file and a plain client."""

    url: str
    ledger_path: Path
    http: httpx.Client
    server: Server

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over all series that carry these labels."""
        total = 0.0
        for line in self.http.get("/metrics").text.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")):
                series, _, value = line.rpartition(" ")
                if all(f'{key}="{wanted}"' in series for key, wanted in labels.items()):
                    total += float(value)
        return total


StartGateway = Callable[..., RunningGateway]


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One settled request, as the ledger's file has it."""

    request_id: str
    tenant_id: str
    state: str
    endpoint_id: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    expected_cached_tokens: int | None
    output_tokens: int | None
    flags: str
    attempts: int


def ledger_rows(path: Path) -> list[LedgerRow]:
    """All settled requests, oldest first."""
    query = """
        SELECT s.request_id, r.tenant_id, s.state, s.endpoint_id, s.prompt_tokens, s.cached_tokens,
               s.expected_cached_tokens, s.output_tokens, s.flags,
               (SELECT count(*) FROM attempts a WHERE a.request_id = s.request_id)
        FROM settlements s JOIN requests r USING (request_id) ORDER BY r.opened_at_us"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [LedgerRow(*row) for row in connection.execute(query)]


async def settled(gateway: RunningGateway, count: int, within_s: float = 5.0) -> list[LedgerRow]:
    """The ledger's rows, once there are `count`; fails when there are more, or not as many in time."""
    rows = await until(
        lambda: asyncio.to_thread(ledger_rows, gateway.ledger_path), lambda rows: len(rows) >= count, within_s=within_s
    )
    assert len(rows) == count
    return rows


@contextmanager
def running_gateway(config: Config, server: Server | None = None) -> Iterator[RunningGateway]:
    """Run a gateway in a thread until the block ends, or this server of one; it is stopped as SIGTERM would stop it."""
    server = server or Server(server_config(config, {}))
    started = threading.Event()
    startup = server.startup

    async def announced(*args: Any, **kwargs: Any) -> None:
        try:
            await startup(*args, **kwargs)
        finally:
            started.set()

    server.startup = announced  # type: ignore[method-assign]  # for this one alone
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        assert server.url is not None, "the gateway did not start"
        with httpx.Client(base_url=server.url, timeout=60) as http:
            yield RunningGateway(server.url, config.ledger.path, http, server)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the gateway did not stop"


@pytest.fixture
def start_gateway(tmp_path: Path) -> Iterator[StartGateway]:
    """Start gateways over given backends; extra arguments are flags, dots written as double underscores."""
    with ExitStack() as stack:

        def start(*backends: str, **flags: object) -> RunningGateway:
            number = len(list(tmp_path.glob("ledger-*.db")))
            defaults: dict[str, object] = {
                "backends": [{"url": url, "id": f"e{position}"} for position, url in enumerate(backends)],
                "listen.port": 0,
                "ledger.path": tmp_path / f"ledger-{number}.db",
                "poll_interval_s": 0.2,
                "limits.drain_s": 2,
                "limits.close_idle_s": 0,
            }
            given = {name.replace("__", "."): value for name, value in flags.items()}
            return stack.enter_context(running_gateway(load_config(None, {}, {**defaults, **given})))

        yield start


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A file with the admin token `letmein`."""
    path = tmp_path / "token"
    path.write_text("letmein\n")
    return path


@pytest.fixture(scope="module")
def engine() -> "Iterator[RunningEngine]":
    """A reference engine of 400 blocks for the tests of a module, which may have another of their own."""
    from backends.reference.embedded import run_engine  # noqa: PLC0415 - torch: a second, and not everywhere

    with run_engine(EngineConfig(model=MODEL, kv_blocks=400, threads=1)) as running:
        yield running


async def start(gateway: StartGateway, *urls: str, **flags: object) -> RunningGateway:
    """A gateway, started in a thread: the engines it asks at its start may answer in the loop of the test."""
    return await asyncio.to_thread(gateway, *urls, **flags)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client in the loop of the test."""
    async with httpx.AsyncClient(timeout=30) as http:
        yield http
