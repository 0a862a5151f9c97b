"""Limits and budgets as the gateway sees them: ask before, settle after, whatever becomes of Redis.

    admit --> Redis, one call ------------------------------> Granted | Refused
                 | a purse has no counter: read the ledger, begin it, ask again
                 `- away: local  counted here, each replica a part of every limit
                          deny   QuotaUnavailable
                          allow  let in, uncounted
    settle --> owed --(end of the tick, before any later ask)--> Redis; what it does not take is kept and sent again

The ledger is the truth of what was spent: counters begin from it, and those that Redis loses begin from it again.
Holds live `ttl_s` and are renewed from here while their requests run, so those of a replica that died free themselves.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from billing.errors import BillingError
from billing.quotas.counters import QuotaCounters
from billing.quotas.redis_counters import QuotaAway, QuotaFailed, QuotaRedis, why_not
from billing.quotas.types import Ask, Granted, Outcome, Purse, Refused, Unstarted

log = logging.getLogger("billing")

_ROUNDS: Final = 4
"""Asks of one request: the purses of an ask begin one after the other at most."""
_SETTLED_AT_ONCE: Final = 256
_SAID_S: Final = 60.0
"""How often the log says that our function fails."""


class Down(StrEnum):
    """What happens to requests under limits while Redis is away."""

    LOCAL = "local"
    DENY = "deny"
    ALLOW = "allow"


class QuotaUnavailable(BillingError):
    """Limits cannot be checked, and `deny` is the policy for that."""


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """Seconds, but for `most_owed`: settlements that are kept for Redis while it is away."""

    when_down: Down = Down.LOCAL
    ttl_s: float = 60.0
    retry_s: float = 0.5
    beat_s: float = 5.0
    most_owed: int = 65_536


class Quotas:
    """Admits and settles. One per process; `run` has to be under way."""

    def __init__(
        self,
        shared: QuotaRedis | None,
        spent_micro: Callable[[str, Purse], int],
        *,
        replica: str,
        options: QuotaOptions | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """`spent_micro` reads the ledger, in a thread: what a tenant has spent of a purse. `clock_s` is wall time."""
        self._shared = shared
        self._spent_micro = spent_micro
        self._replica = replica
        self._options = options or QuotaOptions()
        self._clock_s = clock_s
        self._counters = QuotaCounters(int(self._options.ttl_s * 1000))
        self._open: dict[str, str] = {}
        self._owed: dict[str, Outcome] = {}
        self._unsent: list[Outcome] = []
        self._beginning: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._asked = asyncio.Event()
        self._failed_s = 0.0
        self._owing, self._paid = asyncio.Event(), asyncio.Event()
        self._paid.set()
        self.is_away = False
        """Whether Redis, where there is one, is not used at the moment."""
        self.stand_in_answers = 0
        """Requests that were decided without Redis, although there is one."""
        self.dropped = 0
        """Settlements that Redis never got, since too many waited; the ledger has them."""

    @property
    def owed(self) -> int:
        """Settlements that Redis has not taken yet."""
        return len(self._owed)

    async def admit(self, ask: Ask) -> Granted | Refused:
        """Hold what a request wants. Raises `QuotaUnavailable`, or `LedgerUnavailable` where a purse cannot begin."""
        self._asked.set()
        if self._shared is None:
            return await self._admit_here(ask)
        if self._unsent:
            self._send()  # what ended before this is not to count against it
        if not self.is_away:
            try:
                return self._noted(ask, await self._admit_shared(self._shared, ask))
            except QuotaAway as failure:
                self._failed(failure)
            except BaseException:  # cancelled, or no ledger: a hold may have been made all the same
                self._owe(_nothing_of(ask))
                raise
        answer = await self._stand_in(ask)
        if not isinstance(answer, Granted):
            self._owe(_nothing_of(ask))
        return answer

    def settle(self, outcome: Outcome) -> None:
        """A request has ended, and the ledger has it: its hold becomes its charge, soon. Makes no I/O itself."""
        self._open.pop(outcome.request_id, None)
        self._counters.settle(outcome, self._now_ms)
        if self._shared is not None:
            self._owe(outcome)

    def give_back(self, ask: Ask) -> None:
        """A request that was let in came to nothing: nothing is charged."""
        self.settle(_nothing_of(ask))

    def abandon(self, request_id: str) -> None:
        """Nobody will settle this request: its hold is renewed no more. Nothing where it is settled."""
        self._open.pop(request_id, None)

    async def run(self) -> None:
        """Renew, settle what was not taken, return to Redis; until cancelled. Asks nothing before the first request."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew())
            if self._shared is not None:
                group.create_task(self._pay(self._shared))
                group.create_task(self._beat(self._shared))

    async def drain(self, within_s: float) -> None:
        """Wait until nothing is owed, at shutdown, while `run` is still under way; not for a Redis that is away."""
        if self.is_away:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._paid.wait()

    @property
    def _now_ms(self) -> int:
        return int(self._clock_s() * 1000)

    async def _admit_shared(self, shared: QuotaRedis, ask: Ask) -> Granted | Refused:
        for _ in range(_ROUNDS):
            answer = await shared.ask(ask)
            if not isinstance(answer, Unstarted):
                return answer
            for place in answer.places:
                await self._begin(shared, ask.tenant_id, ask.purses[place])
        raise QuotaAway("counters vanish as they begin")

    async def _begin(self, shared: QuotaRedis, tenant_id: str, purse: Purse) -> None:
        """Begin a counter from the ledger; requests that want the same one wait for it together."""
        name = (tenant_id, purse.name)
        if name in self._beginning:
            await asyncio.shield(self._beginning[name])
            return
        begun = self._beginning[name] = asyncio.get_running_loop().create_future()
        try:
            born_ms = self._now_ms
            spent = await asyncio.to_thread(self._spent_micro, tenant_id, purse)
            await shared.start(tenant_id, purse, spent, born_ms)
        finally:  # the others ask again, and see for themselves
            del self._beginning[name]
            begun.set_result(None)

    async def _stand_in(self, ask: Ask) -> Granted | Refused:
        self.stand_in_answers += 1
        match self._options.when_down:
            case Down.DENY:
                raise QuotaUnavailable("limits cannot be checked at the moment")
            case Down.ALLOW:
                self._open[ask.request_id] = ask.tenant_id
                return Granted((), ())
            case Down.LOCAL:
                return await self._admit_here(ask)

    async def _admit_here(self, ask: Ask) -> Granted | Refused:
        while isinstance(answer := self._counters.ask(ask, self._now_ms), Unstarted):
            for place in answer.places:
                born_ms = self._now_ms
                spent = await asyncio.to_thread(self._spent_micro, ask.tenant_id, ask.purses[place])
                self._counters.start(ask.tenant_id, ask.purses[place], spent, born_ms)
        return self._noted(ask, answer)

    def _noted(self, ask: Ask, answer: Granted | Refused) -> Granted | Refused:
        if isinstance(answer, Granted):
            self._open[ask.request_id] = ask.tenant_id
        return answer

    def _failed(self, failure: QuotaAway) -> None:
        if not isinstance(failure, QuotaFailed):
            if not self.is_away:
                log.warning("limits: Redis is away (%s); %s", failure, self._options.when_down.value)
            self.is_away = True
        elif self._clock_s() - self._failed_s >= _SAID_S:  # every request may fail so
            self._failed_s = self._clock_s()
            log.error("limits: %s", failure)

    def _owe(self, outcome: Outcome) -> None:
        self._owed[outcome.request_id] = outcome
        self._paid.clear()
        if len(self._owed) > self._options.most_owed:
            del self._owed[next(iter(self._owed))]
            self.dropped += 1
        if self.is_away:
            self._owing.set()
            return
        self._unsent.append(outcome)
        if len(self._unsent) == 1:
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send the settlements of this tick: a client that has its answer may ask again, and is not to be refused."""
        unsent, self._unsent = self._unsent, []
        for at in range(0, len(unsent), _SETTLED_AT_ONCE):
            some = unsent[at : at + _SETTLED_AT_ONCE]
            sent = None if self.is_away or self._shared is None else self._shared.settle_soon(some)
            if sent is None:
                self._owing.set()
            else:
                sent.add_done_callback(partial(self._came_back, some))

    def _came_back(self, some: Sequence[Outcome], sent: "asyncio.Future[list[object] | Exception]") -> None:
        replies = sent.result()
        self._note(some, replies if isinstance(replies, list) else [replies] * len(some), again=True)

    def _note(self, some: Sequence[Outcome], replies: Sequence[object], *, again: bool) -> None:
        """Take what Redis has taken off what is owed.

        With `again` what it has not is sent once more before it counts as away: the library may be missing, or the
        tenant may have moved to another node.
        """
        for outcome, reply in zip(some, replies, strict=True):
            failure = why_not(reply)
            if failure is not None and not isinstance(failure, QuotaFailed):
                self._owing.set()
                if not again:
                    self._failed(failure)
            elif self._owed.get(outcome.request_id) is outcome:
                del self._owed[outcome.request_id]
                if failure is not None:
                    self.dropped += 1
                    self._failed(failure)
        if not self._owed:
            self._paid.set()

    async def _pay(self, shared: QuotaRedis) -> None:
        """Send once more what was not taken; while Redis is away, look whether it is back, and use it once it has taken
        all of it."""
        while True:
            await self._owing.wait()
            if self.is_away:
                await asyncio.sleep(self._options.retry_s)
            self._owing.clear()
            some = [self._owed[one] for one in list(self._owed)[:_SETTLED_AT_ONCE]]
            if some:
                self._note(some, await shared.settle_all(some), again=False)
            if len(some) == _SETTLED_AT_ONCE:
                self._owing.set()

    async def _beat(self, shared: QuotaRedis) -> None:
        """Signs of life, by which every replica knows how many share the limits; and the way back to Redis."""
        await self._asked.wait()
        while True:
            try:
                replicas = await shared.beat(self._replica, int(self._options.beat_s * 3000))
            except QuotaAway as failure:
                self._failed(failure)
            else:
                self._counters.replicas = max(1, replicas)
                if self.is_away and not self._owed:
                    self.is_away = False
                    self._counters.clear()
                    log.warning("limits: Redis is back")
            await asyncio.sleep(self._options.retry_s if self.is_away else self._options.beat_s)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._options.ttl_s / 3)
            self._counters.renew(list(self._open), self._now_ms)
            by_tenant: dict[str, list[str]] = {}
            for request_id, tenant_id in self._open.items():
                by_tenant.setdefault(tenant_id, []).append(request_id)
            if self._shared is not None and not self.is_away:
                for reply in await self._shared.renew_all(by_tenant):
                    failure = why_not(reply)
                    if failure is not None:
                        self._failed(failure)


def _nothing_of(ask: Ask) -> Outcome:
    return Outcome(ask.request_id, ask.tenant_id, ask.purses, 0, 0, 0)
