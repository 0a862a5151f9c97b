"""Sheets for eyes, spreadsheets and programs: the same figures, no formula, nothing unknown shown as nothing."""

import csv
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from billing import Usage
from billing.economics import (
    Assumptions,
    ComparedPrice,
    CostReport,
    PlanRevenue,
    cost_json,
    cost_report,
    cost_sheets,
    csv_of,
    job_report,
    jobs_sheet,
    json_text,
    ledgers,
    plain,
    tables,
)
from billing.economics.sheet import Column, Kind, Sheet
from billing.money import PICO, amount_text
from billing.when import to_us
from tests.billing.economics.fleet import Asked, costs, moment, rate, write

HOUR = to_us(moment(0)), to_us(moment(3600))
NAMES = ["endpoints", "tokens", "tenants", "plans", "users", "heaviest", "discounts", "fills", "api"]


@pytest.fixture
async def report(ledger_path: Path) -> CostReport:
    await write(
        ledger_path,
        [
            Asked("r1", 0, user="h1", job="=1+1", group="g", chain=b"a" * 8, usage=Usage(100, 0, 100)),
            Asked("r2", 20, 12, user="h2", job="run", prefill_s=3.0, usage=Usage(1400, 800, 100)),
            Asked("r3", 40, tenant="=cmd()", prefill_s=None),
            Asked("r4", 60, tenant="umbra", model="unpriced"),
            Asked("r5", 80, tenant="umbra", group="g", chain=b"a" * 8, usage=Usage(100, 100, 100)),
        ],
    )
    assumed = Assumptions(
        api_prices=[ComparedPrice("theirs", "USD", 10**6, 10**7, 10**5, "2025-11"), ComparedPrice("far", "EUR", 1, 1)],
        plans=[PlanRevenue("acme", "flat", 5 * PICO), PlanRevenue("umbra", "flat", None)],
    )
    with ledgers([ledger_path]) as opened:
        return cost_report(opened, costs(rate(), rate("spare", 7)), *HOUR, assumed)


def shown(sheets: list[Sheet]) -> str:
    out = io.StringIO()
    console = Console(file=out, width=400)
    for table in tables(sheets, "USD"):
        console.print(table)
    return out.getvalue()


def test_all_sheets_are_there_with_as_many_cells_as_columns(report: CostReport) -> None:
    sheets = cost_sheets(report)
    assert [sheet.name for sheet in sheets] == NAMES
    for sheet in sheets:
        assert sheet.rows
        assert {len(row) for row in sheet.rows} == {len(sheet.columns)}


def test_each_sheet_says_the_same_in_csv_and_in_json(report: CostReport) -> None:
    for sheet in cost_sheets(report):
        lines = list(csv.DictReader(io.StringIO(csv_of(sheet))))
        rows = json.loads(json_text(plain([sheet])))[sheet.name]["rows"]
        assert len(lines) == len(rows) == len(sheet.rows)
        for line, row in zip(lines, rows, strict=True):
            said = {name: "" if value is None else str(value) for name, value in row.items()}
            assert {name: text.removeprefix("'") for name, text in line.items()} == said


def test_no_name_of_a_tenant_is_run_as_a_formula(report: CostReport) -> None:
    for sheet in cost_sheets(report):
        assert all(not cell.startswith("=") for line in csv.reader(io.StringIO(csv_of(sheet))) for cell in line)


def test_the_json_says_that_it_is_internal_and_adds_up(report: CostReport) -> None:
    said = cost_json(report, cost_sheets(report))
    assert said["internal"] is True
    assert said["amount_cost"] == amount_text(report.account.cost_pico) == "3607.000000000000"
    busy, idle = (round(Fraction(str(said[name])) * PICO) for name in ("amount_busy", "amount_idle"))
    assert busy + idle == report.account.cost_pico


def test_the_parts_of_an_endpoint_are_its_cost(report: CostReport) -> None:
    sheet = cost_sheets(report)[0]
    names = [column.name for column in sheet.columns]
    for row in sheet.rows:
        cells = dict(zip(names, row, strict=True))
        parts = ("fresh", "cached", "output", "unmeasured", "lost", "idle")
        assert sum(cells[f"amount_{part}"] for part in parts) == cells["amount_cost"]  # type: ignore[misc]


def test_what_is_unknown_is_a_dash_and_what_is_left_out_is_counted(report: CostReport) -> None:
    text = shown(cost_sheets(report))
    assert "1 not in the revenue" in text
    assert "1 call not measured" in text
    assert "In another currency and left out: 1 price." in text
    assert "not in the revenue of umbra" in text
    assert "(endpoints that nobody used)" in text
    assert "–" in text


def test_who_filled_and_who_used_is_told_for_groups_that_share(report: CostReport) -> None:
    sheet = next(sheet for sheet in cost_sheets(report) if sheet.name == "fills")
    assert [row[:5] for row in sheet.rows] == [
        ("g", "llama", "acme", "(first fill)", 100),
        ("g", "llama", "acme", "umbra", 100),
    ]


async def test_jobs_are_shown_dearest_first_and_only_so_many(ledger_path: Path, report: CostReport) -> None:
    with ledgers([ledger_path]) as opened:
        found = job_report(opened, costs(), *HOUR)
    sheet = jobs_sheet(found.jobs, with_cost=True, most=1)
    assert [(row[1], row[4]) for row in sheet.rows] == [("run", 1)]
    assert sheet.notes == ["and 1 more"]
    assert not [column for column in jobs_sheet({}, with_cost=False, most=1).columns if "cost" in column.name]
    assert "'=1+1" in csv_of(jobs_sheet(found.jobs, with_cost=True, most=9))
    assert report.account.currency == "USD"


@pytest.mark.parametrize(
    ("largest", "text"),
    [
        (1, "0.000000"),
        (-1, "0.000000"),
        (PICO // 3, "0.333333"),
        (2 * PICO // 3 + 1, "0.666667"),
        (-5 * PICO, "-5.0000"),
        (1234567 * PICO + PICO // 2, "1,234,567.50"),
    ],
)
def test_amounts_have_the_places_that_they_need(largest: int, text: str) -> None:
    sheet = Sheet("s", "S", [Column("amount_a", Kind.AMOUNT, "A")], [[largest]])
    assert shown([sheet]).split()[-1] == text


def test_a_price_of_a_part_of_a_cent_keeps_its_places_beside_a_large_cost() -> None:
    columns = [Column("amount_price", Kind.AMOUNT, "Price"), Column("amount_cost", Kind.AMOUNT, "Cost")]
    sheet = Sheet("s", "S", columns, [[PICO // 3000, 2000 * PICO], [5000 * PICO, 3000 * PICO], [0, None]])
    words = shown([sheet]).split()[-6:]
    assert words == ["0.000333", "2,000.00", "5,000.000000", "3,000.00", "0.000000", "–"]


def test_a_rate_is_per_million_tokens_and_a_count_has_its_thousands(report: CostReport) -> None:
    columns = [Column("per_mtok", Kind.PER_MTOK, "R"), Column("n", Kind.COUNT, "N"), Column("s", Kind.SHARE, "S")]
    sheet = Sheet("s", "S", columns, [[Fraction(10**6, 3), 1234, 0.5]])
    assert shown([sheet]).split()[-3:] == ["0.333333", "1,234", "50.0%"]
    assert csv_of(sheet).splitlines()[1] == "0.333333333333,1234,0.5"
