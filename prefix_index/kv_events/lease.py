"""Which replica consumes the KV events of which endpoint: leases in Redis, renewed together, one call a second.

    replica 1   want a, b ──> {pg:VERSION:POOL}:lease:a = 1, 3 s      renewed each second while it is wanted
    replica 2   want a, b ──> held by another                   asks each second; has them 3 s after replica 1 died,
                                                                at once where replica 1 gave them back

A lease is believed in for its TTL from *before* the call that renewed it, by our own clock, so we stop before another
replica can begin. That holds while Redis keeps what it said and clocks run alike. Where it does not (a failover that
lost the last second), two replicas consume for a moment: both say the same things of the same engine, so what one
says twice is nothing new; what one says *late* can be wrong, a block that the other has already forgotten. The
consumer that begins ends the holder's generation where it knows the engine's cache whole, which makes late writes void;
where it does not, a receipt puts such a claim right.

Where Redis is away a lease runs out, and nobody consumes: what replicas would write meanwhile would reach Redis in
no order. Without Redis (`client` None) every replica holds all that it wants.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import cast

from redis import exceptions as redis_errors

from prefix_index.quiet_log import QuietLog
from prefix_index.redis_clients import RedisClient, primary_of
from prefix_index.redis_cluster import ClusterClient
from prefix_index.redis_wire import pool_tag

log = logging.getLogger("prefix_index")

_ROUNDS = 3
_LOG_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Seconds."""

    ttl_s: float = 3.0
    """How long a lease outlives its replica."""
    renew_s: float = 1.0
    """Between two renewals, and between two attempts to get one."""
    deadline_s: float = 1.0
    """For one call."""


class Lease:
    """The right of this replica to consume one endpoint's events. `notify` is called when it comes or is lost."""

    def __init__(self, key: str, notify: Callable[[], None], clock: Callable[[], float]) -> None:
        self.key = key
        self._notify = notify
        self._clock = clock
        self.until_s = float("-inf")
        """When it ends unless it is renewed, by the monotonic clock."""
        self.term = 0
        """How often it was got: what was begun in one term is not to be ended in another."""

    @property
    def is_held(self) -> bool:
        """Whether this replica may write."""
        return self._clock() < self.until_s

    def set_until(self, until_s: float) -> None:
        """Take the word of Redis."""
        was_held, self.until_s = self.is_held, until_s
        if self.is_held != was_held:
            self.term += not was_held
            self._notify()


class Leases:
    """All leases of one replica in one pool. `run` must be under way for any to be held."""

    def __init__(
        self,
        client: RedisClient | None,
        *,
        pool: str,
        replica: str,
        options: LeaseOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._tag = pool_tag(pool)
        self._replica = replica
        self._options = options or LeaseOptions()
        self._clock = clock
        self._wanted: dict[str, Lease] = {}
        self._unwanted: set[str] = set()
        self._wake = asyncio.Event()
        self._script = resources.files("prefix_index").joinpath("lua", "lease.lua").read_text(encoding="utf-8")
        self._quiet_log = QuietLog(log, _LOG_EVERY_S, clock)

    def lease(self, name: str, notify: Callable[[], None]) -> Lease:
        """The lease of an endpoint, not wanted yet. One object a name at a time."""
        return Lease(f"{self._tag}:lease:{name}", notify, self._clock)

    def want(self, lease: Lease) -> None:
        """Try to get a lease, and keep it."""
        if lease.key in self._wanted:
            return
        self._wanted[lease.key] = lease
        self._unwanted.discard(lease.key)
        if self._client is None:
            lease.set_until(float("inf"))
        else:
            self._wake.set()

    def give_back(self, lease: Lease) -> None:
        """Stop at once, and let another replica have it."""
        if self._wanted.get(lease.key) is not lease:
            return
        del self._wanted[lease.key]
        lease.set_until(float("-inf"))
        if self._client is not None:
            self._unwanted.add(lease.key)
            self._wake.set()

    async def run(self) -> None:
        """Get, renew and give back, until cancelled. Leases then run out; `release` gives them back at once.

        Without Redis there is nothing to do, and it returns.
        """
        if self._client is None:
            return
        while True:
            self._wake.clear()
            await self._give_back()
            await self._renew()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.renew_s):
                    await self._wake.wait()

    async def release(self) -> None:
        """Give all leases back; at shutdown, after `run` has ended. Ends within the deadline of a call."""
        for lease in list(self._wanted.values()):
            self.give_back(lease)
        if self._client is not None:
            await self._give_back()

    async def _renew(self) -> None:
        """Where Redis does not answer, what is held stays held for as long as it was granted."""
        leases = list(self._wanted.values())
        asked_at_s = self._clock()
        replies = await self._call(leases, int(self._options.ttl_s * 1000))
        for lease, reply in zip(leases, replies, strict=False):
            if self._wanted.get(lease.key) is lease:
                lease.set_until(asked_at_s + self._options.ttl_s if reply == 1 else float("-inf"))

    async def _give_back(self) -> None:
        keys, self._unwanted = self._unwanted, set()
        await self._call((Lease(key, _ignore, self._clock) for key in keys), 0)

    async def _call(self, leases: Iterable[Lease], ttl_ms: int) -> list[object]:
        """What the script says of each; nothing where Redis does not answer."""
        keys = [lease.key for lease in leases]
        if not keys or self._client is None:
            return []
        first = keys[0].encode()
        try:
            async with asyncio.timeout(self._options.deadline_s):
                for _ in range(_ROUNDS):
                    node = await primary_of(self._client, first)
                    try:
                        # redis-py types both of its clients at once.
                        reply = await cast(
                            Awaitable[object], node.eval(self._script, len(keys), *keys, self._replica, str(ttl_ms))
                        )
                    except redis_errors.MovedError as word:
                        if not isinstance(self._client, ClusterClient):
                            raise
                        self._client.moved(first, word)
                        continue
                    return reply if isinstance(reply, list) else []
        except (redis_errors.RedisError, OSError, ValueError) as failure:
            # TimeoutError is an OSError; ValueError: what answers does not speak the protocol.
            if isinstance(self._client, ClusterClient):
                self._client.lost(first)
            self._quiet_log.warn("KV events: leases cannot be renewed (%s)", type(failure).__name__)
        return []


def _ignore() -> None:
    """For a lease that nobody waits for."""
