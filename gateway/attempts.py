"""Attempts under way, and the silence of their endpoints: who is left before its first byte, and who is suspected.

    sent ───────────── silence ────────────────> first byte ── tokens ──> end
           │                          │
           │                          └── longer than its patience, and nobody at this endpoint has got anything for as
           │                              long: the attempt ends here and goes elsewhere (never where nobody else could)
           └── and sooner: new requests go elsewhere (`stalled`)

*Patience* is learned: `first_byte_factor` times the seconds that the fitted speed of the endpoint gives for the queue
before the prompt and for all of the prompt, as if nothing of it were cached; within the configured bounds. An answer
that is no stream has its tokens to give first: their seconds count too. Where the speed is not known yet, nobody is
left before `limits.first_byte_s`, unless the endpoint is down as well: then `first_byte_least_s` are borne.

*Signs of life* of an endpoint are the first bytes of any attempt, tokens of any answer, and counters of its metrics
page that move. So an attempt that only waits in a long queue, or behind another's long prompt, is not given up: silence
is counted from the last of them. The answer to `/health` is none: the process that answers it often is not the one that
computes.

*Clients that leave* before a first byte are no fault of the endpoint's, unless they waited for longer than its patience
(with `left_s` for the lower bound) and nobody there got anything meanwhile: that is how an engine that hangs looks when
all clients are less patient than we are.

A request costs 2 µs. What is due is seen by a look a second: O(endpoints), and O(attempts) where there is silence.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from backends import EndpointId, EndpointState, FaultKind, FirstByteTimeout, Member, PerfModel, Registry
from gateway.health_config import Health
from gateway.health_metrics import HealthMetrics
from gateway.scheduling import Decision

T = TypeVar("T")

LOOK_S: Final = 1.0
"""And where silence is not borne for that long, a quarter of that."""
_DOWN: Final = 3.0
"""By so much sooner an endpoint is left that does not answer polls either, where less than the least is expected."""
STOPPED_S: Final = 2.0
"""A look that is so much too late was kept from looking."""
_UNKNOWN: Final = 4.0
"""So many times as long a page may stand still at an endpoint whose speed is not known."""
_LONGEST_ANSWER_TOKENS: Final = 32_768
"""An answer without a limit that is no stream may be as long before its first byte."""


class Answering(Protocol):
    """What an attempt is for."""

    last_token_s: float | None
    """When its client last got a part of an answer."""


class UnderWay:
    """One request at one endpoint, from its sending to its end. `may_leave`: another endpoint could take it.

    A first byte should take `prefill_s` seconds with the queue before the prompt, None where that is not known, and
    `answer_s` more where all of an answer comes first.
    """

    __slots__ = (
        "_cancelling",
        "_probed",
        "_task",
        "answer_s",
        "answering",
        "began_s",
        "may_leave",
        "place",
        "prefill_s",
        "silent_s",
        "waits",
    )

    def __init__(self, place: "Place", answering: Answering, began_s: float, *, may_leave: bool) -> None:
        self.place = place
        self.answering = answering
        self.began_s = began_s
        self.prefill_s: float | None = None
        self.answer_s = 0.0
        self.may_leave = may_leave
        self.waits = True
        self.silent_s = 0.0
        """How long its endpoint had been silent when it was given up; 0: it was not."""
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._probed: Callable[[], None] | None = None
        place.under_way.add(self)
        place.waiting += 1

    def probes(self, probed: Callable[[], None] | None) -> None:
        """It tries an endpoint that failed; what gives its place back."""
        self._probed = probed

    def has_first_byte(self) -> None:
        """It waits no more."""
        if self.waits:
            self.waits = False
            self.place.waiting -= 1
        if self._probed is not None:
            self._probed()
            self._probed = None

    def end(self) -> None:
        """However it ended; idempotent."""
        if self in self.place.under_way:
            self.place.under_way.discard(self)
            self.has_first_byte()
            self.place.token(self.answering.last_token_s)

    async def unless_silent(self, call: Coroutine[Any, Any, T]) -> T:
        """What a call comes to. Raises `FirstByteTimeout` where the attempt is given up meanwhile.

        Much as `asyncio.timeout` does it, at a tenth of its price: of a thousand requests none may be given up.
        """
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        try:
            return await call
        except asyncio.CancelledError:
            if self._was_given_up():
                raise FirstByteTimeout(self.place.endpoint_id, self.silent_s) from None
            raise
        finally:
            self._task = None

    def give_up(self, silent_s: float) -> None:
        """Take it elsewhere: the task that waits for its call is cancelled, once."""
        self.silent_s = silent_s
        if self._task is not None:
            self.may_leave = False
            self._task.cancel()

    def _was_given_up(self) -> bool:
        """Whether it is for that, and that alone, that its task was cancelled just now; the task may go on then."""
        if self._task is None or not self.silent_s or self.may_leave:
            return False
        return self._task.uncancel() <= self._cancelling


@dataclass(slots=True)
class Place:
    """One endpoint: what is under way there, and what is known of its life. `retry_s`: how long it is left alone before
    it is tried again."""

    endpoint_id: EndpointId
    retry_s: float
    under_way: set[UnderWay] = field(default_factory=set)
    waiting: int = 0
    alive_s: float = -math.inf
    stalled_s: float | None = None
    """Since when others get its requests."""
    since_s: float = -math.inf
    """It was taken back then, or is another engine since: what was before makes it no stalled one."""

    def token(self, at_s: float | None) -> None:
        """An answer went on here."""
        if at_s is not None and at_s > self.alive_s:
            self.alive_s = at_s

    def look_at_answers(self) -> None:
        """O(attempts)."""
        for attempt in self.under_way:
            self.token(attempt.answering.last_token_s)


class Attempts:
    """Of one process. `speed_of` gives the fitted speed of an endpoint, or of a rank of it, None where it is not known.

    `clock` is the registry's.
    """

    def __init__(
        self,
        registry: Registry,
        speed_of: Callable[[str], PerfModel | None],
        health: Health,
        longest_s: float,
        metrics: HealthMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._speed_of = speed_of
        self._health = health
        self._longest_s = longest_s
        self._metrics = metrics
        self._clock = clock
        self._places: dict[str, Place] = {}
        self.look_s = min(LOOK_S, health.first_byte_least_s / 4, (health.stall_s or health.first_byte_least_s) / 4)
        """How often to look."""
        self._looked_s: float | None = None

    def begins(
        self, decision: Decision, answering: Answering, answer_tokens: int | None, *, streams: bool, may_leave: bool
    ) -> UnderWay:
        """A request is about to be sent; to be called in the very step in which it was decided. `answer_tokens`: the
        longest that its answer may be, None: any. `may_leave`: another endpoint could take it."""
        endpoint_id = EndpointId(decision.endpoint_id)
        place = self._places.get(endpoint_id)
        if place is None:
            place = self._places[endpoint_id] = Place(endpoint_id, self._health.open_s)
        attempt = UnderWay(place, answering, self._clock(), may_leave=may_leave)
        speed = self._speed_of(decision.chosen.place)
        if speed is not None and decision.split is None and self._health.first_byte_factor:
            tokens = decision.prompt_tokens
            ahead_s = speed.wait_s(decision.chosen.queued_tokens) + decision.chosen.adapter_load_s
            attempt.prefill_s = ahead_s + speed.prefill_s(tokens, tokens)
            if not streams:
                attempt.answer_s = 2 * speed.decode_s(answer_tokens or _LONGEST_ANSWER_TOKENS)
        attempt.probes(self._registry.probe(endpoint_id))
        return attempt

    def answers(self, attempt: UnderWay | None, status: int, doubted: Sequence[tuple[str, float]] = ()) -> None:
        """The first bytes of an answer of this status are here. Those who failed at the same request
        (`doubted`, since it might have been the request's fault) were at fault if this one did better."""
        if attempt is None:
            return
        attempt.has_first_byte()
        if status < 400:
            attempt.place.token(self._clock())
            for endpoint_id, began_s in doubted:
                self._registry.report_fault(EndpointId(endpoint_id), FaultKind.STATUS_5XX, began_s)
        if status < 500:
            self._registry.report_first_byte(attempt.place.endpoint_id)

    def left(self, attempt: UnderWay | None) -> None:
        """Its client has gone."""
        if attempt is None or not attempt.waits:
            return
        place, now_s = attempt.place, self._clock()
        if self._stood_still(now_s) or self._patience_s(attempt, self._health.left_s) > now_s - attempt.began_s:
            return
        member = self._registry.member(place.endpoint_id)
        if member is None:
            return
        place.token(member.pulse.moved_s)
        place.look_at_answers()
        if max(place.alive_s, place.since_s) < attempt.began_s:
            self._registry.report_fault(place.endpoint_id, FaultKind.LEFT_UNANSWERED, attempt.began_s)

    def last_token_s(self, endpoint_id: str) -> float:
        """When an endpoint last gave a first byte or a token, or its page moved. O(attempts)."""
        place = self._places.get(endpoint_id)
        if place is None:
            return -math.inf
        place.look_at_answers()
        return place.alive_s

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._places.pop(endpoint_id, None)

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """The engine is another one now."""
        place = self._places.get(endpoint_id)
        if place is not None:
            place.since_s, place.stalled_s, place.retry_s = self._clock(), None, self._health.open_s

    def look(self) -> None:
        """See who is silent. Once in `look_s`."""
        now_s = self._clock()
        stood_still, self._looked_s = self._stood_still(now_s), now_s
        for place in self._everywhere():
            if stood_still:
                place.token(now_s)
            member = self._registry.member(place.endpoint_id)
            if member is not None:
                self._look_at(place, member, now_s)

    def _stood_still(self, now_s: float) -> bool:
        """Whether it was this process, or its machine, that did nothing of late: what came meanwhile was not read, and
        nobody's silence says anything."""
        return self._looked_s is not None and now_s - self._looked_s > self.look_s + STOPPED_S

    def _everywhere(self) -> list[Place]:
        """The places of all endpoints: a page may stand still where nothing of ours is under way."""
        for endpoint in self._registry.snapshot():
            if endpoint.id not in self._places:
                self._places[endpoint.id] = Place(endpoint.id, self._health.open_s)
        return list(self._places.values())

    def _look_at(self, place: Place, member: Member, now_s: float) -> None:
        pulse = member.pulse
        place.token(pulse.moved_s)
        if place.stalled_s is None and pulse.still_since_s is None and not place.waiting:
            return
        if now_s - place.alive_s < self.look_s and place.stalled_s is None:
            return
        place.look_at_answers()
        least_s = self._health.first_byte_least_s / (1 if member.answers else _DOWN)
        silent = self._silent(place, least_s, now_s, is_down=not member.answers)
        if place.stalled_s is not None:
            self._may_recover(place, now_s)
        elif self._health.stall_s and member.answers:
            why = self._why_stalled(place, silent, pulse.still_since_s, now_s)
            if why is not None:
                place.stalled_s = now_s
                self._registry.set_aside(place.endpoint_id, EndpointState.STALLED, why)
                self._metrics.set_aside(place.endpoint_id, EndpointState.STALLED.value).inc()
        if silent:
            still_s = 0.0 if pulse.still_since_s is None else now_s - max(pulse.still_since_s, place.alive_s)
            is_still = still_s > 0 and still_s >= self._patience_with_page_s(place)
            down_s = 0.0 if member.down_since_s is None else now_s - member.down_since_s
            is_still |= down_s >= self._health.first_byte_least_s
            for attempt, silent_s in silent:
                self._may_give_up(attempt, silent_s, least_s, is_still=is_still)

    def _silent(self, place: Place, least_s: float, now_s: float, *, is_down: bool) -> list[tuple[UnderWay, float]]:
        """Attempts that wait for longer than any may be expected to, and for how long. O(attempts), 0.1 µs each.

        Where nothing is expected, only those at an endpoint that is down."""
        alive_s, factor = place.alive_s, self._health.first_byte_factor
        least_s = min(self._health.stall_s or self._longest_s, least_s)
        return [
            (one, silent_s)
            for one in place.under_way
            if one.waits
            and (is_down or one.prefill_s is not None)
            and (silent_s := now_s - (one.began_s if one.began_s > alive_s else alive_s)) >= least_s
            and silent_s >= min(factor * (one.prefill_s or 0.0), self._longest_s)
        ]

    def _may_recover(self, place: Place, now_s: float) -> None:
        """It moves again, or it has been left alone for long enough to be tried."""
        assert place.stalled_s is not None
        moves = place.alive_s > place.stalled_s
        if not moves and now_s - place.stalled_s < place.retry_s:
            return
        place.retry_s = self._health.open_s if moves else min(2 * place.retry_s, self._health.open_max_s)
        place.stalled_s, place.since_s = None, now_s
        self._registry.take_back(place.endpoint_id, EndpointState.STALLED, None if moves else "was stalled")

    def _why_stalled(
        self, place: Place, silent: list[tuple[UnderWay, float]], still_since_s: float | None, now_s: float
    ) -> str | None:
        """Why new requests are to go elsewhere, if so."""
        since_s, stall_s = now_s - place.since_s, self._health.stall_s
        stuck = [s for one, s in silent if min(s, since_s) >= self._patience_s(one, stall_s)]
        if stuck:
            return f"{len(stuck)} without a first byte, and nobody there got any for {max(stuck):.0f} s"
        if still_since_s is None:
            return None
        still_s = now_s - max(still_since_s, place.alive_s, place.since_s)
        if still_s < self._patience_with_page_s(place):
            return None
        return f"requests wait, and no counter of its metrics page has moved for {still_s:.0f} s"

    def _patience_with_page_s(self, place: Place) -> float:
        """How long a page may stand still: all that waits there of ours may be one prefill."""
        stall_s, speed = self._health.stall_s, self._speed_of(place.endpoint_id)
        if speed is None:
            return _UNKNOWN * stall_s
        waiting = self._registry.load_of(place.endpoint_id).uncached_tokens
        longest_s = max((one.prefill_s or 0.0 for one in place.under_way if one.waits), default=0.0)
        return max(stall_s, self._health.first_byte_factor * max(speed.wait_s(waiting), longest_s))

    def _may_give_up(self, attempt: UnderWay, silent_s: float, least_s: float, *, is_still: bool) -> None:
        if not attempt.may_leave:
            return
        patience_s = self._patience_s(attempt, least_s)
        if is_still:  # it gives no tokens: those of an answer need not be waited for
            patience_s -= attempt.answer_s
        if silent_s >= min(patience_s, self._longest_s):
            attempt.give_up(silent_s)
            self._metrics.given_up(attempt.place.endpoint_id).inc()

    def _patience_s(self, attempt: UnderWay, least_s: float) -> float:
        """How long a silence may be, by what is expected; where nothing is, as long as is configured."""
        if attempt.prefill_s is None:
            return max(least_s, self._health.first_byte_least_s)
        return max(least_s, self._health.first_byte_factor * attempt.prefill_s) + attempt.answer_s
