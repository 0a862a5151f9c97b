"""Points in time as people write them: a date, or a date and time. And periods of them.

Where no zone is written it is UTC, or the zone that the caller names: a month of Tokyo begins at 15:00 UTC, and a day
of Berlin may have 23 or 25 hours.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from billing.errors import PeriodInvalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAYS = re.compile(r"\d{4}-\d{2}(-\d{2})?")


def zone_named(name: str) -> ZoneInfo:
    """The time zone of an IANA name, as Asia/Kolkata. Raises `PeriodInvalid`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PeriodInvalid(name, "no time zone of this name; it is one as Asia/Tokyo or UTC") from None


def parse_when(text: str, zone: tzinfo = UTC) -> datetime:
    """Read `2026-11-01`, `2026-11-01T09:30`, `2026-11-01T00:00+05:30` as UTC. Raises `PeriodInvalid`."""
    try:
        when = datetime.fromisoformat(text.strip())
        return (when.replace(tzinfo=zone) if when.tzinfo is None else when).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PeriodInvalid(
            text, f"not a date or time in ISO form, as 2026-11-01 or 2026-11-01T09:30Z ({error})"
        ) from None


def parse_period(text: str, zone: tzinfo = UTC) -> tuple[datetime, datetime]:
    """The first instant of a period, and the first after it, from `2026-11` (a month), `2026-11-15` (a day), or
    `FROM/TO` of what `parse_when` reads. Raises `PeriodInvalid`."""
    first, slash, last = text.strip().partition("/")
    if not slash:
        if _DAYS.fullmatch(first) is None:
            raise PeriodInvalid(text, "a period is a month, 2026-11, a day, 2026-11-15, or FROM/TO")
        first, last = _days(first)
    start, end = parse_when(first, zone), parse_when(last, zone)
    if end <= start:
        raise PeriodInvalid(text, "the end must be after the beginning")
    return start, end


def _days(text: str) -> tuple[str, str]:
    """The first date of a month or a day, and the first after it; not looked at whether there are such dates."""
    year, month, *day = map(int, text.split("-"))
    if not day:
        return f"{text}-01", f"{year + month // 12:04d}-{month % 12 + 1:02d}-01"
    try:
        return text, (date(year, month, *day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError) as error:
        raise PeriodInvalid(text, f"no such day ({error})") from None


def to_us(when: datetime) -> int:
    """Whole microseconds since 1970 of an aware time; exact, as a float of seconds would not be."""
    return (when - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The time that `to_us` came from, in UTC."""
    return _EPOCH + us * _MICROSECOND
