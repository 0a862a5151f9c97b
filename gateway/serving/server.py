"""The gateway under uvicorn: its loop, signals and lifespan, our connections, an address that is told once it is real.

SIGTERM --> /ready 503, answers say `connection: close` --> after limits.drain_notice_s nothing more is accepted
        --> after limits.close_idle_s idle connections are closed --> open answers have limits.drain_s --> cut
"""

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import uvicorn

from gateway.app import Gateway
from gateway.config import Config
from gateway.log_lines import LOGGER
from gateway.serving.collector import calm_collector
from gateway.serving.connection import Connection
from gateway.serving.connections import Connections
from gateway.serving.huge_pages import use_huge_pages
from gateway.serving.listening import connected_by_now, notice_the_vanished, room_for

_TICK_S: Final = 0.05
_UNWINDING_S: Final = 2.0
"""How long answers that were cut may take to be settled."""


class Server(uvicorn.Server):
    """uvicorn with our connections. `url` says where it listens once it does (the port may have been 0)."""

    url: str | None = None

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        assert isinstance(config.app, Gateway), "made by server_config"
        self._app = config.app
        self._limits = config.app.limits
        self.connections = Connections(config.app, self._limits, time.time, config.app.telemetry.pressure)

    def make_room(self) -> None:
        """Have the system allow as many open files as the connections need; say so where it allows less."""
        wanted = self._limits.connections
        room = room_for(wanted)
        if room < wanted:
            LOGGER.warning(
                "the system allows fewer open files than limits.connections need: raise ulimit -n, or lower that",
                extra={"fields": {"connections": wanted, "room_for": room}},
            )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, or take these sockets, start, and learn the address."""
        loop = asyncio.get_running_loop()
        # uvicorn makes a protocol by calling this with what its own one needs.
        self.config.http_protocol_class = lambda **_: Connection(self.connections, loop)  # type: ignore[assignment]
        await super().startup(sockets)
        if self.started:
            listeners = sockets or [sock for server in self.servers for sock in server.sockets]
            notice_the_vanished(listeners)
            self.url = _url_of(listeners)

    async def on_tick(self, counter: int) -> bool:
        """Each tenth of a second: the date, what is overdue, and whether to stop, which a part of the gateway that
        failed in the background is a reason for: uvicorn would serve on."""
        ends = await super().on_tick(counter)
        if counter % 10 == 0:
            self.connections.date = b": ".join(self.server_state.default_headers[0])
        self.connections.sweep(asyncio.get_running_loop().time())
        return ends or self.failed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then end the lifespan. A second Ctrl-C ends it at once."""
        connections, limits = self.connections, self._limits
        connections.closing, self._app.draining = True, self.announces_end
        if self.announces_end and not self.failed:
            await self._until(lambda: False, limits.drain_notice_s)
        self._app.stopping = True
        await self._stop_accepting(sockets or ())
        connections.close_idle(asyncio.get_running_loop().time() + limits.close_idle_s)
        await self._until(lambda: not connections.open and not connections.calls, limits.drain_s)
        if connections.calls:
            fields = {"answers": len(connections.calls)}
            LOGGER.warning("answers are cut, since the gateway stops", extra={"fields": fields})
        connections.cut()
        await self._until(lambda: not connections.calls, _UNWINDING_S)
        if not self.force_exit:
            await self.lifespan.shutdown()

    @property
    def announces_end(self) -> bool:
        """Whether balancers are to hear that nobody will serve at this address any more."""
        return True

    async def _stop_accepting(self, sockets: Sequence[socket.socket]) -> None:
        """Close the listeners, and serve those who have connected by then."""
        loop = asyncio.get_running_loop()
        listeners = [sock for server in self.servers for sock in server.sockets]
        with connected_by_now(listeners) as late:
            for server in self.servers:
                server.close()
            for sock in sockets:
                sock.close()
            for sock in late:
                await loop.connect_accepted_socket(lambda: Connection(self.connections, loop), sock)

    async def _until(self, done: Callable[[], bool], within_s: float) -> bool:
        """Wait, looking after what is overdue. False where it was not done in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not done() and not self.force_exit:
            if loop.time() >= until_s:
                return False
            await asyncio.sleep(min(_TICK_S, within_s))
            self.connections.sweep(loop.time())
        return True

    @property
    def failed(self) -> bool:
        """Whether the lifespan of the gateway ended by an exception."""
        return bool(getattr(self.lifespan, "error_occurred", False))


class AnnouncingServer(Server):
    """Prints its address as one line of JSON on standard output, for whoever started it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then announce."""
        await super().startup(sockets)
        if self.url is not None:
            calm_collector()
            use_huge_pages()
            print(json.dumps({"url": self.url}), file=sys.stdout, flush=True)  # noqa: T201 - the product of the command


def run_until_stopped(server: Server, sockets: list[socket.socket] | None = None) -> bool:
    """Serve, at the configured address or from `sockets`, until SIGTERM or Ctrl-C.

    These end it in an orderly way and are no failure.
    False where it never started, or a part of it broke.

    uvicorn raises the signal again once it has stopped, for whoever had a handler before: ours does nothing.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.make_room()
    server.run(sockets)
    return server.started and not server.failed


def server_config(settings: Config, environment: Mapping[str, str], app: Gateway | None = None) -> uvicorn.Config:
    """How uvicorn is to run the gateway, or `app`, one worker of it."""
    return uvicorn.Config(
        app or Gateway(settings, environment),
        host=settings.listen.host,
        port=settings.listen.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,  # its lines go where those of all libraries go
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )


def _url_of(sockets: Sequence[socket.socket]) -> str | None:
    """The address of the first listener that has one."""
    for sock in sockets:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            host, port = sock.getsockname()[:2]
            return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return None
