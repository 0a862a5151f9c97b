"""What a token cost, and what is left of what was paid for it. For the operator: nothing of it is in a tenant's file.

costs file --> CostBook                         rates
ledger     --> calls, what they earned          rows
           --> an hour split among its calls    split   (pure, exact)
           --> the account of a period          account
           --> margins, discount, first fills, API or own, jobs     margin, discount, fills, break_even, report
           --> sheets: table, CSV, JSON         sheets, sheet, text
"""

from billing.economics.break_even import ComparedPrice, public_prices
from billing.economics.plan_revenue import PlanTerms, plan_revenue
from billing.economics.rates import CostBook, EndpointRate
from billing.economics.report import Assumptions, CostReport, JobReport, PlanRevenue, cost_report, job_report
from billing.economics.rows import Ledgers, ledgers
from billing.economics.sheets import cost_sheets, jobs_sheet
from billing.economics.text import cost_json, csv_of, json_text, plain, tables

__all__ = [
    "Assumptions",
    "ComparedPrice",
    "CostBook",
    "CostReport",
    "EndpointRate",
    "JobReport",
    "Ledgers",
    "PlanRevenue",
    "PlanTerms",
    "cost_json",
    "cost_report",
    "cost_sheets",
    "csv_of",
    "job_report",
    "jobs_sheet",
    "json_text",
    "ledgers",
    "plain",
    "plan_revenue",
    "public_prices",
    "tables",
]
