"""A fleet of processes that may be killed: engines, gateways that share one index, the server of the index.

    client ──> replica-0, -1, -2   (a ledger each) ──> engine-0, engine-1
                    └──────── valkey, on TCP ─┘

Each process keeps its port when it is started again, as one behind a load balancer does. All of them end with the
block that started the fleet, however it ends.
"""

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import yaml

from backends.dialects.metrics import scan
from bench.mortal_fleet.index_server import IndexServer, server_command
from bench.mortal_fleet.member import Member
from gateway.demo.engines import BLOCK_SIZE
from gateway.demo.gateway_process import INDEX_DEADLINE_MS, PRICE, SPEED_PRIORS
from gateway.demo.processes import clean_environment
from gateway.demo.types import DemoFailed
from gateway.demo.workload import SHARE_GROUPS
from gateway.edge.auth import new_key

HOST: Final = "127.0.0.1"
WELL_WITHIN_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.05
_FEED_STATE: Final = "prefixgate_kv_feed_state"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to start. `events`: the engines publish KV events. `shared`: the index is on a server of its own, on TCP;
    else each gateway has a private one."""

    model: str
    model_directory: Path
    kv_blocks: int
    engines: int = 2
    replicas: int = 3
    events: bool = False
    shared: bool = True


@dataclass(frozen=True, slots=True)
class Engine:
    """A model server."""

    id: str
    url: str
    process: Member


@dataclass(frozen=True, slots=True)
class Replica:
    """A gateway and its ledger."""

    name: str
    url: str
    ledger: Path
    process: Member


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that runs; `keys` by tenant."""

    plan: FleetPlan
    engines: tuple[Engine, ...]
    replicas: tuple[Replica, ...]
    index: IndexServer | None
    keys: Mapping[str, str]
    admin_token: str

    async def stop(self) -> None:
        """End gateways, then engines and index, in order: all ledgers are whole then."""
        await together(replica.process.stop() for replica in self.replicas)
        await together(engine.process.stop() for engine in self.engines)
        if self.index is not None:
            await self.index.process.stop()


@asynccontextmanager
async def running_fleet(plan: FleetPlan, home: Path) -> AsyncIterator[Fleet]:
    """Start all of it in `home`, and wait until every gateway is well. Raises `DemoFailed`; leaves no process."""
    fleet = _fleet(plan, home)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.stop)
        if fleet.index is not None:
            await fleet.index.start()
        await together(engine.process.start() for engine in fleet.engines)
        await together(_warm_up(engine, plan.model) for engine in fleet.engines)
        await together(replica.process.start() for replica in fleet.replicas)
        await together(well(replica) for replica in fleet.replicas)
        yield fleet


