"""An engine with its HTTP server inside this process, on a real port: for tests, notebooks and demos.

with run_engine(EngineConfig(model="tiny", kv_blocks=64)) as running:
    httpx.post(f"{running.url}/v1/chat/completions", json=...)
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import uvicorn

from backends.reference.apart import Transfers
from backends.reference.chat_template import load_chat_template
from backends.reference.engine import Engine, EngineStats
from backends.reference.lab.recipes import recast
from backends.reference.model_files import ensure_model
from backends.reference.server import create_app
from backends.reference.service import Service
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import EngineConfig
from backends.reference.weights import ModelWeights, load_weights

STATS_DEADLINE_S = 60.0
"""A snapshot waits for the step that runs; a long prefill step of a real model takes seconds."""

SHUTDOWN_GRACE_S = 2
"""How long open connections may finish after a stop before they are cut."""

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections in their pools, so that it is they who close them."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A served engine: where it listens, and the engine itself for a look inside."""

    url: str
    engine: Engine
    service: Service

    def stats(self) -> EngineStats:
        """What the engine did and holds, taken between two steps."""
        return self.engine.stats().result(STATS_DEADLINE_S)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process that embeds it decides what a signal means."""

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]  # theirs is a generator
        return nullcontext()


def build_service(config: EngineConfig, weights: ModelWeights | None = None) -> Service:
    """Load the model (unless `weights` are given, to share them) and make its engine; starts nothing."""
    directory = ensure_model(config.model)
    tokenizer = ModelTokenizer(directory)
    template = load_chat_template(directory, config.chat_template)
    loaded = load_weights(directory) if weights is None else weights
    engine = Engine(config, recast(loaded, config.weights), tokenizer)
    transfers = None if config.kv_role is None else Transfers(engine, config.kv_role)
    return Service(engine, tokenizer, template, transfers)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    listener = socket.create_server((host, port), backlog=128)
    # For the connections it accepts: asyncio does this only for sockets that name their protocol, and without it each
    # answer waits up to 40 ms for the client to acknowledge the head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def new_server(service: Service) -> uvicorn.Server:
    """An HTTP server for `service`, not yet serving."""
    config = uvicorn.Config(
        create_app(service),
        lifespan="off",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    return _Server(config)


@contextmanager
def run_engine(
    config: EngineConfig, weights: ModelWeights | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> Iterator[RunningEngine]:
    """Serve an engine until the block is left; it accepts connections as soon as the block is entered.

    Server and engine each run in a thread of their own, and so does what publishes events of the cache, where
    `config.kv_events` says where to; `engine.events` then knows the addresses that were taken. `weights` (from
    `load_weights`) may be shared by several engines in one process: they are only read.
    """
    service = build_service(config, weights)
    with bind(host, port) as listener:
        server = new_server(service)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), name="reference-http", daemon=True
        )
        service.engine.start()
        thread.start()
        try:
            address, real_port = listener.getsockname()[:2]
            yield RunningEngine(f"http://{address}:{real_port}", service.engine, service)
        finally:
            # The engine first: it ends every open answer, so that the server has nothing to wait for.
            service.engine.stop()
            server.should_exit = True
            thread.join()
