"""Points in time as people write them: a date, or a date and time. Without a zone it is UTC."""

from datetime import UTC, datetime, timedelta

from billing.errors import PeriodInvalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def parse_when(text: str) -> datetime:
    """Read `2026-11-01`, `2026-11-01T09:30`, `2026-11-01T00:00+05:30`. Raises `PeriodInvalid`."""
    try:
        when = datetime.fromisoformat(text.strip())
        return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise PeriodInvalid(
            text, f"not a date or time in ISO form, as 2026-11-01 or 2026-11-01T09:30Z ({error})"
        ) from None


def to_us(when: datetime) -> int:
    """Whole microseconds since 1970 of an aware time; exact, as a float of seconds would not be."""
    return (when - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The time that `to_us` came from, in UTC."""
    return _EPOCH + us * _MICROSECOND
