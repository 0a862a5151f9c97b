"""`/admin/cost` and `/admin/jobs`: what tokens cost the operator, as `prefixgate cost` says it; for admins alone."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from fastapi import APIRouter, HTTPException

from billing import BillingError
from billing.economics import CostBook, cost_json, cost_report, cost_sheets, job_report, jobs_sheet, ledgers, plain
from billing.errors import LedgerUnavailable
from billing.when import to_us
from gateway.config import Config, ledger_place
from gateway.cost_terms import assumptions
from gateway.recent_period import From, To, recent_period

_MOST_DAYS = timedelta(days=32)
"""A request to the gateway reads every call of its period: a longer one is for the command."""
_MOST_JOBS = 1000


@dataclass(frozen=True, slots=True)
class CostParts:
    """What costs are read from. Its files are read anew each time, so that a changed rate holds at once."""

    config: Config
    wall: Callable[[], datetime]
    completed: Callable[[CostBook], CostBook] = lambda book: book
    """The rates of the file with those that it lacks and somebody else knows."""


def cost_router(parts: CostParts) -> APIRouter:
    """The paths `/admin/cost` and `/admin/jobs`."""
    router, config = APIRouter(), parts.config
    one_at_a_time = asyncio.Lock()  # spans the reading: two of them would only take twice as long

    async def in_turn(
        read: Callable[[int, int], dict[str, object]], from_: str | None, to: str | None
    ) -> dict[str, object]:
        start_us, end_us = _period(parts.wall(), from_, to)
        try:
            async with one_at_a_time:
                return await asyncio.to_thread(read, start_us, end_us)
        except LedgerUnavailable as error:
            raise HTTPException(503, str(error)) from None
        except BillingError as error:
            raise HTTPException(400, str(error)) from None

    def read_cost(start_us: int, end_us: int) -> dict[str, object]:
        if config.costs_file is None:
            raise HTTPException(404, "what endpoints cost is not known: costs_file is not configured")
        book = parts.completed(CostBook.load(config.costs_file))
        with ledgers([ledger_place(config)]) as opened:
            assumed = assumptions(opened, config, book.currency, (start_us, end_us))
            found = cost_report(opened, book, start_us, end_us, assumed)
        return cost_json(found, cost_sheets(found))

    def read_jobs(start_us: int, end_us: int) -> dict[str, object]:
        book = None if config.costs_file is None else parts.completed(CostBook.load(config.costs_file))
        with ledgers([ledger_place(config)]) as opened:
            found = job_report(opened, book, start_us, end_us)
        sheet = jobs_sheet(found.jobs, with_cost=book is not None, most=_MOST_JOBS)
        return {"internal": True, "currency": found.currency, **plain([sheet])}

    @router.get("/admin/cost")
    async def cost(from_: From = None, to: To = None) -> dict[str, object]:
        """Cost per token, margins, discounts, first fills. Internal: never to be shown to a tenant."""
        return await in_turn(read_cost, from_, to)

    @router.get("/admin/jobs")
    async def jobs(from_: From = None, to: To = None) -> dict[str, object]:
        """The runs of agents by job id, dearest first: calls, tokens, hit share, price and cost. Internal."""
        return await in_turn(read_jobs, from_, to)

    return router


def _period(now: datetime, from_: str | None, to: str | None) -> tuple[int, int]:
    start, end = recent_period(now, from_, to)
    if not timedelta(0) < end - start <= _MOST_DAYS:
        raise HTTPException(
            400, f"a period must have begun, and be of at most {_MOST_DAYS.days} days: see prefixgate cost"
        )
    return to_us(start), to_us(end)
