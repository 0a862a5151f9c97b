"""A server in this process: a thread with a loop of its own, a real port, lives that end and begin again."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backends.disaggregated import Role
from backends.simulated.serving.app import create_app
from backends.simulated.serving.control import create_control
from backends.simulated.serving.faults import Faults
from backends.simulated.serving.site import Site
from backends.simulated.serving.types import Json, Record, ServerSpec

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections in their pools, so that it is they who close them."""

T = TypeVar("T")

START_WITHIN_S = 30.0
CALL_WITHIN_S = 30.0

_TURNS_TO_LET_IN = 3
"""Of the loop, from the taking of a connection to its protocol's knowing of it."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process that embeds it decides what a signal means."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As theirs, and says when it is done."""
        await super().startup(sockets)
        self.begun.set()

    def capture_signals(self) -> contextlib.nullcontext[None]:  # type: ignore[override]  # theirs is a generator
        return contextlib.nullcontext()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one."""
    listener = socket.create_server((host, port), backlog=512)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


async def serve(
    site: Site, listener: socket.socket, control: socket.socket | None, started: Callable[[], None], stop: asyncio.Event
) -> None:
    """One life on a loop: from taking connections until `stop` is set; what is open is cut then."""

    servers = [_Server(_config(create_app(site), _tracked_by(site)))]
    sockets = [listener]
    if control is not None:
        servers.append(_Server(_config(create_control(site), HttpToolsProtocol)))
        sockets.append(control)
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        await _open_side_channel(site, stack)
        works = [group.create_task(site.runner.run())]
        for server, one in zip(servers, sockets, strict=True):
            works.append(group.create_task(server.serve(sockets=[one])))
        for server in servers:
            await server.begun.wait()
        started()
        await stop.wait()
        site.is_over = True
        await _cut(site, servers)
        for work in works:  # not asked to end: it would wait for its next tick, and for answers in the making
            work.cancel()


def _tracked_by(site: Site) -> type[HttpToolsProtocol]:
    class Tracked(HttpToolsProtocol):
        """Remembers its transport, so that a connection can be reset."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # theirs is wider
            super().connection_made(transport)
            site.transports[self.client] = transport

        def connection_lost(self, exc: Exception | None) -> None:
            site.transports.pop(self.client, None)
            super().connection_lost(exc)

    return Tracked


async def _cut(site: Site, servers: Sequence[_Server]) -> None:
    """Take no more connections, and end those that there are. One that was taken in this turn is let in before:
    asyncio gives it up half-made, and never closes it, where its server is closed first."""
    bounds = [bound for server in servers for bound in server.servers]
    for bound in bounds:
        for listener in bound.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
    for _ in range(_TURNS_TO_LET_IN):
        await asyncio.sleep(0)
    for bound in bounds:
        bound.close()
    for transport in list(site.transports.values()):
        transport.abort()


async def _open_side_channel(site: Site, stack: contextlib.AsyncExitStack) -> None:
    if site.spec.role is not Role.BOTH:
        side = await site.channel.serve(site.spec.host, site.spec.side_port)
        stack.callback(side.close)


def _config(app: object, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # an ASGI application
        http=protocol,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )


class SimulatedServer:
    """One engine behind a port of this process, as long as the block is entered.

    with SimulatedServer(ServerSpec(dialect="sglang", speed=20)) as server:
        httpx.post(f"{server.url}/v1/chat/completions", json=...)
        server.change(slow=10)
        server.restart()    # same port, nothing cached

    Its methods may be called from any thread but its own.
    """

    def __init__(self, spec: ServerSpec | None = None) -> None:
        self.spec = spec or ServerSpec()
        self.lives = 0
        self.site: Site | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def side_port(self) -> int:
        """The port of its side channel, where prompts and answers are computed apart; SGLang's bootstrap port."""
        return 0 if self.site is None else self.site.channel.port

    @property
    def url(self) -> str:
        """Where it listens, or did in its last life."""
        return f"http://{self.spec.host}:{self.spec.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """A new life, at the port of the last one. Raises `OSError` where that is taken."""
        if self.is_alive():
            return
        listener = bind(self.spec.host, self.spec.port)
        control = None if self.spec.control_port is None else bind(self.spec.host, self.spec.control_port)
        self.spec = replace(
            self.spec,
            port=listener.getsockname()[1],
            control_port=None if control is None else control.getsockname()[1],
        )
        begun: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(listener, control, begun)),
            name=f"simulated-{self.spec.dialect}",
            daemon=True,
        )
        self._thread.start()
        begun.result(START_WITHIN_S)
        self.spec = replace(self.spec, side_port=self.side_port)
        self.lives += 1

    def kill(self) -> None:
        """End this life at once: connections are cut, the port is closed, the cache is lost."""
        if self._thread is None:
            return
        self._ask_to_stop()
        self._thread.join(CALL_WITHIN_S)
        self._thread = None

    def restart(self) -> None:
        """A kill, and a new life at the same port."""
        self.kill()
        self.start()

    def is_alive(self) -> bool:
        """Whether it listens. It may have died of a fault."""
        return self._thread is not None and self._thread.is_alive()

    def change(self, **faults: object) -> Faults:
        """Switch faults on and off, by the names of `Faults`; those not named stay as they are."""
        return self._on_loop(lambda site: site.change(**faults))

    def state(self) -> Json:
        """Counters by rank, faults, adapters."""
        return self._on_loop(lambda site: site.state())

    def records(self) -> list[Record]:
        """The requests of this life that have ended."""
        return self._on_loop(lambda site: list(site.runner.records))

    async def _live(self, listener: socket.socket, control: socket.socket | None, begun: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.site = Site(self.spec, self._stop.set)
        with listener, control or contextlib.nullcontext():
            await serve(self.site, listener, control, lambda: begun.set_result(None), self._stop)

    def _ask_to_stop(self) -> None:
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # it has died by itself, and its loop with it
                self._loop.call_soon_threadsafe(self._stop.set)

    def _on_loop(self, work: Callable[[Site], T]) -> T:
        site, loop = self.site, self._loop
        if site is None or loop is None or not self.is_alive():
            raise RuntimeError("the server is not running")
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(work(site))
            except (ValueError, TypeError) as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(call)
        return done.result(CALL_WITHIN_S)
