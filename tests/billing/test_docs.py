"""The page on billing names every state, flag, convention and table."""

import re
from pathlib import Path

from billing import SettlementState, UsageFlag
from billing.reports.tally import STATES
from billing.schema import metadata

PAGE = (Path(__file__).parents[2] / "docs" / "billing.md").read_text("utf-8")


def test_every_word_of_a_bill_is_explained() -> None:
    words = {*SettlementState, *UsageFlag, *STATES, *metadata.tables, "openai", "responses", "anthropic", "deepseek"}
    assert words - set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, flags=re.MULTILINE)) == set()
