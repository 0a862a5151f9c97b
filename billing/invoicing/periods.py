"""Periods as people write them, by the clocks of a time zone."""

from datetime import datetime

from billing.invoicing.documents import Period
from billing.invoicing.seller_file import zone_of
from billing.when import parse_period, to_us


def period_in(text: str, timezone: str) -> Period:
    """`2026-11`, `2026-11-15`, or `FROM/TO` of dates or times, in a time zone; the end is exclusive.

    Raises `PeriodInvalid`, and `InvoiceInvalid` for a zone that is none.
    """
    return period_of(*parse_period(text, zone_of(timezone)), timezone)


def period_of(start: datetime, end: datetime, timezone: str) -> Period:
    """A period, with its ends as the clocks of a time zone show them."""
    zone = zone_of(timezone)
    texts = (at.astimezone(zone).strftime("%Y-%m-%d %H:%M") for at in (start, end))
    return Period(to_us(start), to_us(end), timezone, *texts)
