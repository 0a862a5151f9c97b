"""`/admin/verification`: the ledger held against the index and against the engines' own counters."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from billing import BillingError, parse_when
from billing.verification.report import verify
from billing.verification.text import verification_json
from gateway.exchange import Clocks
from gateway.miss_credits import MissCredits

_DEFAULT_PERIOD = timedelta(days=1)

From = Annotated[str | None, Query(alias="from", description="First instant, ISO time, UTC; default: a day before.")]
To = Annotated[str | None, Query(description="First instant after the period; default: now.")]


def verification_router(credits: MissCredits, clocks: Clocks) -> APIRouter:
    """The paths under `/admin/verification`."""
    router = APIRouter()

    def period(from_: str | None, to: str | None) -> tuple[datetime, datetime]:
        try:
            end = clocks.wall() if to is None else parse_when(to)
            return (end - _DEFAULT_PERIOD if from_ is None else parse_when(from_)), end
        except BillingError as error:
            raise HTTPException(400, str(error)) from None

    @router.get("/admin/verification")
    async def verification(from_: From = None, to: To = None) -> dict[str, object]:
        """Verdicts, misses, and spans between samples of the engines' counters, by endpoint."""
        start, end = period(from_, to)
        try:
            return verification_json(await asyncio.to_thread(verify, credits.where, start, end))
        except BillingError as error:
            raise HTTPException(503, str(error)) from None

    @router.post("/admin/verification/credits")
    async def credit(from_: From = None, to: To = None) -> dict[str, object]:
        """Credit the misses of a period that our own routing caused; what has its credit gets no second."""
        start, end = period(from_, to)
        try:
            return {"from": start.isoformat(), "to": end.isoformat(), "credited": await credits.credit(start, end)}
        except BillingError as error:
            raise HTTPException(503, str(error)) from None

    return router
