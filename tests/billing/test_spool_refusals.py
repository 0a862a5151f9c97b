"""A record that waited and is refused is named in the log with the reason: it is on no bill until somebody looks."""

import logging
from pathlib import Path

import pytest

from billing import open_ledger
from tests.billing.outages import away, until_empty, with_spool
from tests.billing.samples import book, opened

pytestmark = pytest.mark.usefixtures("impatient")


async def test_the_log_says_which_record_was_refused_and_why(
    postgres_url: str, spool_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="billing"):
        async with open_ledger(postgres_url, book(), options=with_spool(spool_folder)) as ledger:
            with away(postgres_url):
                await ledger.open(opened("1"))  # only now it is known that the server is away
                await ledger.open(opened("refused-1", tenant="a\0b"))
            await until_empty(ledger)
    (line,) = (record.getMessage() for record in caplog.records if "refused" in record.getMessage())
    assert "refused-1" in line
    assert "NUL" in line
