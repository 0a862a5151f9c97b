"""What plans bring: the same statement as on the invoice, for months alone."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.economics import Assumptions, CostReport, PlanRevenue, PlanTerms, cost_report, ledgers, plan_revenue
from billing.economics.sheets import plans_sheet, tenants_sheet
from billing.money import PICO
from billing.prices.plans_file import parse_plans
from billing.when import to_us
from tests.billing.economics.fleet import Asked, costs, write
from tests.billing.samples import book

MONTH = datetime(2025, 11, 1, tzinfo=UTC), datetime(2025, 12, 1, tzinfo=UTC)
WEEK = MONTH[0], datetime(2025, 11, 20, tzinfo=UTC)
PLANS = """
currency: USD
plans:
  - {id: flat, name: Flat, monthly_fee: 20, included: [{bucket: input, tokens: 1000}]}
  - {id: euro, name: Euro, currency: EUR, monthly_fee: 5}
tenants:
  acme: [{plan: flat, from: 2025-11-01}]
  idle: [{plan: flat, from: 2025-11-01, to: 2025-12-01}]
  over-there: [{plan: euro, from: 2025-11-01}]
"""
GIVEN_BACK = 200 * 1_250_000
"""200 fresh tokens, all of them included."""


async def found(path: Path, period: tuple[datetime, datetime]) -> tuple[list[PlanRevenue], CostReport]:
    await write(path, [Asked("r1"), Asked("r2", tenant="umbra")])
    with ledgers([path]) as opened:
        plans = list(plan_revenue(opened, PlanTerms(parse_plans(PLANS), book(), "USD"), *period))
        return plans, cost_report(opened, costs(), to_us(period[0]), to_us(period[1]), Assumptions(plans=plans))


async def test_a_plan_brings_its_fee_less_what_it_includes_used_or_not(ledger_path: Path) -> None:
    plans, report = await found(ledger_path, MONTH)
    assert plans == [
        PlanRevenue("acme", "flat", 20 * PICO - GIVEN_BACK),
        PlanRevenue("idle", "flat", 20 * PICO),
        PlanRevenue("over-there", "euro", None),
    ]
    revenue = {tenant: one.revenue_pico for tenant, one in report.by_tenant().items()}
    charged = 200 * 1_250_000 + 800 * 125_000 + 100 * 10_000_000
    assert revenue == {"acme": charged + 20 * PICO - GIVEN_BACK, "idle": 20 * PICO, "umbra": charged}
    assert {row[0]: row[1] for row in plans_sheet(report).rows} == {"flat": 2, "(none)": 1}


async def test_of_a_period_that_is_no_month_what_plans_bring_is_unknown_and_said(ledger_path: Path) -> None:
    plans, report = await found(ledger_path, WEEK)
    assert [(one.plan_id, one.beside_pico) for one in plans] == [("flat", None), ("flat", None), ("euro", None)]
    assert "acme, idle, over-there" in plans_sheet(report).notes[0]
    assert report.by_tenant()["acme"].fees_pico == 0


@pytest.mark.parametrize("period", [MONTH, WEEK])
async def test_the_lines_of_tenants_add_up_to_the_total(ledger_path: Path, period: tuple[datetime, datetime]) -> None:
    _, report = await found(ledger_path, period)
    rows = tenants_sheet(report).rows
    for column in range(3, 8):
        assert sum(row[column] or 0 for row in rows[:-1]) == rows[-1][column]  # type: ignore[misc]
