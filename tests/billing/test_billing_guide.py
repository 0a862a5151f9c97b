"""The program that the guide for finance gives away computes every bill again, from the rows alone."""

import ast
import re
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from billing import About
from billing.reports.csv_text import csv_lines
from billing.reports.rows import NUMBERS, usage_columns
from tests.billing.conftest import Where
from tests.billing.test_exports import PERIOD, PICO, PRICES, charged, mixed, rows_of
from tests.billing.test_report_splits import write

PAGE = Path(__file__).parents[2] / "docs" / "billing-guide.md"


async def test_the_program_of_the_guide_prints_what_is_payable(where: Where, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    await write(where, PRICES, mixed())
    for query in (PERIOD, replace(PERIOD, about=About(tenant="acme"))):
        text = "".join(csv_lines(usage_columns(), rows_of(where, query), NUMBERS))
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
        (line,) = done.stdout.splitlines()  # and none that says that a row differs
        assert Decimal(ast.literal_eval(line)["USD"]) * PICO == charged(where, query)
