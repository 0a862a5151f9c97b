"""The endpoints of the fleet: who lives, in which generation, how loaded.

            poll fails, or N calls in a row fail
      ┌────┐ ──────────────────────────────────> ┌──────┐
      │ up │                                      │ down │ <── at start, until first seen
      └────┘ <────────────────────────────────── └──────┘
            a poll succeeds (facts detected anew)

Invariants:
- `snapshot` does no I/O and no waiting: each endpoint's snapshot is kept and rebuilt only after a change.
- Each endpoint is polled by a loop of its own under its own deadline: a frozen one delays nobody.
- The generation only grows, and names the engine's process: it is the engine's start time in Unix seconds where its
  metrics tell it, so that replicas agree on it and it outlives the gateway; else a counter.
- Work in flight survives flaps and restarts: it belongs to the requests, not to the health.
- An endpoint that leaves takes no new requests and is asked nothing, but stays known, with its generation, until it is
  purged: one that comes back in time, and is the process that it was, is the holder that it was.
- A client's error is not an endpoint's: only failures that blame the endpoint count, and any answer ends the count.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import httpx

from backends.dialects import Dialect
from backends.errors import ProbeFailed, UnknownEndpoint, UpstreamError
from backends.health import Probe, http_client, restarted
from backends.reservations import InFlightCounter, Reservation
from backends.types import EndpointConfig, EndpointFacts, EndpointId, EndpointSnapshot, InFlight, LoadSample

log = logging.getLogger("backends")

Clock = Callable[[], float]
HttpFactory = Callable[[EndpointConfig], httpx.AsyncClient]
GenerationListener = Callable[[EndpointId, int], None]


@dataclass(frozen=True, slots=True)
class PollSettings:
    """`interval_s` between polls of one endpoint; `deadline_s` for one poll as a whole; after `failures_to_down`
    calls in a row that blame it an endpoint is down until a poll succeeds; every `polls_to_detect` polls the facts
    are read anew, since adapters come and go."""

    interval_s: float = 2.0
    deadline_s: float = 5.0
    failures_to_down: int = 3
    polls_to_detect: int = 30


class Registry:
    """All endpoints of a fleet. Use as an async context manager and run `run` in a task group.

    `clock` is monotonic, in seconds, and stamps the load samples. Duplicate ids are a ValueError. `configs` are those
    of the beginning; `join`, `leave` and `purge` change who is there at any time, before `run` and while it runs.
    """

    def __init__(
        self,
        configs: Sequence[EndpointConfig],
        clock: Clock,
        http: HttpFactory = http_client,
        settings: PollSettings = PollSettings(),
    ) -> None:
        if len({config.id for config in configs}) < len(configs):
            raise ValueError("endpoint ids must be unique")
        self._clock = clock
        self._settings = settings
        self._http = http
        self._group: asyncio.TaskGroup | None = None
        self._endpoints = {config.id: _Endpoint(config, http(config), self._changed) for config in configs}
        self._listeners: list[GenerationListener] = []
        self._snapshot: tuple[EndpointSnapshot, ...] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.http.aclose()

    def snapshot(self) -> tuple[EndpointSnapshot, ...]:
        """All endpoints, in the order of the configuration. O(1), or O(endpoints) after a change."""
        if self._snapshot is None:
            self._snapshot = tuple(endpoint.snapshot() for endpoint in self._endpoints.values())
        return self._snapshot

    def __contains__(self, endpoint_id: str) -> bool:
        """Whether there is an endpoint of that id, leaving or not."""
        return endpoint_id in self._endpoints

    def join(self, config: EndpointConfig) -> None:
        """A new endpoint; it is down until it was asked. A ValueError where its id is taken."""
        if config.id in self._endpoints:
            raise ValueError(f"there is an endpoint {config.id} already")
        self._endpoints[config.id] = endpoint = _Endpoint(config, self._http(config), self._changed)
        self._changed()
        self._begin_polls(endpoint)

    def leave(self, endpoint_id: EndpointId) -> None:
        """An endpoint takes no new requests and is not asked any more, so it counts as down; those under way go on."""
        endpoint = self._endpoint(endpoint_id)
        endpoint.leaving, endpoint.reason = True, _LEFT
        endpoint.end_polls()
        endpoint.touch()

    def come_back(self, endpoint_id: EndpointId) -> None:
        """One that was leaving stays; it is down until it was asked, which also says whether it was restarted."""
        endpoint = self._endpoint(endpoint_id)
        endpoint.leaving = False
        endpoint.reason = _NOT_SEEN_AGAIN if endpoint.facts is not None else _NOT_SEEN
        endpoint.touch()
        self._begin_polls(endpoint)

    async def move(self, config: EndpointConfig) -> EndpointConfig:
        """Under an id that is known there is another endpoint now: at another address, or with another key.

        At another address nothing that was known holds; at the same one only the ways to ask it are new. What was sent
        to the one before goes on. Returns how that was configured.
        """
        before = self._endpoint(config.id)
        before.end_polls()
        after = _Endpoint(config, self._http(config), self._changed)
        after.draining, after.held_back = before.draining, before.held_back
        self._endpoints[config.id] = after
        if before.config.url == config.url:
            after.resemble(before)
        else:
            self._raise_generation(after, 0)
        self._changed()
        self._begin_polls(after)
        await before.http.aclose()
        return before.config

    def hold_back(self, endpoint_id: EndpointId, held_back: bool) -> None:
        """What knows of an endpoint says that it takes no new requests at present; `drain` is the operator's word."""
        endpoint = self._endpoint(endpoint_id)
        if endpoint.held_back != held_back:
            endpoint.held_back = held_back
            endpoint.touch()

    async def purge(self, endpoint_id: EndpointId) -> EndpointConfig:
        """Forget an endpoint; returns how it was configured."""
        endpoint = self._endpoint(endpoint_id)
        del self._endpoints[endpoint_id]
        endpoint.end_polls()
        self._changed()
        await endpoint.http.aclose()
        return endpoint.config

    def is_healthy(self, endpoint_id: EndpointId) -> bool:
        """Whether the last poll of an endpoint, and the calls since, say that it is up."""
        return self._endpoint(endpoint_id).healthy

    def config_of(self, endpoint_id: EndpointId) -> EndpointConfig:
        """Where an endpoint is; `UnknownEndpoint` when there is none of that id, here and below."""
        return self._endpoint(endpoint_id).config

    def load_of(self, endpoint_id: EndpointId) -> InFlight:
        """Work this gateway has in flight at an endpoint."""
        return self._endpoint(endpoint_id).in_flight.read()

    def reserve(self, endpoint_id: EndpointId, uncached_tokens: int, decode_tokens: int) -> Reservation:
        """Count a request from dispatch on, whatever the endpoint's health; the reservation must be released."""
        return Reservation(self._endpoint(endpoint_id).in_flight, uncached_tokens, decode_tokens)

    def subscribe(self, listener: GenerationListener) -> None:
        """Call `listener(id, generation)` whenever an endpoint's generation changes: its cache is another one now."""
        self._listeners.append(listener)

    def drain(self, endpoint_id: EndpointId, draining: bool = True) -> None:
        """Mark an endpoint as taking no new requests; those under way go on."""
        endpoint = self._endpoint(endpoint_id)
        endpoint.draining = draining
        endpoint.touch()

    def report_success(self, endpoint_id: EndpointId, reports_cached_tokens: bool = False) -> None:
        """An endpoint answered, with whatever status; `reports_cached_tokens`: its usage carried cached tokens.

        Of one that was purged meanwhile nobody needs to know; so it is with failures.
        """
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is None:
            return
        endpoint.failures = 0
        facts = endpoint.facts
        if reports_cached_tokens and facts is not None and facts.reports_cached_tokens is None:
            endpoint.facts = replace(facts, reports_cached_tokens=True)
            endpoint.touch()

    def report_failure(self, endpoint_id: EndpointId, error: UpstreamError) -> None:
        """A call failed; enough in a row that blame the endpoint take it down until a poll succeeds."""
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is None or not error.blames_endpoint:
            return
        endpoint.failures += 1
        if endpoint.healthy and endpoint.failures >= self._settings.failures_to_down:
            endpoint.goes_down(f"{endpoint.failures} calls failed in a row ({type(error).__name__})")

    async def detect_all(self, deadline_s: float) -> None:
        """Poll every endpoint once, at the same time, for at most `deadline_s`; who is away stays down, no error."""
        try:
            async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as group:
                for endpoint_id in tuple(self._endpoints):
                    group.create_task(self.poll(endpoint_id))
        except TimeoutError:
            for endpoint in self._endpoints.values():
                if endpoint.reason == _NOT_SEEN:
                    endpoint.goes_down(f"no answer within {deadline_s:g} s")

    async def run(self) -> None:
        """Poll all endpoints, also those that join later, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for endpoint in self._endpoints.values():
                    if not endpoint.leaving:
                        self._begin_polls(endpoint)
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def poll(self, endpoint_id: EndpointId) -> None:
        """Ask one endpoint once, within the settings' deadline, and keep the outcome. Never raises for the endpoint."""
        await self._poll(self._endpoint(endpoint_id))

    async def _poll(self, endpoint: "_Endpoint") -> None:
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                await self._ask(endpoint)
        except TimeoutError:
            endpoint.goes_down(f"no answer within {self._settings.deadline_s:g} s")
        except ProbeFailed as failure:
            endpoint.goes_down(failure.reason)
        except Exception as error:  # noqa: BLE001 - whatever it answers may take it down, never the poll of all
            endpoint.goes_down(f"what it says of itself cannot be read ({type(error).__name__})")

    def _begin_polls(self, endpoint: "_Endpoint") -> None:
        if self._group is not None:
            endpoint.end_polls()
            endpoint.polling = self._group.create_task(self._poll_forever(endpoint))

    async def _poll_forever(self, endpoint: "_Endpoint") -> None:
        while True:
            await self._poll(endpoint)
            await asyncio.sleep(self._settings.interval_s)

    async def _ask(self, endpoint: "_Endpoint") -> None:
        was_down = not endpoint.healthy
        due = endpoint.polls % self._settings.polls_to_detect == 0
        dialect, facts = endpoint.dialect, endpoint.facts
        if dialect is None or facts is None or was_down or due:
            dialect, facts = await endpoint.probe.detect()
        began_s = self._clock()
        load = await endpoint.probe.poll(dialect, began_s)
        if load is not None:
            load = replace(load, took_s=self._clock() - began_s)
        seen_before = endpoint.dialect is not None
        if seen_before and restarted(endpoint.load, load, was_down):
            dialect, facts = await endpoint.probe.detect()
            endpoint.facts = None
            endpoint.comes_up(dialect, facts, load)
            self._raise_generation(endpoint, _generation(endpoint.generation + 1, load))
        else:
            endpoint.comes_up(dialect, facts, load)
            if not seen_before and _generation(0, load) > endpoint.generation:
                self._raise_generation(endpoint, _generation(0, load))

    def _raise_generation(self, endpoint: "_Endpoint", generation: int) -> None:
        if self._endpoints.get(endpoint.config.id) is not endpoint:
            return  # it was purged while it was asked, or is at another address
        endpoint.generation = generation
        endpoint.touch()
        for listener in self._listeners:
            listener(endpoint.config.id, generation)

    def _endpoint(self, endpoint_id: EndpointId) -> "_Endpoint":
        try:
            return self._endpoints[endpoint_id]
        except KeyError:
            raise UnknownEndpoint(endpoint_id) from None

    def _changed(self) -> None:
        self._snapshot = None


