"""The routers of the relay benchmark: each started on one core before the same engines, and ended with its block.

ours     everything on: keys, limits, budgets, prices, index in Valkey, ledger in SQLite, prompts tokenised here
nginx    proxy_buffering off: the least that a relay can cost
others   as their users start them, but quiet (log level error) and without a bound on requests at once
direct   no router at all
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from backends.reference.model_files import ensure_model
from bench.chaos_fleet import HOST, free_port
from bench.peer import peer_python
from gateway.demo.processes import Starting, clean_environment, started_process
from gateway.edge.auth import new_key

MODEL: Final = "smollm2"
READY_WITHIN_S: Final = 60.0
_MOST_CONNECTIONS: Final = 8192


@dataclass(frozen=True, slots=True)
class Router:
    """One that runs: where it listens, and its first process."""

    name: str
    url: str
    pid: int | None
    key: str = "none"

    def cpu_s(self) -> float:
        """Processor time of the whole process tree so far, seconds; 0 without a router."""
        ticks = sum(_cpu_ticks(pid) for pid in _tree(self.pid)) if self.pid is not None else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Resident memory of the process tree."""
        pages = 0
        for pid in _tree(self.pid) if self.pid is not None else ():
            with suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Plan:
    """A router to start. `command` gets a folder of its own, a free port, and the engines."""

    name: str
    command: Callable[[Path, int, Sequence[str]], Sequence[str]]
    key: str = "none"


@asynccontextmanager
async def running_router(plan: Plan, core: int, engines: Sequence[str]) -> AsyncIterator[Router]:
    """Start a router on one core, wait until it listens; it ends with the block. Raises `DemoFailed`."""
    if plan.name == "direct":
        yield Router("direct", engines[0], None)
        return
    port = free_port()
    with tempfile.TemporaryDirectory(prefix=f"relay-{plan.name}-") as folder:
        home = Path(folder)
        command = plan.command(home, port, engines)
        async with _pinned(plan.name, command, home, core) as starting:
            await _listening(port, starting)
            yield Router(plan.name, f"http://{HOST}:{port}", starting.process.pid, plan.key)


@asynccontextmanager
async def _pinned(name: str, command: Sequence[str], home: Path, core: int) -> AsyncIterator[Starting]:
    """A child has the cores that its parent has when it starts it."""
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        process = started_process(
            name,
            ("sh", "-c", 'exec "$@" >/dev/null', "sh", *command),
            log=home / "log",
            environment=clean_environment(),
            ready_within_s=READY_WITHIN_S,
        )
        starting = await process.__aenter__()
    finally:
        os.sched_setaffinity(0, here)
    try:
        yield starting
    finally:
        await process.__aexit__(None, None, None)


async def _listening(port: int, starting: Starting) -> None:
    async with asyncio.timeout(READY_WITHIN_S):
        while starting.process.poll() is None:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(HOST, port)
                writer.close()
                return
            await asyncio.sleep(0.05)
    await starting.url()  # raises with its last words


def _tree(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    for pid in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _cpu_ticks(pid: int) -> int:
    """User and system time, of the process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def plans() -> list[Plan]:
    """All routers, in the order of the tables."""
    return [
        Plan("direct", lambda *_: ()),
        Plan("nginx", _nginx),
        Plan("smg-cache_aware", lambda *given: _smg("cache_aware", *given)),
        Plan("smg-round_robin", lambda *given: _smg("round_robin", *given)),
        Plan("vllm-router", lambda *given: _python_router("vllm-router", "vllm_router", *given)),
        Plan("sglang-router", lambda *given: _python_router("sglang-router", "sglang_router", *given)),
        _ours(),
    ]


def _nginx(home: Path, port: int, engines: Sequence[str]) -> Sequence[str]:
    servers = " ".join(f"server {engine.removeprefix('http://')};" for engine in engines)
    (home / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {home}/pid; error_log {home}/error.log error;
events {{ worker_connections {2 * _MOST_CONNECTIONS}; }}
http {{
  access_log off;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi; client_body_buffer_size 128k;
  keepalive_requests 1000000;
  upstream engines {{ {servers} keepalive {_MOST_CONNECTIONS // 2}; keepalive_requests 1000000; }}
  server {{
    listen {HOST}:{port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
""")
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    return (nginx, "-c", str(home / "nginx.conf"), "-p", str(home), "-e", str(home / "error.log"))


def _flags(policy: str, port: int, engines: Sequence[str]) -> list[str]:
    return [
        *("--host", HOST, "--port", str(port), "--worker-urls", *engines, "--policy", policy),
        *("--prometheus-port", str(free_port()), "--log-level", "error"),
        *("--max-concurrent-requests", str(_MOST_CONNECTIONS)),
    ]


def _smg(policy: str, home: Path, port: int, engines: Sequence[str]) -> Sequence[str]:
    return [str(peer_python("smg").with_name("smg")), "launch", *_flags(policy, port, engines)]


def _python_router(name: str, module: str, home: Path, port: int, engines: Sequence[str]) -> Sequence[str]:
    return [str(peer_python(name)), "-m", f"{module}.launch_router", *_flags("cache_aware", port, engines)]


def _ours() -> Plan:
    key, digest = new_key()

    def command(home: Path, port: int, engines: Sequence[str]) -> Sequence[str]:
        limits = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12, "concurrent": 10**6}
        budgets = [{"amount": 10**9, "per": "day"}, {"amount": 10**9, "per": "month", "time_zone": "Asia/Tokyo"}]
        held = {"limits": limits, "budgets": budgets}
        price = {"model": MODEL, "input_per_mtok": 3, "cached_input_ratio": "0.1", "output_per_mtok": 15}
        files: dict[str, object] = {
            "keys": {"tenants": [{"id": "acme", **held, "keys": [{"id": "acme-1", "sha256": digest, **held}]}]},
            "prices": {"currency": "USD", "prices": [{**price, "from": "2020-01-01"}]},
            "config": {
                "listen": {"host": HOST, "port": port},
                "backends": [{"id": f"engine-{at}", "url": engine} for at, engine in enumerate(engines)],
                "models": {MODEL: {"tokenizer": str(ensure_model(MODEL))}},
                "keys_file": str(home / "keys.yaml"),
                "prices_file": str(home / "prices.yaml"),
                "ledger": {"path": str(home / "ledger.db")},
                "limits": {"connections_per_endpoint": _MOST_CONNECTIONS},
                "log_level": "error",
            },
        }
        for name, content in files.items():
            (home / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return [sys.executable, "-m", "gateway", "serve", "--config", str(home / "config.yaml")]

    return Plan("prefixgate", command, key)
