"""`/admin/verification`: the ledger held against the index and against the engines' own counters."""

import asyncio

from fastapi import APIRouter, HTTPException

from billing import BillingError
from billing.verification.report import verify
from billing.verification.text import verification_json
from gateway.exchange import Clocks
from gateway.miss_credits import MissCredits
from gateway.recent_period import From, To, recent_period


def verification_router(credits: MissCredits, clocks: Clocks) -> APIRouter:
    """The paths under `/admin/verification`."""
    router = APIRouter()

    @router.get("/admin/verification")
    async def verification(from_: From = None, to: To = None) -> dict[str, object]:
        """Verdicts, misses, and spans between samples of the engines' counters, by endpoint."""
        start, end = recent_period(clocks.wall(), from_, to)
        try:
            return verification_json(await asyncio.to_thread(verify, credits.where, start, end))
        except BillingError as error:
            raise HTTPException(503, str(error)) from None

    @router.post("/admin/verification/credits")
    async def credit(from_: From = None, to: To = None) -> dict[str, object]:
        """Credit the misses of a period that our own routing caused; what has its credit gets no second."""
        start, end = recent_period(clocks.wall(), from_, to)
        try:
            return {"from": start.isoformat(), "to": end.isoformat(), "credited": await credits.credit(start, end)}
        except BillingError as error:
            raise HTTPException(503, str(error)) from None

    return router
