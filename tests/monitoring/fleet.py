"""A gateway of two workers with simulated engines, and clients of every kind: all that its metrics can tell happens.

with running_fleet(folder) as fleet:      # engines, keys with limits, a queue, a collector
    with fleet.busy():                    # conversations, adapters, splits, refusals, faults; until the block ends
        fleet.url                         # its /metrics
"""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import yaml

from backends.perf import PerfModel
from backends.simulated import EngineSpec, Role
from backends.simulated.serving import ServerSpec, SimulatedServer, WrongUsage
from gateway.edge.auth import new_key
from tests.gateway.tracing.collector import running_collector
from tests.monitoring.declared import ROOT

MODEL: Final = "large"
PAIR: Final = "pair"
_WORDS: Final = tuple(f"{start}{end}" for start in ("ba", "co", "di", "fa", "lu") for end in ("ne", "ra", "so", "ti"))
_ENGINE: Final = EngineSpec(capacity_blocks=600, max_running=8, perf=PerfModel(prefill_tokens_per_s=6000, itl_s=0.01))


@dataclass(frozen=True, slots=True)
class Fleet:
    """A gateway that runs, its engines by id, and the keys of its tenants."""

    url: str
    engines: dict[str, SimulatedServer]
    keys: dict[str, str]
    keys_file: Path

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Clients ask and engines fail, until the block ends."""
        stop = threading.Event()
        threads = [threading.Thread(target=lambda: asyncio.run(_clients(self, stop)))]
        threads.append(threading.Thread(target=_trouble, args=(self, stop)))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)


@contextmanager
def running_fleet(folder: Path) -> Iterator[Fleet]:
    """Start all of it."""
    with ExitStack() as stack:
        collector = stack.enter_context(running_collector())
        specs = {
            "gpu-1": ServerSpec(model=MODEL, engine=_ENGINE, speed=4, adapters=("sql",), max_adapters=1),
            "gpu-2": ServerSpec(model=MODEL, engine=_ENGINE, speed=4, adapters=("sql",), max_adapters=1),
            "gpu-3": ServerSpec(model=MODEL, engine=_ENGINE, speed=4, reports_cached_tokens=False),
            "prefill-1": ServerSpec(model=PAIR, engine=_ENGINE, speed=4, role=Role.PREFILL, lease_s=5000),
            "decode-1": ServerSpec(model=PAIR, engine=_ENGINE, speed=4, role=Role.DECODE, lease_s=5000),
        }
        engines = {name: stack.enter_context(SimulatedServer(spec)) for name, spec in specs.items()}
        keys, config = _files(folder, engines, collector.url)
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "gateway", "serve", "-c", str(config), "--workers", "2"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=stack.enter_context((folder / "gateway.log").open("w")),
                text=True,
            )
        )
        try:
            yield Fleet(_url(process, folder), engines, keys, folder / "keys.yaml")
        finally:
            process.terminate()
            process.wait(60)


def _files(folder: Path, engines: dict[str, SimulatedServer], collector_url: str) -> tuple[dict[str, str], Path]:
    keys, tenants = {}, []
    limits = {"acme": {"requests_per_minute": 100_000}, "globex": {"requests_per_minute": 6}}
    for name, limit in limits.items():
        keys[name], digest = new_key()
        tenants.append({"id": name, "limits": limit, "keys": [{"id": f"{name}-1", "sha256": digest}]})
    (folder / "keys.yaml").write_text(yaml.safe_dump({"tenants": tenants}))
    roles = {"prefill-1": {"role": "prefill"}, "decode-1": {"role": "decode"}}
    config = {
        "listen": {"port": 0},
        "backends": [{"id": name, "url": one.url, **roles.get(name, {})} for name, one in engines.items()],
        "ledger": {"path": str(folder / "ledger.db")},
        "keys_file": str(folder / "keys.yaml"),
        "isolation": "none",
        "poll_interval_s": 0.5,
        "queue": {"max_running": 3, "classes": [{"name": "default", "max_requests": 6, "max_wait_s": 1}]},
        "continuation": {"enabled": True},
        "health": {"open_s": 1, "stall_s": 3},
        "tracing": {"otlp_endpoint": collector_url, "sample_ratio": 0.5},
        "limits": {"drain_s": 2, "close_idle_s": 0, "concurrent_requests": 16, "queue_requests": 1, "header_s": 1},
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    return keys, path


def _url(process: subprocess.Popen[str], folder: Path) -> str:
    """Where it listens, which is the first that it says."""
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said, (folder / "gateway.log").read_text()[-2000:]
    return str(json.loads(said)["url"])


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words))


async def _clients(fleet: Fleet, stop: threading.Event) -> None:
    rng = random.Random(1)
    system = _text(rng, 400)
    async with (
        httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=128)) as client,
        asyncio.TaskGroup() as all_,
    ):
        for number in range(14):
            all_.create_task(_talks(client, fleet, system, random.Random(number), stop))
        all_.create_task(_others(client, fleet, system, rng, stop))
        all_.create_task(_at_once(client, fleet, stop))
        all_.create_task(_slow_heads(fleet, stop))


async def _talks(
    client: httpx.AsyncClient, fleet: Fleet, system: str, rng: random.Random, stop: threading.Event
) -> None:
    """A client with one conversation after the other."""
    while not stop.is_set():
        said = [{"role": "system", "content": f"{_text(rng, 2)} {system}" if rng.random() < 0.2 else system}]
        for _ in range(4):
            said.append({"role": "user", "content": _text(rng, 40)})
            body = {"model": MODEL, "messages": said, "max_tokens": 30, "stream": rng.random() < 0.8}
            await _ask(client, fleet, "acme", body)
            said.append({"role": "assistant", "content": _text(rng, 20)})


async def _others(
    client: httpx.AsyncClient, fleet: Fleet, system: str, rng: random.Random, stop: threading.Event
) -> None:
    """What is asked beside conversations: adapters, split prompts, more than one may."""
    while not stop.is_set():
        for model in ("sql", PAIR):
            body = {"model": model, "messages": [{"role": "user", "content": f"{_text(rng, 3)} {system}"}]}
            await _ask(client, fleet, "acme", {**body, "max_tokens": 10, "stream": True})
        await _ask(client, fleet, "globex", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]})
        await asyncio.sleep(0.2)


async def _at_once(client: httpx.AsyncClient, fleet: Fleet, stop: threading.Event) -> None:
    """Now and then more than the gateway takes on."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    while not stop.is_set():
        await asyncio.gather(*(_ask(client, fleet, "acme", body) for _ in range(80)))
        await asyncio.sleep(4)


