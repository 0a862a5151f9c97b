"""Invoices a finance person accepts: out of the ledger, numbered without a gap, and never changed.

read_seller      who sends, who pays, which taxes                       (seller_file)
Drafting         ledger -> draft, close of a period                     (drafting, ledger_usage, compose, amounts)
plans_from       plans and volume tiers, as rows of a draft             (plan_charges)
period_in        periods by the clocks of a time zone                   (periods)
InvoiceBook      draft -> issued, and credit notes                      (book, tables, credit_notes)
page_of          what stands on it; render_html places it               (page, html_page)
render_pdf       ... and so does this, in a module to import by itself  (pdf_page, fonts)
Document         the data of all of them, its JSON and its digest       (documents, minor_units)
"""

from billing.invoicing.book import Draft, InvoiceBook, Issued, issued_to
from billing.invoicing.compose import Facts, PlanCharge, Planned, draft
from billing.invoicing.credit_notes import credit_all, credit_part, minor_from_text
from billing.invoicing.documents import (
    Document,
    DocumentKind,
    InvoiceInvalid,
    LineKind,
    Party,
    Period,
    digest_of,
    document_json,
    document_of,
)
from billing.invoicing.drafting import Drafting, PlanOf, no_plan
from billing.invoicing.html_page import render_html
from billing.invoicing.minor_units import money_text
from billing.invoicing.page import Page, page_of
from billing.invoicing.periods import period_in, period_of
from billing.invoicing.plan_charges import plans_from
from billing.invoicing.seller_file import Seller, read_seller, zone_of

__all__ = [
    "Document",
    "DocumentKind",
    "Draft",
    "Drafting",
    "Facts",
    "InvoiceBook",
    "InvoiceInvalid",
    "Issued",
    "LineKind",
    "Page",
    "Party",
    "Period",
    "PlanCharge",
    "PlanOf",
    "Planned",
    "Seller",
    "credit_all",
    "credit_part",
    "digest_of",
    "document_json",
    "document_of",
    "draft",
    "issued_to",
    "minor_from_text",
    "money_text",
    "no_plan",
    "page_of",
    "period_in",
    "period_of",
    "plans_from",
    "read_seller",
    "render_html",
    "zone_of",
]
