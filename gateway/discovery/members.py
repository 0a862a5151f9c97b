"""The fleet as discovery changes it: sources are heard, and what follows is done to the registry and to all who know
endpoints by name.

    sources --listings--> membership --plan--> join    prepared everywhere, then asked by the registry
       (tasks)                                 leave   no new requests
                                               purge   out of the registry, then forgotten everywhere, twice:
                                                       what settles late would leave series and speeds behind

Every worker has one of these, and looks for itself. An endpoint that cannot be made (its key file is missing) is tried
again each round, and keeps nobody else from joining.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from backends import BackendError, EndpointConfig, EndpointId, Registry
from backends.discovery import (
    Action,
    ComeBack,
    Found,
    Hold,
    Join,
    Leave,
    Membership,
    Move,
    Purge,
    Reporter,
    Source,
    Standing,
    Traits,
    Wanted,
    WatchedFile,
)
from gateway.config import Backend, Config, ConfigInvalid
from gateway.discovery_metrics import DiscoveryMetrics
from gateway.log_lines import LOGGER

CONFIGURED: Final = "config"
"""The source that is the list in the configuration."""
ADMIN: Final = "admin"
"""The one that is what the admin API was given."""
ROUND_S: Final = 1.0
"""Between two looks at who may be purged, and at who could not be made."""
SETTLED_S: Final = 5.0
"""So long after the end of its last stream an endpoint is still busy: with settling it."""
AGAIN_S: Final = 5.0
"""Until a source that failed in a way of its own is run again."""
HURRY_S: Final = 2.0
HURRY_LOOK_S: Final = 0.01
LATE_S: Final = 60.0
"""What is settled even later, the ledger being slow, is counted until then."""
STATES: Final = ("up", "down", "held", "leaving", "refused")
"""Of a member; `held` gets no new requests since a source says so, `refused` cannot be made."""


@dataclass(frozen=True, slots=True)
class Knowing:
    """Who must hear of members beside the registry: `joins` before it has them, `removed` once it has not,
    `starts` where one is new to a gateway that serves already.

    `endpoint_of` says how one is reached, and raises `ConfigInvalid` or `InvalidEndpoint`. `retire` is told of an
    address that nobody is to be reached at any more.
    """

    endpoint_of: Callable[[Backend], EndpointConfig]
    joins: Callable[[Backend], None]
    starts: Callable[[str], None]
    removed: Sequence[Callable[[str], None]]
    retire: Callable[[EndpointConfig], None]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """One endpoint, for people: who lists it, in which state it is as a member, and what else is said of it."""

    url: str
    sources: tuple[str, ...]
    state: str
    traits: Traits


class Discovering:
    """One per worker. `run` must be under way; all else is plain."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        metrics: DiscoveryMetrics,
        clock: Callable[[], float],
        sources: Sequence[tuple[Source, Mapping[str, object]]] = (),
    ) -> None:
        """`sources` come in order of precedence, each with what all its endpoints have in common. Those of the
        configuration join in `seed`."""
        self._most = config.discovery.max_endpoints
        self._registry = registry
        self._metrics = metrics
        self._clock = clock
        self._sources = [source for source, _ in sources]
        self._common = {source.name: common for source, common in sources}
        self._knowing: Knowing | None = None
        self._configured = {backend.name: backend for backend in config.backends}
        order = [CONFIGURED, *(source.name for source in self._sources)]
        self._membership = Membership(order, grace_s=config.discovery.grace_s, most=self._most)
        self._reporters = {one.name: Reporter(one.name, clock, self._changed, _say_trouble) for one in self._sources}
        self._unmade: dict[str, str] = {}
        """Members that could not be made, and why."""
        self._late: list[tuple[float, str]] = []
        self._busy_until_s: dict[str, float] = {}
        self._news = asyncio.Event()
        self._has_begun = False
        self._heard = asyncio.Event()
        self._turn = asyncio.Lock()  # spans the awaits of one plan's actions, which are in order

    def seed(self, knowing: Knowing) -> None:
        """Take the configured endpoints in. Raises `ConfigInvalid` or `InvalidEndpoint`."""
        self._knowing = knowing
        self._membership.take(CONFIGURED, [Found(one.url, name) for name, one in self._configured.items()])
        for action in self._membership.plan(self._clock(), self._is_busy):
            if isinstance(action, Join):
                self._join(action.wanted)
        if self._membership.refused:
            raise ConfigInvalid("discovery.max_endpoints: there are more backends than that")

    async def run(self) -> None:
        """Hear the sources and follow them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(self._hear(source))
            while True:
                self._news.clear()
                try:
                    await self.follow()
                except Exception as error:  # noqa: BLE001 - the guard of the loop: the next round tries again
                    LOGGER.error("endpoints were not followed", extra={"fields": {"error": type(error).__name__}})
                try:
                    async with asyncio.timeout(ROUND_S):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def _hear(self, source: Source) -> None:
        """Run a source, again where it fails: nobody would notice that it is heard no more."""
        report = self._reporters[source.name]
        while True:
            try:
                await source.run(report)
            except Exception as error:  # noqa: BLE001 - the guard of a loop: the other sources are heard meanwhile
                report.failed(f"it cannot be read ({type(error).__name__})")
            await asyncio.sleep(AGAIN_S)

    async def looked(self, within_s: float) -> None:
        """Wait until every source has said something, be it that it cannot, and that was followed; or for so long."""
        try:
            async with asyncio.timeout(within_s):
                while not all(one.heard for one in self._reporters.values()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            LOGGER.warning("not all sources of endpoints have answered yet; what the others have is known")
        await self.follow()
        self._has_begun = True

    async def follow(self) -> None:
        """Do what follows from what is known now."""
        async with self._turn:
            await self._follow(self._clock())

    async def _follow(self, now_s: float) -> None:
        for endpoint_id in list(self._unmade):
            wanted = self._membership.member(endpoint_id)
            if wanted is not None and not self._membership.has_left(endpoint_id):
                self._try(wanted)
        for action in self._membership.plan(now_s, self._is_busy):
            await self._do(action)
            await asyncio.sleep(0)  # a quarter of a millisecond each: requests need not wait for a hundred of them
        while self._late and self._late[0][0] <= now_s:
            _, endpoint_id = self._late.pop(0)
            if endpoint_id not in self._registry:
                self._forget(endpoint_id)

    def standings(self) -> Mapping[str, Standing]:
        """How each source stands, by name; not to be changed."""
        return {name: one.standing for name, one in self._reporters.items()}

    def problems(self) -> list[str]:
        """What is wrong with sources and with endpoints that they name, in words."""
        found = [
            f"{name}: {one.standing.problem}"
            for name, one in self._reporters.items()
            if one.standing.problem is not None
        ]
        found += [f"{endpoint_id}: {why}" for endpoint_id, why in sorted(self._unmade.items())]
        if self._membership.refused:
            found.append(f"{self._membership.refused} endpoints are beyond discovery.max_endpoints")
        return found

    def silent(self) -> list[str]:
        """Sources that have said nothing yet, not even that they cannot, by name."""
        return [name for name, one in self._reporters.items() if not one.heard]

    def report_of(self, endpoint_id: str) -> MemberReport | None:
        """What is known of a member as such."""
        wanted = self._membership.member(endpoint_id)
        if wanted is None:
            return None
        return MemberReport(wanted.found.url, wanted.sources, self._state_of(endpoint_id, wanted), wanted.found.traits)

    @property
    def is_full(self) -> bool:
        """Whether there are as many endpoints as there may be."""
        return sum(not self._membership.has_left(one) for one in self._membership.members()) >= self._most

    def id_at(self, url: str) -> str | None:
        """Who is at an address, those that have left aside. O(endpoints)."""
        wanted = self._membership.at(url)
        return None if wanted is None else wanted.id

    def is_listed(self, source: str, url: str) -> bool:
        """Whether a source lists an address, as far as was followed. O(endpoints)."""
        wanted = self._membership.at(url)
        return wanted is not None and source in wanted.sources

    async def hurry(self, source: str, until: Callable[[], bool]) -> None:
        """Have a source of a file look now, and wait a little until that shows."""
        for one in self._sources:
            if one.name == source and isinstance(one, WatchedFile):
                one.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(HURRY_S):
                while not until():  # noqa: ASYNC110 - one look, and what it changes: tens of milliseconds
                    await asyncio.sleep(HURRY_LOOK_S)

    def show(self) -> None:
        """Bring the metrics up to date: members by the source that names them and their state, and the sources."""
        metrics, now_s = self._metrics, self._clock()
        counts: dict[tuple[str, str], int] = {
            (source, state): 0 for source in (CONFIGURED, *self._reporters) for state in STATES
        }
        for endpoint_id in self._membership.members():
            wanted = self._membership.member(endpoint_id)
            if wanted is not None:
                counts[wanted.sources[0], self._state_of(endpoint_id, wanted)] += 1
        for (source, state), count in counts.items():
            metrics.endpoints(source, state).set(count)
        for name, one in self._reporters.items():
            told_at_s = one.standing.told_at_s
            metrics.errors(name).value = one.standing.errors
            if told_at_s is not None:
                metrics.success_age_s(name).set(now_s - told_at_s)

    def _state_of(self, endpoint_id: str, wanted: Wanted) -> str:
        if self._membership.has_left(endpoint_id):
            return "leaving"
        if endpoint_id not in self._registry:
            return "refused"
        if wanted.draining:
            return "held"
        return "up" if self._registry.is_healthy(EndpointId(endpoint_id)) else "down"

    def _changed(self, source: str, listing: Sequence[Found]) -> None:
        self._membership.take(source, listing)
        self._news.set()
        self._heard.set()

    async def _do(self, action: Action) -> None:
        match action:
            case Join(wanted):
                self._try(wanted)
                LOGGER.info("endpoint joins", extra={"fields": _fields(wanted)})
            case Move(wanted):
                await self._move(wanted)
                LOGGER.info("endpoint is another one now", extra={"fields": _fields(wanted)})
            case ComeBack(wanted):
                if wanted.id in self._registry:
                    self._registry.come_back(EndpointId(wanted.id))
                else:
                    self._try(wanted)
                LOGGER.info("endpoint comes back", extra={"fields": _fields(wanted)})
            case Leave(endpoint_id):
                self._unmade.pop(endpoint_id, None)
                if endpoint_id in self._registry:
                    self._registry.leave(EndpointId(endpoint_id))
                LOGGER.info("endpoint leaves", extra={"fields": {"endpoint": endpoint_id}})
            case Hold(endpoint_id, held) if endpoint_id in self._registry:
                self._registry.hold_back(EndpointId(endpoint_id), held)
            case Purge(endpoint_id):
                await self._purge(endpoint_id)
            case _:
                pass

    def _try(self, wanted: Wanted) -> None:
        """Take one in, or say why not; it is tried again."""
        try:
            self._join(wanted)
        except Exception as error:  # noqa: BLE001 - whatever it is about one, the others join
            self._refuse(wanted.id, error)
        else:
            self._unmade.pop(wanted.id, None)

    def _refuse(self, endpoint_id: str, error: Exception) -> None:
        if endpoint_id not in self._unmade:
            fields = {"endpoint": endpoint_id, "why": _in_words(error)}
            LOGGER.error("an endpoint that was found cannot be used", extra={"fields": fields})
        self._unmade[endpoint_id] = _in_words(error)

    def _join(self, wanted: Wanted) -> None:
        backend, config = self._made(wanted)
        assert self._knowing is not None, "seeded first"
        self._knowing.joins(backend)
        self._registry.join(config)
        if self._has_begun:
            self._knowing.starts(wanted.id)

    async def _move(self, wanted: Wanted) -> None:
        if wanted.id not in self._registry:
            self._try(wanted)
            return
        assert self._knowing is not None, "seeded first"
        try:
            backend, config = self._made(wanted)
        except Exception as error:  # noqa: BLE001 - as above
            # Where it was it is no more, and where it is it cannot be reached.
            await self._purge(wanted.id)
            self._refuse(wanted.id, error)
            return
        self._knowing.joins(backend)
        self._knowing.starts(wanted.id)
        self._knowing.retire(await self._registry.move(config))

    def _made(self, wanted: Wanted) -> tuple[Backend, EndpointConfig]:
        assert self._knowing is not None, "seeded first"
        backend = self._configured.get(wanted.id) if wanted.sources[0] == CONFIGURED else None
        if backend is None:
            common = self._common.get(wanted.sources[0], {})
            given = {**common, **wanted.found.settings, "url": wanted.found.url, "id": wanted.id}
            backend = Backend.model_validate(given)
        return backend, self._knowing.endpoint_of(backend)

    async def _purge(self, endpoint_id: str) -> None:
        self._unmade.pop(endpoint_id, None)
        if endpoint_id not in self._registry:
            return
        assert self._knowing is not None, "seeded first"
        self._knowing.retire(await self._registry.purge(EndpointId(endpoint_id)))
        self._forget(endpoint_id)
        self._late.append((self._clock() + LATE_S, endpoint_id))
        LOGGER.info("endpoint is forgotten", extra={"fields": {"endpoint": endpoint_id}})

    def _forget(self, endpoint_id: str) -> None:
        assert self._knowing is not None, "seeded first"
        for tell in self._knowing.removed:
            tell(endpoint_id)

    def _is_busy(self, endpoint_id: str) -> bool:
        """Whether something is under way at one that has left, or was a moment ago. Asked each round of each."""
        if endpoint_id not in self._registry:
            return False
        now_s = self._clock()
        if self._registry.load_of(EndpointId(endpoint_id)).requests:
            self._busy_until_s[endpoint_id] = now_s + SETTLED_S
        if now_s < self._busy_until_s.get(endpoint_id, now_s):
            return True
        self._busy_until_s.pop(endpoint_id, None)
        return False


def _in_words(error: Exception) -> str:
    """What the configuration's own errors say; of others their kind, since their text may repeat anything."""
    known = isinstance(error, ConfigInvalid | BackendError)
    return str(error) if known else f"it cannot be used ({type(error).__name__})"


def _fields(wanted: Wanted) -> dict[str, object]:
    return {"endpoint": wanted.id, "url": wanted.found.url, "sources": wanted.sources}


def _say_trouble(source: str, why: str) -> None:
    fields = {"source": source, "why": why}
    LOGGER.error("endpoints cannot be found at present, those known before stay", extra={"fields": fields})