_LEFT = "no source lists it any more"
_NOT_SEEN = "not seen yet"
_NOT_SEEN_AGAIN = "not seen since it came back"


class _Endpoint:
    """All that is known of one endpoint; whoever changes it calls `touch`."""

    def __init__(self, config: EndpointConfig, http: httpx.AsyncClient, changed: Callable[[], None]) -> None:
        self.config = config
        self.http = http
        self.probe = Probe(config, http)
        self.dialect: Dialect | None = None
        self.facts: EndpointFacts | None = None
        self.load: LoadSample | None = None
        self.reason: str | None = _NOT_SEEN
        self.generation = 0
        self.draining = False
        self.held_back = False
        self.leaving = False
        self.polling: asyncio.Task[None] | None = None
        self.failures = 0
        self.polls = 0
        self._changed = changed
        self._snapshot: EndpointSnapshot | None = None
        self.in_flight = InFlightCounter()

    @property
    def healthy(self) -> bool:
        return self.reason is None

    def resemble(self, before: "_Endpoint") -> None:
        """The same engine, asked in another way from now on."""
        self.dialect, self.facts, self.load, self.reason = before.dialect, before.facts, before.load, before.reason
        self.generation, self.in_flight = before.generation, before.in_flight
        self.leaving = before.leaving

    def end_polls(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
            self.polling = None

    def touch(self) -> None:
        self._snapshot = None
        self._changed()

    def goes_down(self, reason: str) -> None:
        if self.healthy or self.reason == _NOT_SEEN:
            log.warning("endpoint down", extra={"fields": {"endpoint": self.config.id, "why": reason}})
        if reason != self.reason:
            self.reason = reason
            self.touch()

    def comes_up(self, dialect: Dialect, facts: EndpointFacts, load: LoadSample | None) -> None:
        if facts.reports_cached_tokens is None and self.facts is not None and self.healthy:
            facts = replace(facts, reports_cached_tokens=self.facts.reports_cached_tokens)
        self.dialect, self.facts = dialect, facts
        self.load = load or self.load
        if not self.healthy:
            log.info("endpoint up", extra={"fields": {"endpoint": self.config.id, "engine": facts.engine}})
        self.reason = None
        self.failures = 0
        self.polls += 1
        self.touch()

    def snapshot(self) -> EndpointSnapshot:
        if self._snapshot is None:
            self._snapshot = EndpointSnapshot(
                id=self.config.id,
                healthy=self.healthy,
                generation=self.generation,
                unhealthy_reason=self.reason,
                draining=self.draining or self.held_back or self.leaving,
                leaving=self.leaving,
                facts=self.facts,
                load=self.load,
            )
        return self._snapshot


def _generation(at_least: int, load: LoadSample | None) -> int:
    started_at_s = None if load is None else load.started_at_s
    return at_least if started_at_s is None else max(at_least, int(started_at_s))
