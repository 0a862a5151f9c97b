"""Waiting for the ledger: with a deadline, and without stopping what is under way there."""

import asyncio
from typing import Final

from billing import LedgerUnavailable

LEDGER_DEADLINE_S: Final = 10.0


async def in_time(future: asyncio.Future[None]) -> None:
    """Wait for the ledger; what is under way there goes on even if we are cancelled or give up. Raises what it raises,
    and `LedgerUnavailable` where it says nothing.

    A timer and a future: half of what `asyncio.timeout` around `asyncio.shield` costs.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def tell(ended: asyncio.Future[None] | None = None) -> None:
            if ended is not None and not ended.cancelled():
                ended.exception()  # seen, also where nobody waits any more
            if not told.done():
                told.set_result(None)

        timer = loop.call_later(LEDGER_DEADLINE_S, tell)
        future.add_done_callback(tell)
        try:
            await told
        finally:
            timer.cancel()
    if not future.done():
        raise LedgerUnavailable(f"no acknowledgement within {LEDGER_DEADLINE_S:g} s")
    future.result()
