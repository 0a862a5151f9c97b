"""A preview of the invoice of a tenant's month: what is issued of it, and what would be drafted now. Nothing is kept.

The files of seller, prices and plans are read anew for each preview, as the commands read them.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from billing import BillingError, LedgerUnavailable, PriceBook, ReportTooSlow
from billing.invoicing import (
    Document,
    Drafting,
    InvoiceBook,
    money_text,
    page_of,
    period_in,
    plans_from,
    read_seller,
    render_html,
)
from billing.prices.plans_file import load_plans
from gateway.config import Config, ledger_place
from gateway.errors import BadRequest, NotFound, Unavailable
from gateway.ui.asked import Asked
from gateway.ui.kept import Kept
from gateway.ui.types import JsonPage

_KEPT_S: Final = 10.0
DEADLINE_S: Final = 10.0
_MONTH: Final = 7
"""Characters of 2026-11."""


@dataclass(frozen=True, slots=True)
class InvoicePreviews:
    """One per process."""

    config: Config
    wall: Callable[[], datetime]
    kept: Kept
    threads: Executor | None = None

    @classmethod
    def of(cls, config: Config, wall: Callable[[], datetime], threads: Executor | None = None) -> "InvoicePreviews":
        """With nothing kept. The ledger is read in the threads, or the loop's own."""
        return cls(config, wall, Kept(_KEPT_S), threads)

    def find(self, name: str) -> JsonPage | None:
        """The page of `invoices/TENANT/MONTH`."""
        tenant, _, month = name.removeprefix("invoices/").rpartition("/")
        return JsonPage(lambda _: self._page(tenant, month)) if tenant and name.startswith("invoices/") else None

    async def html(self, name: str, asked: Asked) -> str:
        """One of the documents of `TENANT/MONTH`, as it would be printed. Raises as the page does."""
        tenant, _, month = name.rpartition("/")
        documents = await self._documents(tenant, month)
        number = asked.number("document", 1, max(len(documents), 1))
        return await asyncio.to_thread(lambda: render_html(page_of(documents[number - 1])))

    async def _page(self, tenant: str, month: str) -> dict[str, Any]:
        documents = await self._documents(tenant, month)
        where = f"invoices/{quote(tenant, safe='')}/{quote(month, safe='')}.html"
        return {
            "as_of": self.wall().isoformat(),
            "tenant": tenant,
            "month": month,
            "documents": [
                {"html": f"{where}?document={number}", **_shown(one)} for number, one in enumerate(documents, 1)
            ],
        }

    async def _documents(self, tenant: str, month: str) -> Sequence[Document]:
        if self.config.invoicing_file is None:
            raise NotFound("there are no invoices: the configuration has no invoicing_file, which names the seller")
        if len(month) != _MONTH:
            raise BadRequest(f"a month is one as 2026-11, not {month[:20]!r}")

        async def read() -> Sequence[Document]:
            return await asyncio.get_running_loop().run_in_executor(self.threads, self._read, tenant, month)

        found: Sequence[Document] = await self.kept.get(f"{tenant}/{month}", read)
        if not found:
            raise NotFound(f"{tenant[:100]} used nothing in {month}")
        return found

    def _read(self, tenant: str, month: str) -> Sequence[Document]:
        """Blocks, each statement for `DEADLINE_S` at most. Raises `BadRequest`, `Unavailable`."""
        config = self.config
        assert config.invoicing_file is not None, "looked at before"
        try:
            seller = read_seller(config.invoicing_file)
            prices = PriceBook.empty() if config.prices_file is None else PriceBook.load(config.prices_file)
            plans = None if config.plans_file is None else load_plans(config.plans_file)
            book = InvoiceBook(ledger_place(config), clock=self.wall)
            drafting = Drafting(book, seller, plans_from(plans, prices))
            return drafting.preview(tenant, period_in(month, seller.timezone), DEADLINE_S)
        except ReportTooSlow:
            raise Unavailable(
                f"this month is more than can be previewed within {DEADLINE_S:g} s: "
                f"`prefixgate invoice draft {tenant[:100]} {month}` takes its time"
            ) from None
        except LedgerUnavailable:
            raise Unavailable("the ledger cannot be read at the moment; try again") from None
        except BillingError as error:
            raise BadRequest(str(error)) from None


def _shown(document: Document) -> Mapping[str, Any]:
    currency = document.currency
    return {
        "number": document.number or None,
        "kind": document.kind.value,
        "currency": currency,
        "period": {"from": document.period.start_text, "to_exclusive": document.period.end_text},
        "time_zone": document.period.timezone,
        "net": _plain(document.net_minor, currency),
        "tax": _plain(document.tax_minor, currency),
        "total": _plain(document.total_minor, currency),
        "lines": [
            {
                "group": line.group,
                "description": line.description,
                "quantity": None if line.quantity is None else str(line.quantity),
                "unit": line.unit or None,
                "unit_price": line.unit_price or None,
                "amount": _plain(line.amount_minor, currency),
            }
            for line in document.lines
        ],
    }


def _plain(minor: int, currency: str) -> str:
    return money_text(minor, currency).replace(",", "")
