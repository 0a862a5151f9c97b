"""All that runs: six engines, three gateways, a Valkey, a ledger; and a link for each gateway to each part.

    clients ──> gateway-0, -1, -2 ──link──> engine-0 ... engine-5
                       ├──link──> valkey    (index, limits, loads)
                       └──link──> ledger    (PostgreSQL; or a SQLite file a gateway)

Each process keeps its port when it is started again. All of them end with the block that started them.
"""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import yaml
from redis import Redis
from redis.exceptions import RedisError

from bench.faults.clocks import WallClock, built
from bench.faults.disks import Disk, small_disk
from bench.faults.engines import NamedEngine, answers_at, command_of, records_of
from bench.faults.links import Link
from bench.faults.namespaces import Namespace, namespaces
from bench.faults.parts import Part, Ready, postgres_part
from bench.faults.types import Computed, Record
from bench.faults.wire import Wire
from bench.mortal_fleet.fleet import free_port, together
from bench.mortal_fleet.index_server import server_command
from gateway.demo.gateway_process import INDEX_DEADLINE_MS
from gateway.demo.processes import clean_environment
from gateway.demo.types import DemoFailed
from gateway.edge.auth import new_key

HOST: Final = "127.0.0.1"
VALKEY: Final = "valkey"
LEDGER: Final = "ledger"
TENANTS: Final = ("acme", "umbrella")
WELL_WITHIN_S: Final = 60.0
PRICE: Final = {"input_per_mtok": "3.00", "cached_input_per_mtok": "0.30", "output_per_mtok": "15.00"}
TAKEOVER_S: Final = 5
_ASK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to start. `ledger`: one PostgreSQL for all (`postgres`), or a SQLite file for each gateway (`sqlite`);
    `as_root`: use namespaces and small file systems where root is allowed them; `continues`: streams whose endpoint
    dies are gone on with by another."""

    engines: tuple[NamedEngine, ...]
    gateways: int = 3
    ledger: str = "postgres"
    as_root: bool = True
    continues: bool = False


@dataclass(slots=True)
class Gateway:
    """One gateway. `ledger`: its own file, if it has one; `disk`: where that is; `clock`: its wall clock, if it can be
    moved."""

    name: str
    url: str
    part: Part
    answers: Ready
    ledger: Path | None = None
    disk: Disk | None = None
    clock: WallClock | None = None
    namespace: Namespace | None = None


@dataclass(slots=True)
class Fleet:
    """Everything that runs. `computed`: what passed between gateways and engines; `records`: what these remember of it;
    `readies`, how to ask a part whether it answers; `controls`, the ports at which engines are told to be slow;
    `address`, the URL of PostgreSQL, past all links."""

    plan: FleetPlan
    home: Path
    parts: dict[str, Part] = field(default_factory=dict)
    readies: dict[str, Ready] = field(default_factory=dict)
    gateways: dict[str, Gateway] = field(default_factory=dict)
    controls: dict[str, int] = field(default_factory=dict)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    computed: list[Computed] = field(default_factory=list)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    admin_token: str = ""
    address: str | None = None
    disk: Disk | None = None
    valkey_port: int = 0

    def links_to(self, part: str, gateway: str | None = None) -> list[Link]:
        """Those of one gateway, or of all."""
        return [link for (owner, to), link in self.links.items() if to == part and gateway in (None, owner)]

    async def remember(self, engine: str | None = None) -> None:
        """Take over what engines, or one of them, remember: it is gone when they are."""
        for name in self.controls if engine is None else (engine,):
            if name in self.controls:
                for one in await records_of(name, self.controls[name]):
                    self.records[name, one.answer_id] = one

    def redis(self) -> Redis:
        """A client of the Valkey, past all links."""
        return Redis(HOST, self.valkey_port, socket_timeout=5)

    async def start(self, part: str) -> None:
        """Start a part. Raises `DemoFailed`."""
        await self.parts[part].start(self.readies[part])

    async def health_of(self, http: httpx.AsyncClient, gateway: str) -> dict[str, object] | None:
        """What a gateway says of itself; None where it says nothing."""
        with suppress(httpx.HTTPError, ValueError):
            said: dict[str, object] = (await http.get(f"{self.gateways[gateway].url}/health")).json()
            return said
        return None

    async def well(self, within_s: float) -> bool:
        """Wait until all gateways say that nothing is degraded; whether they did in time."""
        until_s = time.monotonic() + within_s
        async with httpx.AsyncClient(timeout=5.0) as http:
            while time.monotonic() < until_s:
                said = [await self.health_of(http, name) for name in self.gateways]
                if all(one is not None and not one["degraded"] for one in said):
                    return True
                await asyncio.sleep(_ASK_AGAIN_S)
        return False

    async def degraded(self) -> dict[str, object]:
        """What each gateway says is not well."""
        async with httpx.AsyncClient(timeout=5.0) as http:
            said = {name: await self.health_of(http, name) for name in self.gateways}
        return {name: "silent" if one is None else one["degraded"] for name, one in said.items()}

    async def admin(self, gateway: str, path: str) -> object:
        """A page of the admin API. Raises `httpx.HTTPError`."""
        headers = {"authorization": f"Bearer {self.admin_token}"}
        async with httpx.AsyncClient(timeout=10.0, headers=headers) as http:
            return (await http.get(f"{self.gateways[gateway].url}{path}")).raise_for_status().json()

    async def stop_gateways(self) -> None:
        """End them in order: their ledgers are whole then, but for what waits in a spool."""
        for gateway in self.gateways.values():
            if gateway.disk is not None:
                gateway.disk.empty()
        if self.disk is not None:
            self.disk.empty()
        await together(gateway.part.stop() for gateway in self.gateways.values())

    async def stop(self) -> None:
        """End all of it, gateways first."""
        await self.stop_gateways()
        for link in self.links.values():
            await link.stop()
        others = [part for name, part in self.parts.items() if name not in self.gateways]
        await together(part.kill() if part.name == LEDGER else part.stop() for part in others)


@asynccontextmanager
async def running_fleet(plan: FleetPlan, home: Path) -> AsyncIterator[Fleet]:
    """Start all of it in `home`, an absolute path, and wait until every gateway is well. Raises `DemoFailed`; leaves no
    process."""
    async with AsyncExitStack() as stack:
        fleet = Fleet(plan, home)
        _lay_out(fleet, stack)
        stack.push_async_callback(fleet.stop)
        for link in fleet.links.values():
            await link.start()
        await together(fleet.start(name) for name in fleet.parts if name not in fleet.gateways)
        await together(fleet.start(name) for name in fleet.gateways)
        if not await fleet.well(WELL_WITHIN_S):
            raise DemoFailed(f"gateways are degraded: {json.dumps(await fleet.degraded())}")
        yield fleet


def _lay_out(fleet: Fleet, stack: AsyncExitStack) -> None:
    """All parts with their files and links; nothing is started."""
    plan, home, environment = fleet.plan, fleet.home, clean_environment()
    far: dict[str, int] = {}
    for spec in plan.engines:
        far[spec.name] = port = free_port()
        fleet.controls[spec.name] = free_port()
        command = command_of(spec, port, fleet.controls[spec.name])
        fleet.parts[spec.name] = Part(spec.name, command, home, environment)
        fleet.readies[spec.name] = answers_at(port)
    fleet.valkey_port = far[VALKEY] = free_port()
    fleet.parts[VALKEY] = Part(VALKEY, server_command(HOST, fleet.valkey_port, home), home, environment)
    fleet.readies[VALKEY] = lambda: _pings(fleet)
    if plan.ledger == "postgres":
        home.chmod(0o711)  # PostgreSQL runs as another user, where this one is root
        far[LEDGER] = free_port()
        fleet.disk = stack.enter_context(small_disk(home / "ledger-disk", mounts=plan.as_root))
        part, fleet.address, answers = postgres_part(home, far[LEDGER], environment, fleet.disk.folder)
        fleet.parts[LEDGER], fleet.readies[LEDGER] = part, answers
    _write_files(fleet)
    names = [f"gateway-{number}" for number in range(plan.gateways)]
    spaces = namespaces(plan.gateways, list(far)) if plan.as_root else None
    for one in spaces or ():
        stack.callback(one.close)
    library = built(home)
    for number, name in enumerate(names):
        space = None if spaces is None else spaces[number]
        near = _link(fleet, name, far, space)
        _add_gateway(fleet, name, near, space, library, stack)


def _link(fleet: Fleet, gateway: str, far: Mapping[str, int], space: Namespace | None) -> dict[str, tuple[str, int]]:
    """A link to each part; where the gateway finds them."""
    near: dict[str, tuple[str, int]] = {}
    for part, port in far.items():
        host = HOST if space is None else space.host_of(part)
        near[part] = (host, free_port())
        is_engine = part not in (VALKEY, LEDGER)
        listen = partial(Wire, gateway, part, time.monotonic, fleet.computed.append) if is_engine else None
        fleet.links[gateway, part] = Link(gateway, part, near[part], (HOST, port), listen)
    return near


def _add_gateway(
    fleet: Fleet,
    name: str,
    near: Mapping[str, tuple[str, int]],
    space: Namespace | None,
    library: Path | None,
    stack: AsyncExitStack,
) -> None:
    host, port = HOST if space is None else space.gateway_host, free_port()
    home, environment = fleet.home, clean_environment()
    disk = None
    if LEDGER not in near:
        disk = stack.enter_context(small_disk(home / f"{name}.disk", mounts=fleet.plan.as_root))
    ledger = None if disk is None else disk.folder / "ledger.db"
    _write(home / f"{name}.yaml", _config_of(fleet, name, near, ledger) | {"listen": {"host": host, "port": port}})
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(home / f"{name}.yaml")]
    clock = None
    if library is not None:
        clock = WallClock(home / f"{name}.clock", library)
        environment |= clock.environment
    if space is not None:
        command = [*space.prefix, *command]
    url = f"http://{host}:{port}"
    part = Part(name, command, home, environment)
    gateway = Gateway(name, url, part, lambda: _is_ready(url), ledger, disk, clock, space)
    fleet.parts[name], fleet.readies[name], fleet.gateways[name] = part, gateway.answers, gateway


def _config_of(fleet: Fleet, name: str, near: Mapping[str, tuple[str, int]], ledger: Path | None) -> dict[str, object]:
    """Of one gateway, with a `ledger` of its own or the server's: deadlines, health and limits are as by default."""
    home, valkey = fleet.home, near[VALKEY]
    kept: dict[str, object] = {"path": str(ledger)}
    if ledger is None:
        host, port = near[LEDGER]
        kept = {"url": f"postgresql://prefixgate@{host}:{port}/postgres", "takeover_s": TAKEOVER_S}
    return {
        "backends": [{"id": e.name, "url": f"http://{near[e.name][0]}:{near[e.name][1]}"} for e in fleet.plan.engines],
        "keys_file": str(home / "keys.yaml"),
        "salt_secret_file": str(home / "salt"),
        "prices_file": str(home / "prices.yaml"),
        "admin_token_file": str(home / "admin"),
        "index": {"deadline_ms": INDEX_DEADLINE_MS, "redis_url": f"redis://{valkey[0]}:{valkey[1]}/0"},
        "ledger": {**kept, "on_ledger_down": "spool", "spool": str(home / f"{name}.spool")},
        "log_level": "info",
        **({"continuation": {"enabled": True}} if fleet.plan.continues else {}),
    }