async def together(works: Iterable[Awaitable[None]]) -> None:
    """Wait for all of them; a failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(_awaited(work))
    except* DemoFailed as failures:
        raise failures.exceptions[0] from None


async def well(replica: Replica, within_s: float = WELL_WITHIN_S) -> None:
    """Wait until a gateway says that nothing is degraded. Raises `DemoFailed`."""
    degraded: object = "it does not answer"
    until_s = time.monotonic() + within_s
    async with httpx.AsyncClient(timeout=within_s) as http:
        while time.monotonic() < until_s:
            with suppress(httpx.HTTPError):
                degraded = (await http.get(f"{replica.url}/health")).raise_for_status().json()["degraded"]
                if not degraded:
                    return
            await asyncio.sleep(_ASK_AGAIN_S)
    raise DemoFailed(f"{replica.name} is degraded: {degraded}")


async def followed(fleet: Fleet, within_s: float = WELL_WITHIN_S) -> None:
    """Wait until every replica has the KV events of every engine, or leaves them to the one that has.

    Raises `DemoFailed`.
    """
    states: dict[str, dict[str, str]] = {}
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        states = {replica.name: await feed_states(replica) for replica in fleet.replicas}
        if all(_is_told(engine, list(states.values())) for engine in fleet.engines):
            return
        await asyncio.sleep(_ASK_AGAIN_S)
    raise DemoFailed(f"KV events are not followed: {states}")


async def feed_states(replica: Replica) -> dict[str, str]:
    """The state of the feed of each endpoint, as a replica tells it; nothing while it does not answer."""
    try:
        async with httpx.AsyncClient(timeout=WELL_WITHIN_S) as http:
            page = (await http.get(f"{replica.url}/metrics")).raise_for_status().text
    except httpx.HTTPError:
        return {}
    samples = scan(page, (_FEED_STATE,)).get(_FEED_STATE, ())
    return {labels["endpoint"]: labels["state"] for labels, value in samples if value}


def _is_told(engine: Engine, states: Sequence[Mapping[str, str]]) -> bool:
    found = [state.get(engine.id) for state in states]
    return found.count("in_step") == 1 and found.count("not_consumer") == len(found) - 1


def _fleet(plan: FleetPlan, home: Path) -> Fleet:
    """All parts, with their files, nothing started."""
    environment = clean_environment()
    index = None
    if plan.shared:
        port = free_port()
        index = IndexServer(HOST, port, Member("valkey", server_command(HOST, port, home), home, environment))
    engines = tuple(_engine(number, plan, home, environment) for number in range(plan.engines))
    keys = {tenant: new_key() for tenant in SHARE_GROUPS}
    admin_token = secrets.token_hex(16)
    _write(home / "keys.yaml", _keys_file({tenant: digest for tenant, (_, digest) in keys.items()}))
    _write(home / "prices.yaml", {"currency": "USD", "prices": [{"model": plan.model, **PRICE}]})
    (home / "salt").write_text(secrets.token_hex(32))
    (home / "admin").write_text(admin_token)
    config = _config(plan, engines, index, home)
    replicas = tuple(_replica(number, config, home, environment) for number in range(plan.replicas))
    return Fleet(plan, engines, replicas, index, {name: key for name, (key, _) in keys.items()}, admin_token)


def _replica(number: int, config: Mapping[str, object], home: Path, environment: Mapping[str, str]) -> Replica:
    name, port, ledger = f"replica-{number}", free_port(), home / f"ledger-{number}.db"
    own = {"listen": {"host": HOST, "port": port}, "ledger": {"path": str(ledger)}}
    _write(home / f"{name}.yaml", {**config, **own})
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(home / f"{name}.yaml")]
    return Replica(name, f"http://{HOST}:{port}", ledger, Member(name, command, home, environment))


def _engine(number: int, plan: FleetPlan, home: Path, environment: Mapping[str, str]) -> Engine:
    name, port = f"engine-{number}", free_port()
    flags = {
        "--model": plan.model,
        "--served-model-name": plan.model,
        "--port": str(port),
        "--kv-blocks": str(plan.kv_blocks),
        "--block-size": str(BLOCK_SIZE),
        "--threads": "1",
    }
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        flags["--cpu-affinity"] = str(cores[-1 - number % len(cores)])
    if plan.events:
        flags |= {"--kv-events": f"tcp://*:{free_port()}", "--kv-events-replay": f"tcp://*:{free_port()}"}
    command = [sys.executable, "-m", "backends.reference", *(part for flag in flags.items() for part in flag)]
    return Engine(name, f"http://{HOST}:{port}", Member(name, command, home, environment))


async def _warm_up(engine: Engine, model: str) -> None:
    """One short answer: the first use of the kernels is no part of what is measured."""
    body = {"model": model, "prompt": "Once upon a time there was a cache. " * 8, "max_tokens": 4}
    try:
        async with httpx.AsyncClient(timeout=WELL_WITHIN_S) as http:
            (await http.post(f"{engine.url}/v1/completions", json=body)).raise_for_status()
    except httpx.HTTPError as error:
        raise DemoFailed(f"{engine.id} does not answer: {error}") from error


def _config(plan: FleetPlan, engines: Sequence[Engine], index: IndexServer | None, home: Path) -> dict[str, object]:
    shared = {} if index is None else {"redis_url": index.url}
    return {
        "backends": [{"id": engine.id, "url": engine.url} for engine in engines],
        "models": {plan.model: {"tokenizer": str(plan.model_directory)}},
        "keys_file": str(home / "keys.yaml"),
        "salt_secret_file": str(home / "salt"),
        "prices_file": str(home / "prices.yaml"),
        "admin_token_file": str(home / "admin"),
        "index": {"deadline_ms": INDEX_DEADLINE_MS, **shared},
        "scheduling": {"policy": "prefix", **SPEED_PRIORS[plan.model]},
        "poll_interval_s": 1.0,
        "log_level": "info",
    }


def _keys_file(digests: Mapping[str, str]) -> dict[str, object]:
    return {
        "tenants": [
            {"id": tenant, "share_group": SHARE_GROUPS[tenant], "keys": [{"id": f"{tenant}-1", "sha256": digest}]}
            for tenant, digest in digests.items()
        ]
    }


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))


async def _awaited(work: Awaitable[None]) -> None:
    await work
