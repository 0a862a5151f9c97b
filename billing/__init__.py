"""What it cost and who pays: usage, prices, and a ledger that loses nothing it acknowledged.

UsageMerger      what engines report, in any shape  -> UsageReport               (usage)
PriceBook        the price of a model at a time, from YAML                       (prices.book, prices.file)
charge           disjoint tokens x price -> pico-units                           (prices.pricing, money)
open_ledger      SQLite or PostgreSQL, one writing thread, group commit    (ledger, writer, store, batch, schema)
reading          the ledger of a path or URL, to be read only                     (reading)
report           tokens and money of a period, split as asked                    (reports)
Quotas           limits and budgets: reserve before, settle after                (quotas)
groups_of        what of a period can be replayed, and what was measured of it    (replay)
measured_work    ... and what each of them took                                   (replay_speed)
"""

from billing.errors import (
    BillingError,
    LedgerUnavailable,
    PeriodInvalid,
    PricesInvalid,
    ReportInvalid,
    ReportTooSlow,
    RowRefused,
)
from billing.ledger import Ledger, LedgerOptions, open_ledger
from billing.prices.book import PriceBook
from billing.prices.pricing import Charge, Price, charge
from billing.quotas.periods import Periods
from billing.quotas.redis_counters import QuotaRedis
from billing.quotas.reserving import Down, QuotaOptions, Quotas, QuotaUnavailable
from billing.quotas.types import Allowance, Ask, Budget, Granted, LimitKind, Outcome, Per, Purse, Quota, Refused, Room
from billing.reading import reading
from billing.replay import Group, LedgerPeriod, PastRequest, Recorded, groups_of, past_requests, recorded
from billing.replay_speed import MeasuredWork, measured_work
from billing.reports.query import About, Query, Source
from billing.reports.report import Line, Report, report, report_of
from billing.reports.tally import Tally
from billing.reports.text import render_csv, render_json, render_table
from billing.types import (
    ANSWERED,
    PREFILLED,
    Attempt,
    Buckets,
    Correction,
    CorrectionKind,
    EngineSample,
    KeptChain,
    OpenedRequest,
    Settlement,
    SettlementState,
    Usage,
    UsageFlag,
    UsageReport,
    Verdict,
)
from billing.usage import UsageMerger
from billing.when import parse_period, parse_when

__all__ = [
    "ANSWERED",
    "PREFILLED",
    "About",
    "Allowance",
    "Ask",
    "Attempt",
    "BillingError",
    "Buckets",
    "Budget",
    "Charge",
    "Correction",
    "CorrectionKind",
    "Down",
    "EngineSample",
    "Granted",
    "Group",
    "KeptChain",
    "Ledger",
    "LedgerOptions",
    "LedgerPeriod",
    "LedgerUnavailable",
    "LimitKind",
    "Line",
    "MeasuredWork",
    "OpenedRequest",
    "Outcome",
    "PastRequest",
    "Per",
    "PeriodInvalid",
    "Periods",
    "Price",
    "PriceBook",
    "PricesInvalid",
    "Purse",
    "Query",
    "Quota",
    "QuotaOptions",
    "QuotaRedis",
    "QuotaUnavailable",
    "Quotas",
    "Recorded",
    "Refused",
    "Report",
    "ReportInvalid",
    "ReportTooSlow",
    "Room",
    "RowRefused",
    "Settlement",
    "SettlementState",
    "Source",
    "Tally",
    "Usage",
    "UsageFlag",
    "UsageMerger",
    "UsageReport",
    "Verdict",
    "charge",
    "groups_of",
    "measured_work",
    "open_ledger",
    "parse_period",
    "parse_when",
    "past_requests",
    "reading",
    "recorded",
    "render_csv",
    "render_json",
    "render_table",
    "report",
    "report_of",
]
