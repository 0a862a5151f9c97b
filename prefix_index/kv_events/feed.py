"""The feed of one cache: from its engine's socket into the index, for as long as the gateway knows the engine.

    connected ─> lease ─> replay ─> index rewritten ─> messages, as they come ──┐
        ^          ^         ^                                                  │
        │          │         └── a gap, another process, another holder's name ─┤
        │          └──────────── the lease is lost ─────────────────────────────┤
        └─────────────────────── the connection is lost ────────────────────────┘

What a feed promises: once it has nothing left to read, the index claims for the holder no more than the engine holds,
of all that was learnt by events. How far *everything* the engine holds is known is its state (`FeedState`).

The first time, and after another replica was the consumer, a feed that cannot learn all (no replay, or one that does
not reach back) leaves in the index what is there: it came from answers and from an earlier feed, and answers put it
right. Where events are known to be lost it clears the holder, unless a replay fills the gap.

A reader who connects never hears who it did not hear: states and their reasons come from what can be seen, the
connection, the topics that arrive, and work that the engine is known to have done (`worked`).
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum

from prefix_index.errors import EventsUnavailable
from prefix_index.kv_events.catching_up import Rebuilt, catch_up, decoded, rebuild
from prefix_index.kv_events.feed_types import EventSink, FeedCounters, FeedOptions, FeedState
from prefix_index.kv_events.follower import Follower
from prefix_index.kv_events.lease import Lease, Leases
from prefix_index.kv_events.mirror import Mirror
from prefix_index.kv_events.replay import replayed
from prefix_index.kv_events.sequence import Arrival
from prefix_index.kv_events.sources import EventSource
from prefix_index.kv_events.subscriber import EventSockets, Inbox
from prefix_index.kv_events.types import Event, Message
from prefix_index.kv_events.watch import Watch

log = logging.getLogger("prefix_index")

_LOOK_ROUND_S = 1.0
_MESSAGES_A_TURN = 64
_TRIES = 2


@dataclass(frozen=True, slots=True)
class FeedParts:
    """What all feeds of a process share. `wall` is the time of day that engines stamp their batches with."""

    sockets: EventSockets
    leases: Leases
    sink: EventSink
    options: FeedOptions = field(default_factory=FeedOptions)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


class _Why(StrEnum):
    BEGIN = "it begins"
    GAP = "messages were lost"
    RESTART = "another process speaks"
    RECONNECT = "the connection was lost"
    RENAME = "the holder has another name"


class Feed:
    """Follows the publisher of `source` and writes what `holder` has. `run` must be under way.

    `name` is that of the lease: the same in all replicas, whatever the holder's generation. The mirror is the feed's
    own from now on.
    """

    def __init__(self, source: EventSource, *, name: str, holder: str, mirror: Mirror, parts: FeedParts) -> None:
        self.source = source
        self.name = name
        self._parts = parts
        self._options = parts.options
        self._wake = asyncio.Event()
        self._lease: Lease = parts.leases.lease(name, self._wake.set)
        self._follower = Follower(holder, mirror, parts.sink, parts.options, self._may_write)
        self._inbox: Inbox | None = None
        self._watch: Watch | None = None
        self._has_begun = False
        self._is_resting = False
        self._term = 0
        self._joined = 0
        self._has_begun_anew = False
        """Since the holder got its name, at a sign of another process that was of this publisher's alone."""
        self._renamed: str | None = None
        self._retry_at_s = float("inf")
        self._retry_after_s = parts.options.retry_replay_s
        self._logged: FeedState | None = None

    @property
    def holder(self) -> str:
        """Whose blocks these are."""
        return self._renamed or self._follower.holder

    @property
    def counters(self) -> FeedCounters:
        """What happened so far."""
        return self._follower.counters

    @property
    def mirror(self) -> Mirror:
        """What the cache holds, to be read alone."""
        return self._follower.mirror

    @property
    def expected_sequence(self) -> int:
        """The number of the message that comes next."""
        return self._follower.tracker.expected

    @property
    def is_idle(self) -> bool:
        """Whether all that has arrived is in the index."""
        return self._is_resting and not self._wake.is_set()

    @property
    def dropped_messages(self) -> int:
        """Messages that found no room while we were busy, or were none."""
        return 0 if self._inbox is None else self._inbox.dropped

    @property
    def state(self) -> FeedState:
        """How it stands now."""
        watch = self._watch
        if watch is None or not watch.is_connected:
            return FeedState.AWAY if watch is not None and watch.is_away else FeedState.CONNECTING
        if watch.is_silent:
            return FeedState.SILENT
        if not self._lease.is_held:
            return FeedState.NOT_CONSUMER
        if not self._has_begun:
            return FeedState.CONNECTING
        is_whole = self._follower.is_complete and self._follower.is_told
        return FeedState.IN_STEP if is_whole else FeedState.PARTIAL

    @property
    def why(self) -> str | None:
        """What the state may come from and what would help; None where all is well or it is too early to say."""
        if self._watch is None:
            return None
        match self.state:
            case FeedState.AWAY:
                return self._watch.why_away()
            case FeedState.SILENT:
                return self._watch.why_silent()
            case FeedState.PARTIAL:
                return self._watch.why_partial()
        return None

    def worked(self, computed_tokens: int, took_s: float) -> None:
        """The engine has computed so many tokens of a prompt for an answer, for a request sent `took_s` ago.

        To be called after each answer whose usage says so: what an engine computes it stores, and publishes.
        """
        if self._watch is not None:
            self._watch.worked(computed_tokens, took_s)

    def resync(self, holder: str | None = None) -> None:
        """The engine was replaced, or its holder has another name: learn anew what it holds, and write it there."""
        self._renamed = holder or self.holder
        self._wake.set()

    async def run(self) -> None:
        """Follow, until cancelled; then the lease is given back.

        Raises EventSourceInvalid where another feed takes the same messages.
        """
        try:
            async with self._parts.sockets.subscribed(self.source, self._wake.set) as self._inbox:
                self._watch = watch = Watch(self.source, self._inbox, self._options)
                while True:
                    self._wake.clear()
                    self._ask_for_lease(watch)
                    await self._turn(self._inbox)
                    self._say_state()
                    if not len(self._inbox) or not self._lease.is_held:
                        await self._rest(watch)
        finally:
            self._inbox = self._watch = None
            self._parts.leases.give_back(self._lease)

    async def _turn(self, inbox: Inbox) -> None:
        """Whatever is to be done now."""
        self._follower.start_turn()
        if self._term != self._lease.term:
            self._term, self._has_begun, self._retry_at_s = self._lease.term, False, float("inf")
        if not self._lease.is_held:
            inbox.clear()
            self._has_begun, self._retry_at_s = False, float("inf")
            return
        why = self._reason_to_resync(inbox)
        if why is not None:
            await self._resync(why)
        elif self._parts.clock() >= self._retry_at_s:
            await self._retry()
        await self._work_off(inbox)
        await self._follower.make_good()
        await self._follower.breathe()

    async def _rest(self, watch: Watch) -> None:
        """Wait for news, and for what comes without any."""
        now_s = self._parts.clock()
        until_s = self._retry_at_s
        if self._lease.is_held:
            until_s = min(until_s, self._lease.until_s, watch.away_at_s)
        self._is_resting = True
        with suppress(TimeoutError):
            async with asyncio.timeout(min(_LOOK_ROUND_S, max(0.0, until_s - now_s))):
                await self._wake.wait()
        self._is_resting = False

    def _may_write(self) -> bool:
        """Whether the lease is still the one that this was begun with."""
        return self._lease.is_held and self._lease.term == self._term

    def _ask_for_lease(self, watch: Watch) -> None:
        """Who hears the engine wants to be its consumer; who does not leaves it to the others."""
        if watch.is_connected:
            self._parts.leases.want(self._lease)
        elif watch.is_away:
            self._parts.leases.give_back(self._lease)

    def _reason_to_resync(self, inbox: Inbox) -> _Why | None:
        joined, self._joined = self._joined, inbox.connection.joined
        if not self._has_begun:
            # Without a publisher there is nobody to ask for a replay; the lease is still held from before.
            return _Why.BEGIN if inbox.connection.publishers else None
        if self._renamed is not None:
            # Somebody who has come just now, or is gone, is not the one that is known.
            if joined != self._joined or not inbox.connection.publishers:
                self._has_begun_anew = False
            return _Why.RENAME
        if joined == self._joined:
            return None
        # Of several publishers at one URL nobody knows which one has come back. A replay tells, and costs little;
        # without it, numbers must do, and whoever watches the engine itself.
        if self.source.replay_url is None and inbox.connection.inboxes > 1:
            return None
        return _Why.RECONNECT

    async def _work_off(self, inbox: Inbox) -> None:
        """Take what has arrived, a turn's worth, and tell its sum."""
        follower = self._follower
        events: list[Event] = []
        for _ in range(_MESSAGES_A_TURN):
            message = inbox.take() if self._has_begun else None
            if message is None:
                break
            arrival = follower.admit(message.sequence)
            if arrival in {Arrival.GAP, Arrival.RESTARTED}:
                await follower.apply(events)
                events = []
                arrival = await self._bridged(message, arrival)
            if arrival is Arrival.IN_ORDER:
                batch = await decoded(follower, message, self._parts.wall())
                if batch is None:
                    follower.lose()
                    events = []
                else:
                    events += batch.events
            if follower.is_turn_over():
                break
        await follower.apply(events)

    async def _bridged(self, message: Message, arrival: Arrival) -> Arrival:
        """Bring the follower to where the message can be taken, or is known to be in already."""
        for _ in range(_TRIES):
            is_gap = arrival is Arrival.GAP
            self.counters.gaps += is_gap
            self.counters.restarts += not is_gap
            await self._resync(_Why.GAP if is_gap else _Why.RESTART)
            arrival = self._follower.admit(message.sequence)
            if arrival in {Arrival.IN_ORDER, Arrival.DUPLICATE}:
                return arrival
        self._follower.lose()
        self._follower.tracker.jump(message.sequence)
        return Arrival.IN_ORDER

    async def _resync(self, why: _Why) -> None:
        """Learn what was missed, or everything anew, and bring the index in step with it."""
        follower = self._follower
        self.counters.resyncs += 1
        log.info("KV events of %s: resync, %s", self.name, why)
        self._retry_at_s = float("inf")
        is_renamed = self._rename()
        goes_on = await self._learnt(why, tell=not is_renamed)
        if not goes_on or why not in {_Why.GAP, _Why.RECONNECT}:
            is_stale = why in {_Why.RESTART, _Why.RECONNECT} or (why is _Why.RENAME and not is_renamed)
            follower.clear_index(even_if_untold=is_stale or follower.is_complete)
            await follower.retell()
        self._has_begun = True

    def _rename(self) -> bool:
        """Whether the holder has another name now; what was written under the old one is taken back."""
        holder, self._renamed = self._renamed, None
        if holder is None or holder == self._follower.holder:
            return False
        self._follower.rename(holder)
        return True

    async def _learnt(self, why: _Why, *, tell: bool) -> bool:
        """Whether the follower goes on from where it was; it has begun anew where not."""
        follower, has_begun_anew = self._follower, self._has_begun_anew
        self._has_begun_anew = why in {_Why.RECONNECT, _Why.RESTART} or (why is _Why.GAP and has_begun_anew)
        if self.source.replay_url is None:
            # Another name for a process that we saw coming: what is known of it stays known.
            if why is _Why.RENAME and has_begun_anew:
                return True
            follower.begin(None)
            return False
        with suppress(EventsUnavailable):
            if await catch_up(follower, self._replay, self._parts.wall, tell=tell):
                return True
            if await rebuild(follower, self._replay, self._parts.wall) is not Rebuilt.NOTHING:
                self._retry_after_s = self._options.retry_replay_s
                return False
        follower.begin(None)
        self._retry_later()
        return False

    async def _retry(self) -> None:
        """Ask again for what nobody answered to. What was learnt since then stays, unless all is to be had."""
        self._retry_at_s = float("inf")
        reached = await rebuild(self._follower, self._replay, self._parts.wall, only_whole=True)
        if reached is Rebuilt.WHOLE:
            self.counters.resyncs += 1
            self._follower.clear_index(even_if_untold=True)
            await self._follower.retell()
        elif reached is Rebuilt.NOTHING:
            self._retry_later()

    def _retry_later(self) -> None:
        self._retry_at_s = self._parts.clock() + self._retry_after_s
        self._retry_after_s = min(2 * self._retry_after_s, self._options.retry_replay_max_s)

    async def _replay(self, first: int) -> AsyncGenerator[Message, None]:
        """Ask the publisher; see `replayed`."""
        assert self.source.replay_url is not None
        answers = replayed(
            await self._parts.sockets.context(),
            self.source.replay_url,
            first,
            patience_s=self._options.replay_patience_s,
            within_s=self._options.replay_within_s,
        )
        async with aclosing(answers):
            async for message in answers:
                yield message

    def _say_state(self) -> None:
        """One line for each change."""
        state = self.state
        if state is self._logged:
            return
        level = logging.WARNING if state in {FeedState.AWAY, FeedState.SILENT} else logging.INFO
        log.log(level, "KV events of %s: %s%s", self.name, state, f", {self.why}" if self.why else "")
        self._logged = state
