"""Points in time as people write them: a date, or a date and time. Without a zone it is UTC. And periods of them."""

import re
from datetime import UTC, datetime, timedelta

from billing.errors import PeriodInvalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime(9999, 12, 31, tzinfo=UTC)


def parse_when(text: str) -> datetime:
    """Read `2026-11-01`, `2026-11-01T09:30`, `2026-11-01T00:00+05:30`. Raises `PeriodInvalid`."""
    try:
        when = datetime.fromisoformat(text.strip())
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PeriodInvalid(
            text, f"not a date or time in ISO form, as 2026-11-01 or 2026-11-01T09:30Z ({error})"
        ) from None


def parse_period(text: str) -> tuple[datetime, datetime]:
    """The first instant of a period, and the first after it, from `2026-11` (a month), `2026-11-15` (a day), or
    `FROM/TO` of what `parse_when` reads. Raises `PeriodInvalid`."""
    first, slash, last = text.strip().partition("/")
    if slash:
        start, end = parse_when(first), parse_when(last)
    elif re.fullmatch(r"\d{4}-\d{2}", first):
        start = parse_when(f"{first}-01")
        end = parse_when(f"{start.year + start.month // 12:04d}-{start.month % 12 + 1:02d}-01")
    elif re.fullmatch(r"\d{4}-\d{2}-\d{2}", first):
        start = parse_when(first)
        end = start + min(timedelta(days=1), _LAST - start)
    else:
        raise PeriodInvalid(text, "a period is a month, 2026-11, a day, 2026-11-15, or FROM/TO")
    if end <= start:
        raise PeriodInvalid(text, "the end must be after the beginning")
    return start, end


def to_us(when: datetime) -> int:
    """Whole microseconds since 1970 of an aware time; exact, as a float of seconds would not be."""
    return (when - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The time that `to_us` came from, in UTC."""
    return _EPOCH + us * _MICROSECOND
