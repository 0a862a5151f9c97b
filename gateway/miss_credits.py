"""Credits for misses that our own routing caused, where `billing.credit_own_misses` says so, or an operator does.

ledger ──every minute: own misses without a credit──> ledger        the id follows from the request: never twice
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from billing import Correction, Ledger, LedgerUnavailable, RowRefused
from billing.reading import reading
from billing.verification.credits import own_misses
from billing.verification.report import LONGEST_REQUEST
from billing.when import to_us
from gateway.log_lines import LOGGER
from gateway.verification_metrics import VerificationMetrics

EVERY_S: Final = 60.0
LOOK_BACK: Final = timedelta(days=2)
"""At the start: what another process has settled and not credited, before it ended."""


class MissCredits:
    """Finds own misses that have no credit, and writes it."""

    def __init__(
        self, where: Path | str, ledger: Ledger, metrics: VerificationMetrics, clock: Callable[[], datetime]
    ) -> None:
        self.where = where
        """The ledger, as it is read."""
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock

    async def run(self, every_s: float = EVERY_S) -> None:
        """Credit what is found, until cancelled. A ledger that fails is asked again."""
        since = self._clock() - LOOK_BACK
        while True:
            now = self._clock()
            try:
                await self.credit(since, now)
                since = now - LONGEST_REQUEST
            except LedgerUnavailable as error:
                LOGGER.error("credits were not written", extra={"fields": {"why": error.why}})
            await asyncio.sleep(every_s)

    async def credit(self, from_: datetime, to: datetime) -> int:
        """Credit own misses of requests that came in within [from, to); returns how many credits were written.

        Raises `LedgerUnavailable`. What another gateway credits at the same time is credited once.
        """
        due = await asyncio.to_thread(self._due, from_, to)
        outcomes = await asyncio.gather(*map(self._ledger.correct, due), return_exceptions=True)
        written = sum(outcome is None for outcome in outcomes)
        self._metrics.credits.inc(written)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, RowRefused):
                raise outcome
        return written

    def _due(self, from_: datetime, to: datetime) -> list[Correction]:
        made_at = self._clock()
        with reading(self.where) as connection:
            found = [one.credit(made_at) for one in own_misses(connection, to_us(from_), to_us(to)) if not one.credited]
        return [credit for credit in found if credit is not None]
