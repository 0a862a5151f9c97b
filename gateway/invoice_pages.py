"""A tenant's invoices over HTTP, with its own key: no drafts, and nothing of anybody else.

GET /prefixgate/v1/invoices                 what was issued to the tenant, newest first
GET /prefixgate/v1/invoices/NUMBER.html     one of them; also .pdf, and .json for its data
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from billing import LedgerUnavailable
from billing.invoicing import (
    InvoiceInvalid,
    Issued,
    document_json,
    issued_to,
    money_text,
    page_of,
    read_seller,
    render_html,
)
from billing.reading import reading
from gateway.errors import NotFound
from gateway.report_rates import Rates
from gateway.status import Answer

INVOICES_PATH: Final = "/prefixgate/v1/invoices"
_TYPES: Final = {"html": b"text/html; charset=utf-8", "pdf": b"application/pdf", "json": b"application/json"}


def invoice_pages(where: Path | str, invoicing_file: Path | None) -> "InvoicePages":
    """The pages, with the fonts that the seller's file names. Raises `InvoiceInvalid` where that cannot be used."""
    fonts = () if invoicing_file is None else read_seller(invoicing_file).fonts
    return InvoicePages(where, Rates(time.monotonic), fonts)


class InvoicePages:
    """The pages; read and drawn in a thread of their own, so no request waits for them. `close` ends it."""

    def __init__(self, where: Path | str, rates: Rates, fonts: Sequence[Path] = ()) -> None:
        self._where = where
        self._rates = rates
        self._fonts = tuple(fonts)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="invoices")

    def close(self) -> None:
        """Take no more questions."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def of_tenant(self, tenant: str, path: str, _query_string: str = "") -> Answer:
        """What a tenant asks about itself. Raises `NotFound`, `RateLimited`, `LedgerUnavailable`."""
        with self._rates.turn_of(tenant):
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._page, tenant, path)
            except InvoiceInvalid as error:
                raise LedgerUnavailable(str(error)) from None

    def _page(self, tenant: str, path: str) -> Answer:
        with reading(self._where) as connection:
            found = issued_to(connection, tenant)
        if path == INVOICES_PATH:
            return _answer("json", json.dumps({"invoices": [_listed(one) for one in found]}).encode())
        number, _, ending = unquote(path.removeprefix(f"{INVOICES_PATH}/")).rpartition(".")
        for one in found:
            if one.document.number == number and ending in _TYPES:
                return self._printed(one, ending)
        raise NotFound("there is no such invoice of yours")

    def _printed(self, issued: Issued, ending: str) -> Answer:
        page = page_of(issued.document, issued.sha256)
        if ending == "json":
            return _answer(ending, document_json(issued.document).encode())
        if ending == "html":
            return _answer(ending, render_html(page).encode())
        from billing.invoicing.pdf_page import render_pdf  # noqa: PLC0415 - not needed to serve

        return _answer(ending, render_pdf(page, self._fonts))


def _listed(issued: Issued) -> Mapping[str, object]:
    document = issued.document
    return {
        "number": document.number,
        "kind": document.kind.value,
        "seller": document.seller.name,
        "issued_on": document.issued_on,
        "due_on": document.due_on or None,
        "period": {
            "from": document.period.start_text,
            "to_exclusive": document.period.end_text,
            "time_zone": document.period.timezone,
        },
        "currency": document.currency,
        "total": money_text(document.total_minor, document.currency).replace(",", ""),
        "of_invoice": document.references or None,
        "sha256": issued.sha256,
        "html": f"{INVOICES_PATH}/{quote(document.number, safe='')}.html",
        "pdf": f"{INVOICES_PATH}/{quote(document.number, safe='')}.pdf",
    }


def _answer(ending: str, body: bytes) -> Answer:
    headers = ((b"content-type", _TYPES[ending]), (b"cache-control", b"private, no-store"))
    return Answer(200, headers, body)
