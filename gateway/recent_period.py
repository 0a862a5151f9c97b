"""Periods that are asked for over HTTP by admins: two instants, by default the last day."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from fastapi import HTTPException, Query

from billing import PeriodInvalid, parse_when

DEFAULT_PERIOD: Final = timedelta(days=1)

From = Annotated[str | None, Query(alias="from", description="First instant, ISO time, UTC; default: a day before.")]
To = Annotated[str | None, Query(description="First instant after the period; default: now.")]


def recent_period(now: datetime, from_: str | None, to: str | None) -> tuple[datetime, datetime]:
    """The period that is meant, as far as it has been; its end may be before its start. Raises `HTTPException`, 400."""
    try:
        end = now if to is None else min(parse_when(to), now)
        return (end - DEFAULT_PERIOD if from_ is None else parse_when(from_)), end
    except (PeriodInvalid, OverflowError) as error:
        raise HTTPException(400, str(error)) from None
