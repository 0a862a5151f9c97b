"""What bills are verified by, put together: the engines' counters, credits for own misses, the pages that show it."""

import asyncio

from fastapi import APIRouter

from backends import Registry
from billing import Ledger
from gateway.config import Config, ledger_place
from gateway.counters import EngineCounters
from gateway.exchange import Clocks
from gateway.miss_credits import MissCredits
from gateway.telemetry import Telemetry
from gateway.verification_pages import verification_router


class Verifying:
    """One per gateway; `run` beside the requests. Of several workers only the one that `leads` does what is to be done
    once."""

    def __init__(
        self, config: Config, ledger: Ledger, registry: Registry, telemetry: Telemetry, *, leads: bool = True
    ) -> None:
        metrics, clocks = telemetry.verification, Clocks()
        self._poll_interval_s = config.poll_interval_s
        self._leads = leads
        self._credits_own_misses = config.billing.credit_own_misses
        self._counters = EngineCounters(registry.snapshot, ledger.sample, metrics, clocks)
        self._credits = MissCredits(ledger_place(config), ledger, metrics, clocks.wall)
        self.router: APIRouter = verification_router(self._credits, clocks)
        """Of the admin API."""

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._counters.removed(endpoint_id)

    async def run(self) -> None:
        """Keep the counters, and give back where that is configured, until cancelled."""
        if not self._leads:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._counters.run(self._poll_interval_s))
            if self._credits_own_misses:
                group.create_task(self._credits.run())
