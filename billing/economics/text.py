"""A cost report, and jobs, as tables, CSV or JSON."""

import json
from collections.abc import Iterable, Sequence

from rich.table import Table

from billing.economics.report import CostReport
from billing.economics.sheet import Sheet, sheet_csv, sheet_rows, sheet_table
from billing.money import amount_text
from billing.when import from_us

FileValue = object
"""What JSON can hold."""


def tables(sheets: Iterable[Sheet], currency: str) -> list[Table]:
    """Those with rows, for eyes."""
    return [sheet_table(sheet, currency) for sheet in sheets if sheet.rows]


def csv_of(sheet: Sheet) -> str:
    """One sheet for a spreadsheet."""
    return sheet_csv(sheet)


def plain(sheets: Iterable[Sheet]) -> dict[str, FileValue]:
    """Sheets by name: columns, rows and notes as plain data."""
    return {
        sheet.name: {"title": sheet.title, "rows": list(sheet_rows(sheet)), "notes": list(sheet.notes)}
        for sheet in sheets
    }


def cost_json(report: CostReport, sheets: Sequence[Sheet]) -> dict[str, FileValue]:
    """All of a report as plain data. `amount_cost` is `amount_busy` and `amount_idle` together, to the last digit."""
    account = report.account
    return {
        "internal": True,
        "from": from_us(account.start_us).isoformat(),
        "to": from_us(account.end_us).isoformat(),
        "currency": account.currency,
        "amount_cost": amount_text(account.cost_pico),
        "amount_busy": amount_text(sum(one.busy_pico for one in account.endpoints)),
        "amount_idle": amount_text(account.idle_pico),
        "sheets": plain(sheets),
    }


def json_text(found: FileValue) -> str:
    """Plain data as text."""
    return json.dumps(found, indent=2)
