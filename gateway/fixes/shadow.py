"""What fixes would gain, before anyone switches them on: a sample of requests, measured beside the traffic.

    request --fixed--> its other form                the last few of the tenant and model, of each form
       |                   |
       `--plan--> chain    `--plan--> chain  --->    blocks in common with them: cached as it came, cached if fixed

Both are held against earlier prompts of the sample alone, so both find less than the engines would; what is shared by
all is found in either. Nobody waits for it: it is done one after the other, and what finds the queue full is dropped.
"""

import asyncio
from dataclasses import replace
from typing import Final, NamedTuple

from gateway.edge.reading import Arrival, read_request
from gateway.fixes.book import FixBook
from gateway.fixes.fixing import fixed
from gateway.fixes.orders import ToolOrders
from gateway.fixes.rules import Rule
from gateway.fixes.tool_sets import order_for
from gateway.fleet import Fleet
from gateway.log_lines import LOGGER
from gateway.planning import Planner
from gateway.timing import Marks
from gateway.types import InferenceRequest
from prefix_index import Chain, common_blocks

MOST_WAITING: Final = 64
MOST_PROMPTS: Final = 8
"""Of one tenant and model, of each form."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of the hashes of all."""


class _Item(NamedTuple):
    arrival: Arrival
    request: InferenceRequest
    rule: Rule


class RecentChains:
    """The hashes of the last prompts of each name. O(prompts of one name · log blocks) a call."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._chains: dict[tuple[str, ...], list[Chain]] = {}

    def cached_tokens(self, name: tuple[str, ...], chain: Chain) -> int:
        """How much of a prompt an earlier one had; it is one of them from now on."""
        before = self._chains.pop(name, [])
        same = [one for one in before if one.block_size == chain.block_size]
        shared = max((common_blocks(one.hashes, chain.hashes) for one in same), default=0)
        kept = [*before, chain][-MOST_PROMPTS:]
        self._chains[name] = kept
        self._bytes += sum(len(one.hashes) for one in kept) - sum(len(one.hashes) for one in before)
        while self._bytes > self._most_bytes:
            quietest = next(iter(self._chains))
            self._bytes -= sum(len(one.hashes) for one in self._chains.pop(quietest))
        return shared * chain.block_size


class Shadow:
    """Measures what it is offered; `run` does the work."""

    def __init__(self, planner: Planner, fleet: Fleet, orders: ToolOrders, book: FixBook) -> None:
        self._planner = planner
        self._fleet = fleet
        self._orders = orders
        self._book = book
        self._waiting: asyncio.Queue[_Item] = asyncio.Queue(MOST_WAITING)
        self._recent = RecentChains()

    def offer(self, arrival: Arrival, request: InferenceRequest, rule: Rule) -> None:
        """A request of the sample; it is only looked at."""
        try:
            self._waiting.put_nowait(_Item(arrival, request, rule))
        except asyncio.QueueFull:
            self._book.shadow_without("dropped")

    async def run(self) -> None:
        """Measure, one after the other, until cancelled."""
        while True:
            item = await self._waiting.get()
            try:
                await self.measure(*item)
            except Exception as error:  # noqa: BLE001 - the guard of the loop: no traffic depends on it
                fields = {"request_id": item.request.id, "error": type(error).__name__}
                LOGGER.warning("a shadow was not measured", extra={"fields": fields})

    async def measure(self, arrival: Arrival, request: InferenceRequest, rule: Rule) -> None:
        """Plan a request as it came and as it would be fixed, and count what earlier ones share with either."""
        how = await order_for(self._orders, rule, request)
        done = await asyncio.to_thread(fixed, request.body, how)
        if not done.fixes:
            self._book.shadow_without("unfixed")
            return
        read = await asyncio.to_thread(read_request, replace(arrival, marks=Marks()), done.body)
        other = replace(read, model=request.model)
        names, tenant = "+".join(done.fixes), request.tenant.id
        came, better = [await self._chain(one) for one in (replace(request, marks=Marks()), other)]
        cached = self._recent.cached_tokens((tenant, request.model, "came"), came)
        fixed_cached = self._recent.cached_tokens((tenant, request.model, "fixed", names), better)
        self._book.shadow(tenant, names, came.prompt_tokens, cached, fixed_cached)

    async def _chain(self, request: InferenceRequest) -> Chain:
        model = request.model or self._fleet.only_model()
        endpoints = self._fleet.serving(model)
        plan = await self._planner.plan(replace(request, model=model), endpoints, self._fleet.block_size(endpoints))
        return plan.chain
