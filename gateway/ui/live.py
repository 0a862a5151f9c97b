"""What the dashboard shows as it happens: of this worker, and of all as one.

own           this process, from memory, in turns of a millisecond: fleets are large
collect       all workers, with the rates of the last minute, and each few seconds what the index and receipts say
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

import msgspec

from backends import UnknownEndpoint
from gateway.decision_log import DecisionLog
from gateway.endpoint_pages import EndpointParts, endpoint_row
from gateway.perf_book import PerfBook
from gateway.queueing.gate import Gate
from gateway.status import StatusPages
from gateway.team.member import Team
from gateway.team.messages import Call, Reply
from gateway.telemetry import Telemetry
from gateway.ui.inside import INSIDE, Inside
from gateway.ui.merging import Page, Rates, newest, together
from gateway.ui.remedies import health_page
from gateway.ui.rows import decision_row
from gateway.ui.rows import endpoint_row as shown
from prefix_index import Claim
from prefix_index.turns import in_turns

LIVE: Final = f"{INSIDE}live"
DECISIONS: Final = f"{INSIDE}decisions"
LIVE_DECISIONS: Final = 50
"""As many as a view has."""
CACHES_EVERY_S: Final = 10.0
"""How old what the index holds may be: it is counted where the index is."""
_OK: Final = 200
_COUNTED: Final = {
    "prompt_tokens": ("prefixgate_tokens", "kind", "prompt"),
    "cached_tokens": ("prefixgate_tokens", "kind", "cached"),
    "output_tokens": ("prefixgate_tokens", "kind", "output"),
    "compared_prompt_tokens": ("prefixgate_expected_vs_reported", "kind", "prompt"),
    "compared_reported_tokens": ("prefixgate_expected_vs_reported", "kind", "reported"),
    "compared_expected_tokens": ("prefixgate_expected_vs_reported", "kind", "expected"),
}
_NOT_READ: Final = "not_consumer"


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What is looked at. `draining`: whether the gateway was told to stop; `viewers`: how many look at this process."""

    endpoints: EndpointParts
    perf: PerfBook
    decisions: DecisionLog
    pages: StatusPages
    telemetry: Telemetry
    gate: Gate | None
    draining: Callable[[], bool]
    viewers: Callable[[], int]
    wall: Callable[[], datetime]
    team: Team | None


