"""The endpoints of the fleet: who lives, in which generation, how loaded.

                        a poll fails
      ┌────┐ ──────────────────────────────────> ┌──────┐
      │ up │                                      │ down │ <── at start, until first seen
      └────┘ <────────────────────────────────── └──────┘
            a poll succeeds (facts detected anew)

      what calls find wrong (`breaker.py`), what its metrics page does (`stalls.py`), and what others than we find
      (`set_aside`) stands beside that: no poll makes it good, and no flap makes it forgotten

Invariants:
- `snapshot` does no I/O and no waiting: each endpoint's snapshot is kept and rebuilt only after a change.
- Each endpoint is polled by a loop of its own under its own deadline: a frozen one delays nobody.
- The generation only grows, and names the engine's process: it is the engine's start time in Unix seconds where its
  metrics tell it, so that replicas agree on it and it outlives the gateway; else a counter.
- Work in flight survives flaps and restarts: it belongs to the requests, not to the health.
- An endpoint that leaves takes no new requests and is asked nothing, but stays known, with its generation, until it is
  purged: one that comes back in time, and is the process that it was, is the holder that it was.
- A client's error is not an endpoint's: only failures that blame the endpoint count, and a whole answer ends the count.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import httpx

from backends.breaker import BreakerRules
from backends.errors import ProbeFailed, UnknownEndpoint, UpstreamError, fault_kind
from backends.health import asleep, http_client, replaced, restarted
from backends.member import ASLEEP, LEFT, NOT_SEEN, NOT_SEEN_AGAIN, Member
from backends.reservations import Reservation
from backends.types import EndpointConfig, EndpointId, EndpointSnapshot, EndpointState, InFlight, LoadSample

Clock = Callable[[], float]
HttpFactory = Callable[[EndpointConfig], httpx.AsyncClient]
GenerationListener = Callable[[EndpointId, int], None]

STOPPED_S = 0.5
"""A deadline that we notice so much too late was missed by us: this process, or its machine, stood still, and what the
endpoint answered meanwhile was not looked at."""


@dataclass(frozen=True, slots=True)
class PollSettings:
    """`interval_s` between polls of one endpoint; `deadline_s` for one poll as a whole; every `polls_to_detect` polls
    the facts are read anew, since adapters come and go; `breaker`: what becomes of calls that fail."""

    interval_s: float = 2.0
    deadline_s: float = 5.0
    polls_to_detect: int = 30
    breaker: BreakerRules = field(default_factory=BreakerRules)


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
        self._endpoints: dict[EndpointId, Member] = {config.id: self._member(config) for config in configs}
        self.restrained: dict[str, Member] = {}
        """Endpoints that may be sent less than all that could go there."""
        self.last_token_s: Callable[[EndpointId], float] = lambda _: -math.inf
        """When an answer of an endpoint last went on, as far as whoever relays them knows."""
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
        self._endpoints[config.id] = endpoint = self._member(config)
        self._changed(endpoint)
        self._begin_polls(endpoint)

    def leave(self, endpoint_id: EndpointId) -> None:
        """An endpoint takes no new requests and is not asked any more, so it counts as down; those under way go on."""
        endpoint = self._endpoint(endpoint_id)
        endpoint.leaving, endpoint.reason = True, LEFT
        endpoint.end_polls()
        endpoint.touch()

    def come_back(self, endpoint_id: EndpointId) -> None:
        """One that was leaving stays; it is down until it was asked, which also says whether it was restarted."""
        endpoint = self._endpoint(endpoint_id)
        endpoint.leaving = False
        endpoint.reason = NOT_SEEN_AGAIN if endpoint.facts is not None else NOT_SEEN
        endpoint.touch()
        self._begin_polls(endpoint)

    async def move(self, config: EndpointConfig) -> EndpointConfig:
        """Under an id that is known there is another endpoint now: at another address, or with another key.

        At another address nothing that was known holds; at the same one only the ways to ask it are new. What was sent
        to the one before goes on. Returns how that was configured.
        """
        before = self._endpoint(config.id)
        before.end_polls()
        after = self._member(config)
        after.draining, after.held_back = before.draining, before.held_back
        self._endpoints[config.id] = after
        if before.config.url == config.url:
            after.resemble(before)
        else:
            self._raise_generation(after, 0)
        self._changed(after)
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
        self._changed(endpoint)
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
        endpoint.answered()
        facts = endpoint.facts
        if reports_cached_tokens and facts is not None and facts.reports_cached_tokens is None:
            endpoint.facts = facts.seen_to_report()
            endpoint.touch()

    def report_failure(self, endpoint_id: EndpointId, error: UpstreamError, began_s: float | None = None) -> None:
        """A call, sent at `began_s` by the registry's clock, failed; what does not blame the endpoint is none of it."""
        if error.blames_endpoint:
            self.report_fault(endpoint_id, fault_kind(error), began_s)

    def report_fault(self, endpoint_id: EndpointId, kind: str, began_s: float | None = None) -> None:
        """The endpoint failed a request by a fault of its own; enough in a row, and it is sent none for a while."""
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is not None:
            endpoint.fault(kind, began_s)

    def report_first_byte(self, endpoint_id: EndpointId) -> None:
        """The first bytes of an answer are here that is no failure."""
        endpoint = self._endpoints.get(endpoint_id)
        if endpoint is not None:
            endpoint.begins_to_answer()

    def probe(self, endpoint_id: EndpointId) -> Callable[[], None] | None:
        """A request is being sent. Where that is a probe: what gives its place back, to be called once."""
        breaker = self._endpoint(endpoint_id).breaker
        return breaker.probed if breaker.probe() else None

    def set_aside(self, endpoint_id: EndpointId, state: EndpointState, why: str) -> None:
        """An endpoint answers, and is to be left out all the same: `STALLED` or `EJECTED`."""
        self._endpoint(endpoint_id).set_aside(state, why)

    def take_back(self, endpoint_id: EndpointId, state: EndpointState, suspicion: str | None = None) -> bool:
        """It is not left out for that any more; whether it was. With a `suspicion` it first gets probes only."""
        endpoint = self._endpoint(endpoint_id)
        if not endpoint.take_back(state):
            return False
        if suspicion is not None:
            endpoint.suspect(suspicion)
        return True

    def member(self, endpoint_id: EndpointId) -> Member | None:
        """What is known of an endpoint beyond its snapshot, to be read; None where there is none of that id."""
        return self._endpoints.get(endpoint_id)

    async def begin(self, deadline_s: float) -> None:
        """`detect_all`; and once more, with the patience of a poll, where nobody is up by then: a gateway that knows no
        endpoint can only refuse. At once where all of them refuse."""
        await self.detect_all(deadline_s)
        if self._endpoints and not any(endpoint.answers for endpoint in self._endpoints.values()):
            await self.detect_all(self._settings.deadline_s)

    async def detect_all(self, deadline_s: float) -> None:
        """Poll every endpoint once, at the same time, for at most `deadline_s`; who is away stays down, no error."""
        try:
            async with asyncio.timeout(deadline_s), asyncio.TaskGroup() as group:
                for endpoint_id in tuple(self._endpoints):
                    group.create_task(self.poll(endpoint_id))
        except TimeoutError:
            for endpoint in self._endpoints.values():
                if endpoint.reason == NOT_SEEN:
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

    async def _poll(self, endpoint: Member, *, again: bool = True) -> None:
        began_s, loop = self._clock(), asyncio.get_running_loop()
        due_s = loop.time() + self._settings.deadline_s
        try:
            async with asyncio.timeout_at(due_s):
                await self._ask(endpoint)
        except TimeoutError:  # a server that is busy with long prompts answers late, though it answers
            if again and loop.time() - due_s > STOPPED_S:
                await self._poll(endpoint, again=False)
            else:
                endpoint.is_late(self._settings.deadline_s, began_s, self.last_token_s(endpoint.config.id))
        except ProbeFailed as failure:
            endpoint.goes_down(failure.reason)
        except Exception as error:  # noqa: BLE001 - whatever it answers may take it down, never the poll of all
            endpoint.goes_down(f"what it says of itself cannot be read ({type(error).__name__})")
        endpoint.look()

    def _begin_polls(self, endpoint: Member) -> None:
        if self._group is not None:
            endpoint.end_polls()
            endpoint.polling = self._group.create_task(self._poll_forever(endpoint))

    async def _poll_forever(self, endpoint: Member) -> None:
        while True:
            await self._poll(endpoint)
            await asyncio.sleep(self._settings.interval_s)

    async def _ask(self, endpoint: Member) -> None:
        was_down = not endpoint.answers or endpoint.seems_gone
        due = endpoint.polls % self._settings.polls_to_detect == 0
        dialect, facts = endpoint.dialect, endpoint.facts
        if dialect is None or facts is None or was_down or due:
            dialect, facts = await endpoint.probe.detect()
        began_s = self._clock()
        load = await endpoint.probe.poll(dialect, began_s)
        if load is not None:
            load = replace(load, took_s=self._clock() - began_s)
        seen_before = endpoint.dialect is not None
        if seen_before and (replaced(endpoint.facts, facts) or restarted(endpoint.load, load, was_down)):
            dialect, facts = await endpoint.probe.detect()
            endpoint.facts = None
            endpoint.comes_up(dialect, facts, load)
            endpoint.is_another()
            self._raise_generation(endpoint, _generation(endpoint.generation + 1, load))
        elif asleep(dialect, load) and not endpoint.answers:
            endpoint.load = load
        else:
            endpoint.comes_up(dialect, facts, load)
            if not seen_before and _generation(0, load) > endpoint.generation:
                self._raise_generation(endpoint, _generation(0, load))
        if asleep(dialect, load):
            endpoint.goes_down(ASLEEP)

    def _raise_generation(self, endpoint: Member, generation: int) -> None:
        if self._endpoints.get(endpoint.config.id) is not endpoint:
            return  # it was purged while it was asked, or is at another address
        endpoint.generation = generation
        endpoint.touch()
        for listener in self._listeners:
            listener(endpoint.config.id, generation)

    def _endpoint(self, endpoint_id: EndpointId) -> Member:
        try:
            return self._endpoints[endpoint_id]
        except KeyError:
            raise UnknownEndpoint(endpoint_id) from None

    def _member(self, config: EndpointConfig) -> Member:
        return Member(config, self._http(config), self._settings.breaker, self._clock, self._changed)

    def _changed(self, endpoint: Member) -> None:
        self._snapshot = None
        endpoint_id = endpoint.config.id
        there = self._endpoints.get(endpoint_id)  # not the one that has moved away
        if there is not None and there.is_restrained:
            self.restrained[endpoint_id] = there
        else:
            self.restrained.pop(endpoint_id, None)


def _generation(at_least: int, load: LoadSample | None) -> int:
    started_at_s = None if load is None else load.started_at_s
    return at_least if started_at_s is None else max(at_least, int(started_at_s))
