"""Prices under `/admin/prices`: what is in force, what a tenant pays, and a new file tried or read.

Only the file changes prices. `check` says what a text would change without applying it; `reload` reads the file again,
as the gateway does by itself when it changes. A file that cannot be used changes nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Body, HTTPException, Query
from pydantic import BaseModel

from billing import PeriodInvalid, PricesInvalid, parse_when
from billing.counting import counted
from billing.prices.live import LivePrices, Reloaded
from billing.prices.public_apis import api_prices
from billing.prices.view import Change, ChangeKind, book_view, quote_view
from gateway.log_lines import LOGGER

MOST_BYTES = 16 * 1024 * 1024


class ChangeRow(BaseModel):
    """What one edit means; `had_begun`: requests may have been billed by what was there before."""

    what: str
    kind: ChangeKind
    had_begun: bool


class PriceCheck(BaseModel):
    """Whether a file can be used, why not, and what it changes."""

    valid: bool
    problem: str | None
    changes: list[ChangeRow]


def price_router(prices: LivePrices) -> APIRouter:
    """The routes under `/admin/prices`; who uses them asks for a token."""
    router = APIRouter(prefix="/admin/prices")

    @router.get("")
    async def everything() -> dict[str, object]:
        """The price book in force: all rates per million tokens, as exact text."""
        return {
            "file": None if prices.path is None else str(prices.path),
            "loaded_at": prices.loaded_at.isoformat(),
            "problem": prices.problem,
            **book_view(prices.book),
        }

    @router.get("/effective", responses={422: {"description": "`at` is no time."}})
    async def effective(
        model: Annotated[str, Query(description="As clients name it.")],
        tenant: Annotated[str | None, Query(description="Who asks; without it, the list price.")] = None,
        at: Annotated[str | None, Query(description="When the request comes in; default: now.")] = None,
        prompt_tokens: Annotated[int | None, Query(ge=0, description="Length of the prompt, for its tier.")] = None,
    ) -> dict[str, object]:
        """What a tenant pays for a model at a time, the list price beside it. `price` is null where there is none."""
        try:
            when = datetime.now(UTC) if at is None else parse_when(at)
        except PeriodInvalid as error:
            raise HTTPException(422, str(error)) from None
        quote = prices.quote(model, tenant, when)
        return {"model": model, "tenant": tenant, "at": when.isoformat(), **quote_view(quote, prompt_tokens)}

    @router.get("/apis")
    async def apis() -> list[dict[str, object]]:
        """Prices of public APIs to compare with, each with its date and source. Nothing is fetched."""
        return [one.view() for one in api_prices()]

    @router.post("/check", response_model=PriceCheck, responses={413: {"description": "Too long."}})
    async def check(text: Annotated[str, Body(media_type="application/yaml")]) -> PriceCheck:
        """Whether the text of a price file can be used, and what it would change. Applies nothing."""
        if len(text) > MOST_BYTES:
            raise HTTPException(413, f"a price file has at most {MOST_BYTES:,} characters")
        try:
            found = await asyncio.to_thread(prices.check, text)
        except PricesInvalid as error:
            return PriceCheck(valid=False, problem=str(error), changes=[])
        return PriceCheck(valid=True, problem=None, changes=_rows(found))

    @router.post("/reload", response_model=PriceCheck)
    async def reload() -> PriceCheck:
        """Read the price file again. Where it cannot be used, `valid` is false and the prices from before hold."""
        found = await asyncio.to_thread(prices.reload)
        log_reload(found)
        return PriceCheck(valid=found.problem is None, problem=found.problem, changes=_rows(found.changes))

    return router


async def watch_prices(prices: LivePrices, interval_s: float) -> None:
    """Reload when the file changes, until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        found = await asyncio.to_thread(prices.poll)
        if found is not None:
            log_reload(found)


def log_reload(found: Reloaded) -> None:
    """One line on what became of the price file."""
    if found.problem is not None:
        LOGGER.warning("the price file was not taken, the prices from before hold: %s", found.problem)
        return
    LOGGER.info("the price file was read: %s", counted(len(found.changes), "change"))
    for one in found.changes:
        if one.had_begun and one.kind is ChangeKind.CHANGED:
            LOGGER.warning(
                "%s had begun and was changed: rows keep what they were billed; a new id tells them", one.what
            )


def _rows(found: Sequence[Change]) -> list[ChangeRow]:
    return [ChangeRow(**asdict(one)) for one in found]