async def _slow_heads(fleet: Fleet, stop: threading.Event) -> None:
    """Clients that never come to the end of a head."""
    host, _, port = fleet.url.removeprefix("http://").partition(":")
    while not stop.is_set():
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health HTTP/1.1\r\nHost: ")
        await reader.read()
        writer.close()


async def _ask(client: httpx.AsyncClient, fleet: Fleet, tenant: str, body: dict[str, object]) -> None:
    """One request, whatever becomes of it."""
    headers = {"authorization": f"Bearer {fleet.keys[tenant]}"}
    with contextlib.suppress(httpx.HTTPError):
        async with client.stream("POST", f"{fleet.url}/v1/chat/completions", json=body, headers=headers) as answer:
            async for _ in answer.aiter_bytes():
                pass


def _trouble(fleet: Fleet, stop: threading.Event) -> None:
    """What goes wrong, one thing after the other."""
    turns = (
        ("gpu-1", {"error_share": 0.3}),
        ("gpu-2", {"wrong_usage": WrongUsage.NONE_CACHED}),
        ("gpu-1", {"wrong_usage": WrongUsage.DOUBLE_PROMPT}),
        ("gpu-2", {"reset_after_events": 5}),
        ("gpu-1", {"wedged": True}),
    )
    calm: dict[str, object] = {"error_share": 0.0, "wrong_usage": WrongUsage.NONE, "reset_after_events": None}
    while True:
        for name, faults in turns:
            if stop.wait(3):
                return
            fleet.engines[name].change(**faults)
            is_over = stop.wait(5 if "wedged" in faults else 2)
            fleet.engines[name].change(**calm, wedged=False)
            if is_over:
                return
        fleet.engines["gpu-2"].restart()
        with fleet.keys_file.open("a") as file:
            file.write("# looked at again\n")
