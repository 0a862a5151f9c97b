"""What the dashboard shows as it happens: of this worker, and of all as one.

own           this process, from memory, in turns of a millisecond: fleets are large
collect       all workers, with the rates of the last minute, and what was counted last of their caches
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

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
from gateway.ui.caches import NO_CACHE, Caches
from gateway.ui.inside import INSIDE, Inside
from gateway.ui.merging import Rates, newest, together
from gateway.ui.remedies import health_page
from gateway.ui.rows import decision_row
from gateway.ui.rows import endpoint_row as shown
from gateway.ui.types import Page
from prefix_index.turns import in_turns

LIVE: Final = f"{INSIDE}live"
DECISIONS: Final = f"{INSIDE}decisions"
LIVE_DECISIONS: Final = 50
"""As many as a view has."""
_OK: Final = 200
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNTED: Final = {
    "prompt_tokens": ("prefixgate_tokens", "prompt"),
    "reported_prompt_tokens": ("prefixgate_tokens", "prompt_reported"),
    "cached_tokens": ("prefixgate_tokens", "cached"),
    "output_tokens": ("prefixgate_tokens", "output"),
    "compared_prompt_tokens": ("prefixgate_expected_vs_reported", "prompt"),
    "compared_reported_tokens": ("prefixgate_expected_vs_reported", "reported"),
    "compared_expected_tokens": ("prefixgate_expected_vs_reported", "expected"),
}
"""What is counted of requests, by metric and `kind`."""


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

    def __init__(self, parts: LiveParts, inside: Inside, caches: Caches) -> None:
        self._parts = parts
        self._inside = inside
        self._rates = Rates()
        self._caches = caches
        self._name = secrets.token_hex(8)
        """Of this process among the workers, those that come later included."""

    def forget(self) -> None:
        """Nobody looks any more."""
        self._rates = Rates()

    async def collect(self) -> Page:
        """The view of the whole gateway: `as_of`, `live`, `endpoints`, `decisions`, `health`."""
        page = await _with_caches(await self._all(), await self._caches.latest())
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
        return await _with_caches(await self._all(), await self._caches.fresh())

    async def health(self) -> Page:
        """What is degraded, and what mends it."""
        return health_page((await self._all())["degraded"])

    async def _all(self) -> Page:
        own = await self._own()
        others = [await _page_in(body) for body in await self._others(LIVE)]
        return await together([own, *others], LIVE_DECISIONS)

    async def decisions(self, most: int, tenant: str | None, endpoint: str | None) -> list[Page]:
        """The latest decisions of all workers, narrowed."""
        query = {"most": most, "tenant": tenant, "endpoint": endpoint}
        rows = await self._latest(most, tenant, endpoint)
        for body in await self._others(DECISIONS, msgspec.json.encode(query)):
            rows += msgspec.json.decode(body)
        return newest(rows, most)

    async def serve(self, call: Call) -> Reply:
        """What this process says to another worker's dashboard."""
        if call.path == LIVE:
            return Reply(_OK, b"application/json", msgspec.json.encode(await self._own()))
        if call.path == DECISIONS:
            query = msgspec.json.decode(call.query)
            rows = await self._latest(query["most"], query["tenant"], query["endpoint"])
            return Reply(_OK, b"application/json", msgspec.json.encode(rows))
        return await self._inside.serve(call)

    def now(self) -> str:
        """As `as_of` has it."""
        return self._parts.wall().isoformat()

    async def _others(self, path: str, query: bytes = b"") -> list[bytes]:
        if self._parts.team is None:
            return []
        replies = await self._parts.team.ask(Call("GET", path, query, (), b""))
        return [reply.body for reply in replies if reply.status == _OK]

    async def _own(self) -> Page:
        """This process. O(endpoints + decisions shown), in turns."""
        parts, registry = self._parts, self._parts.telemetry.registry
        requests = registry.sums("prefixgate_requests", "state")
        sums = {name: registry.sums(name, "kind") for name in {metric for metric, _ in _COUNTED.values()}}
        counters = {name: sums[metric].get(kind, 0.0) for name, (metric, kind) in _COUNTED.items()}
        waiting = None if parts.gate is None else parts.gate.report()["waiting"]
        return {
            "worker": self._name,
            "counters": {"requests": sum(requests.values()), **counters},
            "in_flight": int(parts.telemetry.in_flight.value),
            "queued": sum(waiting.values()) if isinstance(waiting, dict) else None,
            "viewers": parts.viewers(),
            "draining": parts.draining(),
            "endpoints": await self._rows(),
            "decisions": await self._latest(LIVE_DECISIONS, None, None),
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

    async def _latest(self, most: int, tenant: str | None, endpoint: str | None) -> list[Page]:
        kept = (
            one
            for one in self._parts.decisions.latest()
            if tenant in (None, one.tenant_id) and endpoint in (None, one.made.endpoint_id)
        )
        return [decision_row(one) async for one in in_turns(list(islice(kept, most)))]


async def _page_in(body: bytes) -> Page:
    """What another worker says of itself. O(endpoints), in turns."""
    parts = _RAW.decode(body)
    rows = _RAW.decode(parts.pop("endpoints"))
    page: Page = {name: msgspec.json.decode(part) for name, part in parts.items()}
    page["endpoints"] = {name: msgspec.json.decode(row) async for name, row in in_turns(rows.items())}
    return page


async def _with_caches(page: Page, caches: Page) -> Page:
    known = caches["endpoints"]
    rows = {name: {**row, **known.get(name, NO_CACHE)} async for name, row in in_turns(page["endpoints"].items())}
    return {**page, "endpoints": rows, "index": caches["index"]}
