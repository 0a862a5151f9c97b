"""The gateway under uvicorn: uvloop, httptools, and an address that is told once it is real."""

import gc
import json
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

import uvicorn

from gateway.app import Gateway
from gateway.config import Config
from gateway.telemetry import JsonLines

_LOGGING: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonLines}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}
"""uvicorn's lines, such as why it could not bind, in the form of ours."""


class Server(uvicorn.Server):
    """uvicorn, but `url` says where it listens once it does (the port may have been 0)."""

    url: str | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Bind, start, and learn the address."""
        await super().startup(sockets)
        if self.started and self.servers:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def on_tick(self, counter: int) -> bool:
        """Stop, too, once a part of the gateway that runs in the background has failed: uvicorn would serve on."""
        return await super().on_tick(counter) or self.failed

    @property
    def failed(self) -> bool:
        """Whether the lifespan of the gateway ended by an exception."""
        return bool(getattr(self.lifespan, "error_occurred", False))


class AnnouncingServer(Server):
    """Prints its address as one line of JSON on standard output, for whoever started it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then announce. What is there by then stays for good: the collector need not go through all of it
        again and again, which is a tenth of what a request costs."""
        await super().startup(sockets)
        if self.url is not None:
            gc.collect()
            gc.freeze()
            print(json.dumps({"url": self.url}), file=sys.stdout, flush=True)  # noqa: T201 - the product of the command


def run_until_stopped(server: Server) -> bool:
    """Serve until SIGTERM or Ctrl-C, which end it in an orderly way and are no failure.

    False where it never started, or a part of it broke.

    uvicorn raises the signal again once it has stopped, for whoever had a handler before: ours does nothing.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run()
    return server.started and not server.failed


def server_config(settings: Config, environment: Mapping[str, str]) -> uvicorn.Config:
    """How uvicorn is to run the gateway."""
    return uvicorn.Config(
        Gateway(settings, environment),
        host=settings.listen.host,
        port=settings.listen.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=_LOGGING,
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=int(settings.limits.drain_s),
        timeout_keep_alive=75,
    )
