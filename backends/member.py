"""One endpoint of the fleet, as the registry keeps it: all that is known of it, and who is told when that changes."""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import httpx

from backends.breaker import Breaker, BreakerRules, BreakerState
from backends.dialects import Dialect
from backends.errors import DialReason, FaultKind
from backends.health import Probe
from backends.reservations import InFlightCounter
from backends.stalls import Pulse
from backends.types import Condition, EndpointConfig, EndpointFacts, EndpointSnapshot, EndpointState, LoadSample

log = logging.getLogger("backends")

LEFT: Final = "no source lists it any more"
NOT_SEEN: Final = "not seen yet"
NOT_SEEN_AGAIN: Final = "not seen since it came back"
ASLEEP: Final = "it sleeps, until somebody wakes it"
GONE: Final = frozenset({DialReason.REFUSED, DialReason.UNREACHABLE, DialReason.DNS, DialReason.RESET})
"""Faults that an endpoint shows while its process is not there."""
SILENT: Final = frozenset({FaultKind.NO_FIRST_BYTE, FaultKind.SILENT, FaultKind.LEFT_UNANSWERED})
"""Faults of one that takes requests and answers none: who is sent there waits for nothing."""


class Member:
    """What is known of one endpoint: how it is asked, what it said, what polls and calls found, who was told.

    `clock` is monotonic, in seconds. `changed` is called with it whenever its snapshot may be another one: its methods
    see to that, and whoever sets an attribute calls `touch`.
    """

    def __init__(
        self,
        config: EndpointConfig,
        http: httpx.AsyncClient,
        rules: BreakerRules,
        clock: Callable[[], float],
        changed: Callable[["Member"], None],
    ) -> None:
        self.config = config
        self.http = http
        self.probe = Probe(config, http)
        self.dialect: Dialect | None = None
        self.facts: EndpointFacts | None = None
        self.load: LoadSample | None = None
        self.reason: str | None = NOT_SEEN
        """Why polls find it down."""
        self.generation = 0
        self.draining = False
        self.held_back = False
        self.leaving = False
        self.polling: asyncio.Task[None] | None = None
        self.polls = 0
        self._clock = clock
        self._changed = changed
        self._snapshot: EndpointSnapshot | None = None
        self._since_s = clock()
        self._heard_s = -math.inf
        self.in_flight = InFlightCounter()
        self.breaker = Breaker(rules, clock())
        self.pulse = Pulse()
        self.answered_requests = 0
        self.faults: Counter[str] = Counter()
        """By kind, ever."""
        self.asides: dict[EndpointState, Condition] = {}
        """Why it is left out though it answers: stalled, ejected."""

    @property
    def answers(self) -> bool:
        """Whether it answered the last poll."""
        return self.reason is None

    @property
    def down_since_s(self) -> float | None:
        """Since when its polls get no answer, by the registry's clock; None where they do."""
        return None if self.answers else self._since_s

    @property
    def healthy(self) -> bool:
        """Whether it may be sent anything."""
        return self.reason is None and self.breaker.state is not BreakerState.OPEN

    @property
    def is_restrained(self) -> bool:
        """Whether it may be sent less than all that could go there."""
        return bool(self.asides) or self.breaker.state is not BreakerState.SHUT

    @property
    def seems_gone(self) -> bool:
        """Whether calls have found nobody there, and no poll has since found the opposite."""
        return self.breaker.is_open_anew and self.breaker.last_fault in GONE

    @property
    def is_last_resort(self) -> bool:
        """Whether it may be sent what nobody else can take, though calls failed. An engine that is merely overloaded
        fails calls too, and then none but us would make it unavailable; and a probe may take minutes to be answered."""
        if not self.answers or self.breaker.state is BreakerState.SHUT:
            return False
        if self.breaker.state is BreakerState.HALF_OPEN:
            return True
        return not self.seems_gone and self.breaker.last_fault not in SILENT

    def resemble(self, before: "Member") -> None:
        """The same engine, asked in another way from now on."""
        self.dialect, self.facts, self.load, self.reason = before.dialect, before.facts, before.load, before.reason
        self.generation, self.in_flight = before.generation, before.in_flight
        self.breaker, self.pulse, self.asides = before.breaker, before.pulse, before.asides
        self.answered_requests, self.faults = before.answered_requests, before.faults
        self.leaving, self._since_s = before.leaving, before._since_s

    def is_another(self) -> None:
        """The engine is another process now: what was held against it was its predecessor's."""
        self.breaker.is_another(self._clock())
        self.pulse = Pulse()
        self.asides.clear()

    def end_polls(self) -> None:
        """Ask it nothing any more."""
        if self.polling is not None:
            self.polling.cancel()
            self.polling = None

    def touch(self) -> None:
        """Something has changed."""
        self._snapshot = None
        self._changed(self)

    def fault(self, kind: str, began_s: float | None) -> None:
        """It failed a request, sent at `began_s`, by a fault of its own."""
        now_s = self._clock()
        self.faults[kind] += 1
        self._note(self.breaker.fault(kind, now_s if began_s is None else began_s, now_s))

    def begins_to_answer(self) -> None:
        """The first bytes of an answer are here."""
        self._heard_s = self._clock()
        self._note(self.breaker.begins_to_answer(self._clock()))

    def answered(self) -> None:
        """It answered a request to its end."""
        self._heard_s = self._clock()
        self.answered_requests += 1
        self._note(self.breaker.answered(self._clock()))

    def is_late(self, deadline_s: float, began_s: float, token_s: float) -> None:
        """A poll that began then was not answered in time: it is down, unless calls have got something since, of an
        answer last at `token_s`. One that was down for that alone is up then: it has more to do than it can answer."""
        reason = f"no answer within {deadline_s:g} s"
        if max(self._heard_s, token_s) < began_s or self.reason not in (None, reason):
            self.goes_down(reason)
        elif self.reason is not None:
            log.info("endpoint up", extra={"fields": {"endpoint": self.config.id, "why": "calls are answered"}})
            self.reason, self._since_s = None, self._clock()
            self.touch()

    def look(self) -> None:
        """A poll is over: see whether probes may be sent."""
        now_s = self._clock()
        is_there = self.answers and self.seems_gone
        self._note(self.breaker.half_opens(now_s) if is_there else self.breaker.look(now_s))

    def suspect(self, why: str) -> None:
        """Send it probes only, as far as others can take the rest."""
        self._note(self.breaker.suspect(why, self._clock()))

    def set_aside(self, state: EndpointState, why: str) -> None:
        """Leave it out where others can take its requests."""
        if state not in self.asides:
            log.warning("endpoint set aside", extra={"fields": {"endpoint": self.config.id, "as": state, "why": why}})
            self.asides[state] = Condition(state, why, self._clock())
            self.touch()

    def take_back(self, state: EndpointState) -> bool:
        """It is not left out for that any more; whether it was."""
        if self.asides.pop(state, None) is None:
            return False
        log.info("endpoint taken back", extra={"fields": {"endpoint": self.config.id, "was": state}})
        self.touch()
        return True

    def goes_down(self, reason: str) -> None:
        """A poll failed, or nobody lists it any more."""
        if self.answers or self.reason == NOT_SEEN:
            log.warning("endpoint down", extra={"fields": {"endpoint": self.config.id, "why": reason}})
        if reason != self.reason:
            if self.answers:
                self._since_s = self._clock()
            self.reason = reason
            self.touch()

    def comes_up(self, dialect: Dialect, facts: EndpointFacts, load: LoadSample | None) -> None:
        """A poll succeeded. What calls have found wrong is not made good by that."""
        before = self.facts if self.answers else None
        if facts.reports_cached_tokens is None and before is not None and before.reports_cached_tokens:
            facts = facts.seen_to_report()
        self.dialect, self.facts = dialect, facts
        self.load = load or self.load
        self.pulse.page(load)
        if not self.answers:
            log.info("endpoint up", extra={"fields": {"endpoint": self.config.id, "engine": facts.engine}})
            self._since_s = self._clock()
        self.reason = None
        self.polls += 1
        self.touch()

    def snapshot(self) -> EndpointSnapshot:
        """All of it, as others may see it; O(1), kept until it changes."""
        if self._snapshot is None:
            condition = self._condition()
            self._snapshot = EndpointSnapshot(
                id=self.config.id,
                healthy=self.healthy,
                generation=self.generation,
                unhealthy_reason=None if self.healthy else condition.why,
                draining=self.draining or self.held_back or self.leaving,
                leaving=self.leaving,
                last_resort=self.is_last_resort,
                facts=self.facts,
                load=self.load,
                condition=condition,
            )
        return self._snapshot

    def _condition(self) -> Condition:
        """What weighs most."""
        breaker, opened = self.breaker, self.breaker.opened
        if self.reason is not None:
            return Condition(EndpointState.DOWN, self.reason, self._since_s, opened)
        if breaker.state is BreakerState.OPEN:
            return Condition(EndpointState.OPEN, breaker.why, breaker.since_s, opened)
        for state in (EndpointState.STALLED, EndpointState.EJECTED):
            if state in self.asides:
                return replace(self.asides[state], opened=opened)
        if breaker.state is BreakerState.HALF_OPEN:
            return Condition(EndpointState.HALF_OPEN, breaker.why, breaker.since_s, opened)
        return Condition(EndpointState.UP, None, max(self._since_s, breaker.since_s), opened)

    def _note(self, has_changed: bool) -> None:
        if has_changed:
            breaker = self.breaker
            level = logging.WARNING if breaker.state is BreakerState.OPEN else logging.INFO
            fields = {"endpoint": self.config.id, "state": breaker.state, "why": breaker.why}
            log.log(level, "endpoint breaker", extra={"fields": fields})
            self.touch()