class Live:
    """One per process."""

    def __init__(self, parts: LiveParts, inside: Inside) -> None:
        self._parts = parts
        self._inside = inside
        self._rates = Rates()
        self._caches: Page | None = None
        self._caches_at_s = 0.0
        self._turn = asyncio.Lock()  # spans the asking: who wants the same meanwhile gets the same

    def forget(self) -> None:
        """Nobody looks any more."""
        self._rates = Rates()

    async def collect(self) -> Page:
        """The view of the whole gateway: `as_of`, `live`, `endpoints`, `decisions`, `health`."""
        page = await self.page()
        self._rates.add(time.monotonic(), page["counters"])
        crew = None if self._parts.team is None else self._parts.team.crew
        live = {
            "in_flight_requests": page["in_flight"],
            "queued_requests": page["queued"],
            **self._rates.as_page(),
            "viewers": page["viewers"],
            "draining": page["draining"],
            "workers": None if crew is None else {"alive": crew.alive, "wanted": crew.wanted},
        }
        return {
            "as_of": self.now(),
            "live": live,
            "endpoints": page["endpoints"],
            "decisions": page["decisions"],
            "health": health_page(page["degraded"]),
        }

    async def page(self) -> Page:
        """All workers as one, each endpoint with what the index says of its cache."""
        own = await self._own()
        page = together([own, *await self._others(LIVE)], LIVE_DECISIONS)
        caches = await self._caches_of_all()
        for name, row in page["endpoints"].items():
            page["endpoints"][name] = {**row, **caches["endpoints"].get(name, _NO_CACHE)}
        page["index"] = caches["index"]
        return page

    async def decisions(self, most: int, tenant: str | None, endpoint: str | None) -> list[Page]:
        """The latest decisions of all workers, narrowed."""
        query = {"most": most, "tenant": tenant, "endpoint": endpoint}
        rows = self._latest(most, tenant, endpoint)
        for found in await self._others(DECISIONS, msgspec.json.encode(query)):
            rows += found
        return newest(rows, most)

    async def serve(self, call: Call) -> Reply:
        """What this process says to another worker's dashboard."""
        if call.path == LIVE:
            return Reply(_OK, b"application/json", msgspec.json.encode(await self._own()))
        if call.path == DECISIONS:
            query = msgspec.json.decode(call.query)
            rows = self._latest(query["most"], query["tenant"], query["endpoint"])
            return Reply(_OK, b"application/json", msgspec.json.encode(rows))
        return await self._inside.serve(call)

    def now(self) -> str:
        """As `as_of` has it."""
        return self._parts.wall().isoformat()

    async def _others(self, path: str, query: bytes = b"") -> list[Any]:
        if self._parts.team is None:
            return []
        replies = await self._parts.team.ask(Call("GET", path, query, (), b""))
        return [msgspec.json.decode(reply.body) for reply in replies if reply.status == _OK]

    async def _own(self) -> Page:
        """This process. O(endpoints + decisions shown), in turns."""
        parts, registry = self._parts, self._parts.telemetry.registry
        requests = registry.sums("prefixgate_requests", "state")
        sums = {name: registry.sums(name, "kind") for name in {metric for metric, _, _ in _COUNTED.values()}}
        counters = {name: sums[metric].get(kind, 0.0) for name, (metric, _, kind) in _COUNTED.items()}
        waiting = None if parts.gate is None else parts.gate.report()["waiting"]
        return {
            "counters": {"requests": sum(requests.values()), **counters},
            "in_flight": int(parts.telemetry.in_flight.value),
            "queued": sum(waiting.values()) if isinstance(waiting, dict) else None,
            "viewers": parts.viewers(),
            "draining": parts.draining(),
            "endpoints": await self._rows(),
            "decisions": self._latest(LIVE_DECISIONS, None, None),
            "degraded": parts.pages.degraded(),
        }

    async def _rows(self) -> Page:
        """The endpoints by id; one that leaves meanwhile is not among them."""
        parts = self._parts
        found: Page = {}
        async for one in in_turns(parts.endpoints.fleet.snapshot()):
            models = [] if one.facts is None else sorted(model.id for model in one.facts.models)
            with suppress(UnknownEndpoint):
                found[one.id] = shown(endpoint_row(parts.endpoints, one), models, one.generation, parts.perf)
        return found

    def _latest(self, most: int, tenant: str | None, endpoint: str | None) -> list[Page]:
        kept = (
            one
            for one in self._parts.decisions.latest()
            if tenant in (None, one.tenant_id) and endpoint in (None, one.made.endpoint_id)
        )
        return [decision_row(one) for one in islice(kept, most)]

    async def _caches_of_all(self) -> Page:
        """What the index holds by endpoint, and how its reports compare; at most `CACHES_EVERY_S` old."""
        async with self._turn:
            now_s = time.monotonic()
            if self._caches is None or now_s - self._caches_at_s >= CACHES_EVERY_S:
                self._caches = caches_of(await self._inside.page("/admin/index"))
                self._caches_at_s = now_s
            return self._caches


_NO_CACHE: Final[Mapping[str, Any]] = dict.fromkeys(
    ("coverage", "answers", "hit_share", "expected_share", "error_percent", "kv_events")
)
_INDEX: Final = ("store", "degraded", "unreadable", "queued_writes", "dropped_writes", "max_bytes")
_SIZES: Final = ("nodes", "blocks", "estimated_bytes")
_IN_MEMORY: Final = Claim.CONFIRMED.value


def caches_of(report: Mapping[str, Any]) -> Page:
    """`/admin/index` by endpoint: coverage, shares of the last answers, the state of the feed. Pure."""
    endpoints: dict[str, Page] = {}
    for row in report["holders"]:
        if row["is_present"] and row["claim"] == _IN_MEMORY and row["capacity_blocks"] is not None:
            told = endpoints.setdefault(row["endpoint"], dict(_NO_CACHE))
            told["coverage"] = _covered(told["coverage"], row["blocks"], row["capacity_blocks"])
    for row in report["reliability"]["endpoints"]:
        window = row["window"]
        told = endpoints.setdefault(row["endpoint"], dict(_NO_CACHE))
        if told["answers"] is None or window["answers"] > told["answers"]:  # of two modes the one in use
            told["answers"] = window["answers"]
            told["hit_share"], told["expected_share"] = window["reported_share"], window["expected_share"]
            told["error_percent"] = window["mean_absolute_error_percent"]
    for row in report["feeds"]:
        told = endpoints.setdefault(row["endpoint_id"], dict(_NO_CACHE))
        if told["kv_events"] in (None, _NOT_READ):
            told["kv_events"] = row["state"]
    total = report["total"]
    sizes = dict.fromkeys(_SIZES) if total is None else {name: total[name] for name in _SIZES}
    return {"endpoints": endpoints, "index": {**{name: report[name] for name in _INDEX}, **sizes}}


def _covered(before: Page | None, blocks: int, capacity_blocks: int) -> Page:
    """One more cache of an endpoint, which has one for each of its ranks."""
    if before is not None:
        blocks, capacity_blocks = blocks + before["blocks"], capacity_blocks + before["capacity_blocks"]
    share = blocks / capacity_blocks if capacity_blocks else None
    return {"blocks": blocks, "capacity_blocks": capacity_blocks, "share": share}
