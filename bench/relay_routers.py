"""The routers of `make bench-relay`: those of `make bench-overhead`, each alone on one core, for many open streams.

direct      no router: an engine is asked itself
nginx       proxy_buffering off, the least that a relay can cost
others      as there, but without a bound on requests at once where they have one
prefixgate  everything on, as there; its Valkey is on its own core beside it, and counted with it
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from backends.reference.model_files import ensure_model
from bench.mortal_fleet.fleet import free_port
from bench.overhead_backend import program
from bench.overhead_gateway import NAME, State, gateway, state
from bench.overhead_process import used
from bench.overhead_prompts import MODEL
from bench.overhead_routers import HOST, NGINX, Router, Site, peers
from gateway.demo.processes import Starting, clean_environment, started_process
from prefix_index import EmbeddedServer

DIRECT: Final = "direct"
MEASURED: Final = (
    DIRECT,
    NGINX.name,
    "SMG cache_aware",
    "SMG round_robin",
    "vllm-router cache_aware",
    "sglang-router cache_aware",
    NAME,
)
"""In the order of the tables."""
MOST_STREAMS: Final = 8192
_READY_WITHIN_S: Final = 120.0
_UNBOUNDED: Final = ("--max-concurrent-requests", str(MOST_STREAMS))
_FURTHER: Final = {NAME: {"PREFIXGATE_LIMITS__CONNECTIONS_PER_ENDPOINT": str(MOST_STREAMS)}}
_TO_STDERR: Final = ("sh", "-c", 'exec "$@" >&2', "sh")


@dataclass(frozen=True, slots=True)
class Running:
    """A router that listens. `pids`: its processes, with all that they start; none where an engine is asked itself."""

    name: str
    url: str
    key: str
    pids: Sequence[int]

    def cpu_us(self) -> int:
        """Processor time so far, in steps of a clock tick."""
        return sum(used(pid).cpu_us for pid in self.pids)

    def resident_mb(self) -> float:
        """Resident memory now."""
        return sum(used(pid).resident_mb for pid in self.pids)

    async def state(self) -> State | None:
        """What it says of itself, where it is ours."""
        return await asyncio.to_thread(state, self.url) if self.name == NAME else None


@asynccontextmanager
async def running_router(name: str, core: int, engine_ports: Sequence[int]) -> AsyncIterator[Running]:
    """Start a router of `MEASURED` on one core and wait until it listens; it ends with the block.

    Raises `DemoFailed`, `PeerNotInstalled`, `ToolMissing`.
    """
    key = f"sk-{secrets.token_urlsafe(32)}"
    if name == DIRECT:
        yield Running(name, f"http://{HOST}:{engine_ports[0]}", key, ())
        return
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="relay-"))
        site = Site(Path(folder), free_port(), free_port(), engine_ports)
        pids: list[int] = []
        with _on(core):
            if name == NAME:
                index = await stack.enter_async_context(EmbeddedServer())
                assert index.pid is not None
                pids.append(index.pid)
                router = gateway(key, index.url, ensure_model(MODEL))
            else:
                router = next(one for one in peers() if one.title == name)
            starting = await stack.enter_async_context(
                started_process(
                    name,
                    (*_TO_STDERR, *_command(router, site)),
                    log=site.home / "log",
                    environment={**clean_environment(), **router.environment, **_FURTHER.get(name, {})},
                    ready_within_s=_READY_WITHIN_S,
                )
            )
        await _listening(site.port, starting)
        yield Running(name, f"http://{HOST}:{site.port}", key, (*pids, starting.process.pid))


@contextmanager
def _on(core: int) -> Iterator[None]:
    """What is started in the block runs on this core: a child has the cores of its parent."""
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, here)


def _command(router: Router, site: Site) -> Sequence[str]:
    if router.name == NGINX.name:
        return _unbuffered_nginx(site)
    return router.command(site) if router.name == NAME else (*router.command(site), *_UNBOUNDED)


async def _listening(port: int, starting: Starting) -> None:
    async with asyncio.timeout(_READY_WITHIN_S):
        while starting.process.poll() is None:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(0.05)
    await starting.url()  # raises with its last words


def _unbuffered_nginx(site: Site) -> Sequence[str]:
    """In turns, with connections kept open on both sides."""
    home, config = site.home, site.home / "nginx.conf"
    servers = " ".join(f"server {HOST}:{port};" for port in site.engines)
    places = " ".join(
        f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(f"""
daemon off; worker_processes 1; pid {home}/pid; error_log stderr error;
events {{ worker_connections {4 * MOST_STREAMS}; }}
http {{
  {places} access_log off; client_body_buffer_size 128k; keepalive_requests 100000000;
  upstream engines {{ {servers} keepalive {MOST_STREAMS}; keepalive_requests 100000000; }}
  server {{
    listen {HOST}:{site.port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
""")
    return (program("nginx", "nginx-light"), "-e", "stderr", "-p", str(home), "-c", str(config))
