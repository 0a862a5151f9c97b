"""Discovery as configured: its sources, and who hears of the endpoints that come and go."""

import asyncio
import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from backends import Registry, UpstreamClient
from backends.discovery import DnsName, LookUp, RecordLookup, Source, SystemLookup, WatchedFile
from backends.discovery.kubernetes import ApiAccess, KubernetesSlices, Reaching, SliceApi
from gateway import queue_setup
from gateway.adapters import AdapterBook, Adapters, forms_of
from gateway.config import Backend, Config, ConfigInvalid
from gateway.discovery.files import AdminFile, read_listing
from gateway.discovery.members import ADMIN, Discovering, Knowing
from gateway.discovery_sections import SERVICE_ACCOUNT, DnsSource, KubernetesSource
from gateway.event_feeds import EventFeeds
from gateway.fleet import Fleet
from gateway.options import endpoint_of, prior_of
from gateway.perf_book import PerfBook
from gateway.telemetry import Telemetry
from gateway.turns import Turns

FILE = "file"


class Remembers(Protocol):
    """Who knows endpoints by name."""

    def removed(self, endpoint_id: str, /) -> None:
        """One is none of the fleet any more."""


@dataclass(frozen=True, slots=True)
class DiscoveryParts:
    """The objects that discovery changes, or tells of changes; `others` only of those who are gone."""

    registry: Registry
    telemetry: Telemetry
    fleet: Fleet
    perf: PerfBook
    feeds: EventFeeds
    client: UpstreamClient
    others: Sequence[Remembers]
    turns: Turns | None = None


def discovering_of(
    config: Config, environment: Mapping[str, str], clock: Callable[[], float], parts: DiscoveryParts
) -> Discovering:
    """What keeps the fleet as its sources say; the endpoints of the configuration are in it.

    Raises `ConfigInvalid` or `InvalidEndpoint`.
    """
    discovering = Discovering(config, parts.registry, parts.telemetry.discovery, clock, sources_of(config, environment))
    parts.fleet.adapters = adapters = _adapters_of(config, clock, parts)
    remember: Sequence[Remembers] = (parts.fleet, parts.perf, parts.feeds, adapters.book, *parts.others)
    remember = remember if parts.turns is None else (*remember, parts.turns)
    discovering.seed(
        Knowing(
            endpoint_of=partial(endpoint_of, environment=environment, adapters=config.adapters.known),
            joins=partial(_joins, config, parts),
            starts=parts.fleet.slow_start.begin,
            removed=[*(one.removed for one in remember), parts.telemetry.forget_endpoint],
            retire=parts.client.retire,
        )
    )
    return discovering


async def looked_once(
    config: Config,
    environment: Mapping[str, str],
    registry: Registry,
    clock: Callable[[], float],
    within_s: float,
    joins: Callable[[Backend], None],
) -> Discovering:
    """Fill a registry with what is configured and what the sources say once, each told to `joins`. Raises as
    `discovering_of` does."""
    discovering = Discovering(config, registry, Telemetry().discovery, clock, sources_of(config, environment))
    made = partial(endpoint_of, environment=environment, adapters=config.adapters.known)
    discovering.seed(Knowing(endpoint_of=made, joins=joins, starts=lambda _: None, removed=(), retire=lambda _: None))
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(discovering.run())
        await discovering.looked(within_s)
        looking.cancel()
    return discovering


def _adapters_of(config: Config, clock: Callable[[], float], parts: DiscoveryParts) -> Adapters:
    believed = config.adapters
    book = AdapterBook(parts.telemetry.adapters, clock, load_s=believed.load_s, slots=believed.slots)
    parts.registry.subscribe(book.new_generation)
    numbered = frozenset(one.model for one in believed.known if one.number is not None)
    return Adapters(book, forms_of(believed.known), parts.fleet.snapshot, numbered)


def _nothing(_: object) -> None:
    """Nobody else knows."""


def sources_of(config: Config, environment: Mapping[str, str]) -> list[tuple[Source, Mapping[str, object]]]:
    """In order of precedence, each with what all its endpoints have in common."""
    discovery = config.discovery
    found: list[tuple[Source, Mapping[str, object]]] = []
    if discovery.admin_file is not None:
        poll_s = discovery.poll_s
        found.append((WatchedFile(ADMIN, discovery.admin_file, read_listing, poll_s=poll_s, is_ours=True), {}))
    if discovery.file is not None:
        found.append((WatchedFile(FILE, discovery.file, read_listing, poll_s=discovery.poll_s), {}))
    found += [(_slices(one, environment), one.common) for one in discovery.kubernetes]
    found += [(_dns_name(one), one.common) for one in discovery.dns]
    return found


def _slices(one: KubernetesSource, environment: Mapping[str, str]) -> KubernetesSlices:
    url, namespace = one.api_url, one.namespace
    if url is None:
        host, port = (environment.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
        if not host:
            raise ConfigInvalid(f"discovery.kubernetes: {one.source}: not in a cluster; set api_url")
        url = f"https://{f'[{host}]' if ':' in host else host}:{port or 443}"
    if namespace is None:
        try:
            namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
        except OSError as error:
            raise ConfigInvalid(f"discovery.kubernetes: {one.source}: set namespace ({error.strerror})") from None
    access = ApiAccess(url.rstrip("/"), namespace, one.labels, one.api_token_file, one.api_ca_file)
    reaching = Reaching(one.scheme, one.path.rstrip("/"), one.port)
    rng = random.Random()  # noqa: S311 - spreads retries, keeps no secret
    return KubernetesSlices(one.source, SliceApi(access), reaching, rng=rng)


def _dns_name(one: DnsSource) -> DnsName:
    if one.needs_records:
        if importlib.util.find_spec("dns") is None:
            raise ConfigInvalid(f"discovery.dns: {one.name} needs the extra `dns`: pip install '.[dns]' in a checkout")
        look_up: LookUp = RecordLookup(one.name, one.port, one.family, one.server_place)
    else:
        assert one.port is not None, "checked by the configuration"
        look_up = SystemLookup(one.name, one.port, one.family)
    prefix, path = f"{one.scheme}://", one.path.rstrip("/")
    return DnsName(one.source, look_up, prefix=prefix, path=path, interval_s=one.interval_s, misses=one.misses)


def admin_file_of(config: Config) -> AdminFile | None:
    """Where endpoints given to the admin API are kept, if anywhere."""
    return None if config.discovery.admin_file is None else AdminFile(config.discovery.admin_file)


def _joins(config: Config, parts: DiscoveryParts, backend: Backend) -> None:
    speed = prior_of(backend, config.scheduling)
    bootstrap = (backend.bootstrap_host, backend.bootstrap_port)
    parts.fleet.roles.join(backend.name, backend.role, backend.url, bootstrap)
    parts.fleet.join(backend.name, speed, backend.kv_events.ranks, choose_rank=backend.choose_rank)
    parts.perf.join(backend.name, speed)
    parts.feeds.configure(backend.name, backend.kv_events)
    queue_setup.joins(config, parts.turns, backend)
