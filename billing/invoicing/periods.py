"""Periods as people write them, by the clocks of a time zone."""

import re
from datetime import datetime, timedelta, tzinfo

from billing.errors import PeriodInvalid
from billing.invoicing.documents import Period
from billing.invoicing.seller_file import zone_of
from billing.when import to_us


def period_in(text: str, timezone: str) -> Period:
    """`2026-11`, `2026-11-15`, or `FROM/TO` of dates or times, in a time zone; the end is exclusive.

    Raises `PeriodInvalid`, and `InvoiceInvalid` for a zone that is none.
    """
    zone = zone_of(timezone)
    first, slash, last = text.strip().partition("/")
    if slash:
        start, end = _wall(first, text), _wall(last, text)
    elif re.fullmatch(r"\d{4}-\d{2}", first):
        start = _wall(f"{first}-01", text)
        end = (start + timedelta(days=31)).replace(day=1)
    elif re.fullmatch(r"\d{4}-\d{2}-\d{2}", first):
        start = _wall(first, text)
        end = start + timedelta(days=1)
    else:
        raise PeriodInvalid(text, "a period is a month, 2026-11, a day, 2026-11-15, or FROM/TO")
    begins, ends = _placed(start, zone), _placed(end, zone)
    if ends <= begins:
        raise PeriodInvalid(text, "the end must be after the beginning")
    return period_of(begins, ends, timezone)


def period_of(start: datetime, end: datetime, timezone: str) -> Period:
    """A period, with its ends as the clocks of a time zone show them."""
    zone = zone_of(timezone)
    texts = (at.astimezone(zone).strftime("%Y-%m-%d %H:%M") for at in (start, end))
    return Period(to_us(start), to_us(end), timezone, *texts)


def _wall(text: str, whole: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise PeriodInvalid(whole, f"not a date or time in ISO form: {error}") from None


def _placed(at: datetime, zone: tzinfo) -> datetime:
    """A time of a clock as an instant; where a zone is written, that one."""
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)
