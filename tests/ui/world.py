"""What the dashboard looks at in its tests: a real gateway, simulated engines, and tenants who ask them things.

    with world(folder) as running:                    # four tenants, prices, a seller, the dashboard's token
        in_own_loop(lambda: traffic(running))         # conversations; one tenant's prompts begin with the time

`python -m tests.ui.world --minutes 15` keeps one running, with traffic, and prints where its dashboard is.
"""

import argparse
import asyncio
import math
import random
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import yaml

from backends.perf import PerfModel
from backends.simulated import EngineSpec
from backends.simulated.serving import ServerSpec, SimulatedServer
from gateway.config import Config, load_config
from gateway.edge.auth import new_key
from tests.gateway.conftest import RunningGateway, running_gateway

MODEL: Final = "llama-3.3-70b"
TOKEN: Final = "a-token-of-the-dashboard"
DATED: Final = "globex"
"""The tenant whose prompts begin with the time of day, which is what findings are made of."""
TENANTS: Final = ("acme", DATED, "hooli", "initech")
_WORDS: Final = tuple(
    f"{start}{end}" for start in ("ba", "co", "di", "fa", "lu") for end in ("ne", "ra", "so", "ti", "mo")
)
_ENGINE: Final = EngineSpec(
    capacity_blocks=800,
    max_running=32,
    perf=PerfModel(prefill_tokens_per_s=6000, itl_s=0.02, itl_s_per_request=0.0004),
)


@dataclass(frozen=True, slots=True)
class World:
    """A gateway with its engines by name, the keys of its tenants, and how to start it again."""

    config: Config
    gateway: RunningGateway
    engines: dict[str, SimulatedServer]
    keys: dict[str, str]

    @property
    def ui(self) -> str:
        """Where its dashboard is."""
        return f"{self.gateway.url}{self.config.ui.path}/"


@dataclass(slots=True)
class Talk:
    """A conversation of one tenant: what was said before stays, turn by turn."""

    tenant: str
    system: str
    said: list[dict[str, str]] = field(default_factory=list)

    def ask(self, rng: random.Random) -> list[dict[str, str]]:
        """The messages of the next turn."""
        head = f"It is {datetime.now(UTC):%H:%M:%S.%f}. " if self.tenant == DATED else ""
        self.said.append({"role": "user", "content": _text(rng, rng.randint(10, 60))})
        return [{"role": "system", "content": head + self.system}, *self.said]


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words))


@contextmanager
def world(folder: Path, *, engines: int = 2, speed: float = 40, port: int = 0, **flags: object) -> Iterator[World]:
    """Start all of it; flags are the configuration's, with dots written as double underscores."""
    keys, tenants = {}, []
    for name in TENANTS:
        keys[name], digest = new_key()
        tenants.append({"id": name, "keys": [{"id": f"{name}-1", "sha256": digest}]})
    price = {"model": MODEL, "input_per_mtok": "0.90", "cached_input_per_mtok": "0.09", "output_per_mtok": "1.80"}
    files = {
        "keys.yaml": {"tenants": tenants},
        "prices.yaml": {"currency": "USD", "prices": [{**price, "from": "2026-01-01"}]},
        "seller.yaml": {
            "seller": {"name": "Example Inference Inc."},
            "currency": "USD",
            "taxes": {"standard": {"label": "Sales tax", "rate_percent": 8}},
            "default_tax": "standard",
            "number_format": "EX-{year}-{sequence:05d}",
            "buyers": {name: {"name": f"{name.title()} Ltd."} for name in TENANTS},
        },
    }
    for name, content in files.items():
        (folder / name).write_text(yaml.safe_dump(content))
    (folder / "ui-token").write_text(TOKEN)
    with ExitStack() as stack:
        servers = {
            f"gpu-{number}": stack.enter_context(
                SimulatedServer(ServerSpec(model=MODEL, engine=_ENGINE, speed=speed, max_model_len=16_384))
            )
            for number in range(1, engines + 1)
        }
        defaults: dict[str, object] = {
            "backends": [{"id": name, "url": server.url} for name, server in servers.items()],
            "listen.port": port,
            "ledger.path": folder / "ledger.db",
            "keys_file": folder / "keys.yaml",
            "prices_file": folder / "prices.yaml",
            "invoicing_file": folder / "seller.yaml",
            "ui.token_file": folder / "ui-token",
            "isolation": "none",
            "index.deadline_ms": 100,  # a busy machine is no degraded gateway
            "poll_interval_s": 0.5,
            "limits.drain_s": 2,
            "limits.close_idle_s": 0,
        }
        given = {name.replace("__", "."): value for name, value in flags.items()}
        config = load_config(None, {}, {**defaults, **given})
        gateway = stack.enter_context(running_gateway(config))
        yield World(config, gateway, servers, keys)


def in_own_loop(make: Callable[[], Awaitable[None]]) -> None:
    """Run it in a thread of its own, to its end: a browser that is driven has a loop running in this one."""

    async def whole() -> None:
        await make()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(whole())).result()


def talks(rng: random.Random, of_each: int = 6) -> list[Talk]:
    """Conversations: those of a tenant share one of two system prompts."""
    systems = {tenant: [_text(rng, rng.randint(300, 700)) for _ in range(2)] for tenant in TENANTS}
    return [Talk(tenant, rng.choice(systems[tenant])) for tenant in TENANTS for _ in range(of_each)]


async def say(client: httpx.AsyncClient, running: World, talk: Talk, rng: random.Random, most_tokens: int = 60) -> None:
    """One turn, as a stream; the answer is part of what is said next."""
    body = {"model": MODEL, "messages": talk.ask(rng), "max_tokens": rng.randint(8, most_tokens), "stream": True}
    headers = {"authorization": f"Bearer {running.keys[talk.tenant]}"}
    url = f"{running.gateway.url}/v1/chat/completions"
    async with client.stream("POST", url, json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for _ in answer.aiter_lines():
            pass
    talk.said.append({"role": "assistant", "content": _text(rng, 20)})
    if len(talk.said) > 12:
        talk.said.clear()


async def traffic(running: World, *, rounds: int = 4, seed: int = 1) -> None:
    """Every conversation takes some turns, all of them at once."""
    rng = random.Random(seed)
    everyone = talks(rng)
    async with httpx.AsyncClient(timeout=60) as client:
        for _ in range(rounds):
            await asyncio.gather(*(say(client, running, talk, rng) for talk in everyone))


async def steadily(running: World, minutes: float, stop: threading.Event) -> None:
    """A few requests a second, in waves of some minutes."""
    rng = random.Random(1)
    everyone = talks(rng, 24)
    busy: set[int] = set()

    async def turn(client: httpx.AsyncClient, at: int) -> None:
        busy.add(at)
        try:
            await say(client, running, everyone[at], rng, 240)
        finally:
            busy.discard(at)

    loop = asyncio.get_running_loop()
    end_s = loop.time() + minutes * 60
    async with httpx.AsyncClient(timeout=60) as client, asyncio.TaskGroup() as group:
        while loop.time() < end_s and not stop.is_set():
            free = [at for at in range(len(everyone)) if at not in busy]
            if free:
                group.create_task(turn(client, rng.choice(free)))
            await asyncio.sleep(rng.expovariate(7 + 4 * math.sin(loop.time() / 90)))


def main() -> None:
    """Keep a world running, with traffic, until interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), engines=4, speed=1, port=given.port) as running:
        sys.stdout.write(f"{running.ui} with the token {TOKEN}\n")
        sys.stdout.flush()
        asyncio.run(steadily(running, given.minutes, threading.Event()))


if __name__ == "__main__":
    main()