def _write_files(fleet: Fleet) -> None:
    home = fleet.home
    made = {tenant: new_key() for tenant in TENANTS}
    fleet.keys = {tenant: key for tenant, (key, _) in made.items()}
    salt, fleet.admin_token = secrets.token_hex(32), secrets.token_hex(16)
    fleet.secrets = [*fleet.keys.values(), salt, fleet.admin_token]
    tenants = [
        {
            "id": tenant,
            "share_group": "all",
            "limits": {"concurrent": 1000, "tokens_per_minute": 10**9, "requests_per_minute": 10**6},
            "keys": [{"id": f"{tenant}-1", "sha256": digest}],
        }
        for tenant, (_, digest) in made.items()
    ]
    models = sorted({engine.model for engine in fleet.plan.engines})
    prices = [{"model": model, **PRICE, "from": "2000-01-01T00:00:00Z"} for model in models]
    _write(home / "keys.yaml", {"tenants": tenants})
    _write(home / "prices.yaml", {"currency": "USD", "prices": prices})
    (home / "salt").write_text(salt)
    (home / "admin").write_text(fleet.admin_token)


def _pings(fleet: Fleet) -> bool:
    try:
        with fleet.redis() as client:
            return bool(client.ping())
    except RedisError:
        return False


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def models_of(specs: Sequence[NamedEngine]) -> dict[str, list[str]]:
    """The engines of each model."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        found.setdefault(spec.model, []).append(spec.name)
    return found


def _write(path: Path, content: object) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
