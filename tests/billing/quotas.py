"""Counters in both places, and what is asked of them in tests."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

from billing.quotas.redis_counters import QuotaRedis
from billing.quotas.types import Allowance, Ask, Outcome, Purse
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_clients import connect_one

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
TTL_MS = 60_000
pools = (f"quota {number}" for number in count())


def purse(limit_micro: int, *, key_id: str | None = None, name: str = "day") -> Purse:
    """A purse of the day of `NOON`."""
    owner = "t" if key_id is None else f"k:{key_id}"
    day = NOON.replace(hour=0)
    return Purse(key_id, f"{owner}:{name}", limit_micro, day, day.replace(month=12, day=1))


def ask(
    request_id: str,
    allowances: Iterable[Allowance] = (),
    purses: Iterable[Purse] = (),
    *,
    tokens: int = 0,
    micro: int = 0,
) -> Ask:
    """What a request of the tenant `acme` wants."""
    return Ask(request_id, "acme", tuple(allowances), tuple(purses), tokens, micro)


def outcome(
    request_id: str,
    purses: Iterable[Purse] = (),
    *,
    tokens: int | None = None,
    micro: int | None = None,
    at_ms: int = 1,
) -> Outcome:
    """How it ended, in the ledger `at_ms` after noon."""
    return Outcome(request_id, "acme", tuple(purses), tokens, micro, NOON_MS + at_ms)


@asynccontextmanager
async def counters_in(url: str, pool: str | None = None, deadline_s: float = 5.0) -> AsyncIterator[QuotaRedis]:
    """Counters of a pool that no other test uses, at a real server."""
    async with connect_one(url) as client:
        yield QuotaRedis(Carrier(client), pool or next(pools), ttl_ms=TTL_MS, deadline_s=deadline_s)
