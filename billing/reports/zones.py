"""Periods and their parts in a time zone: hours, days and months as its clocks show them.

    instant  + offset of the zone  -->  local hour, day or month  -->  label

                 offset +2:00           |            offset +1:00               Berlin, 2026-10-25
    ... 01:00 +2   |    02:00 +2        |   02:00 +1    |   03:00 +1 ...        25 hours, one day

The offset is constant between two changes of the clocks, so a database finds the part of a row with a division and
one comparison for each change within the period. Every offset since 1972 is a multiple of a quarter of an hour, so are
the borders of all parts, and sums by quarters can be read instead of rows. An hour is named with its offset: one that
comes twice in autumn is two.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from sqlalchemy import BigInteger, ColumnElement, case, literal

from billing.errors import PeriodInvalid
from billing.rollup import QUARTER_US
from billing.when import from_us, parse_period, parse_when, to_us

_HOUR_US = 4 * QUARTER_US
_DAY_US = 24 * _HOUR_US
_MINUTE_US = 60 * 10**6
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MONTHS = 12
_OFFSETS = 1 << 12
"""More than there are minutes between the least and the greatest offset."""


class Step(StrEnum):
    """Parts of a period that a report can be split into."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


STEPS = frozenset(step.value for step in Step)
"""Their names."""


@dataclass(frozen=True, slots=True)
class Span:
    """Instants [start_us, end_us) at which the clocks of a zone are `offset_us` ahead of UTC."""

    start_us: int
    end_us: int
    offset_us: int


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One hour, day or month; parts sort by time."""

    order: int
    label: str


def month_named(text: str, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The first instant of a month, as 2026-11, in a zone, and the first after it. Raises `PeriodInvalid`."""
    if re.fullmatch(r"\d{4}-\d{2}", text.strip()) is None:
        raise PeriodInvalid(text, "a month is one as 2026-11")
    return parse_period(text, zone)


def asked_period(from_: str | None, to: str | None, month: str | None, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The period that is meant by two ends, or by a month. Raises `PeriodInvalid` where it is both or neither."""
    if month is not None:
        if from_ is not None or to is not None:
            raise PeriodInvalid(month, "give a month, or from and to, not both")
        return month_named(month, zone)
    if from_ is None or to is None:
        given = "" if from_ is None and to is None else f"{from_ or ''}/{to or ''}"
        raise PeriodInvalid(given, "which period? give from and to, or a month, as 2026-11")
    start, end = parse_when(from_, zone), parse_when(to, zone)
    if end <= start:
        raise PeriodInvalid(f"{from_}/{to}", "the end must be after the beginning")
    return start, end


def spans(start_us: int, end_us: int, zone: ZoneInfo) -> tuple[Span, ...]:
    """The offsets of a zone within [start_us, end_us), without gaps. O(days + changes × log day)."""
    found: list[Span] = []
    since, offset = start_us, _offset_us(start_us, zone)
    at = start_us
    while at < end_us:
        then = min(at + _DAY_US, end_us)
        later = _offset_us(then, zone)
        if later != offset:
            change = _change_us(at, then, zone)
            found.append(Span(since, change, offset))
            since, offset = change, _offset_us(change, zone)
        at = then
    if since < end_us:
        found.append(Span(since, end_us, offset))
    return tuple(found)


def part_of(instant_us: ColumnElement[int], step: Step, of: tuple[Span, ...], zone: ZoneInfo) -> ColumnElement[int]:
    """SQL of the part in which an instant within `of` lies, as a number for `part_named`."""
    if step is Step.MONTH:
        borders = list(_months(of[0].start_us, of[-1].end_us, zone))
        numbers = [(instant_us < literal(after, BigInteger), number) for (_, number), (after, _) in pairwise(borders)]
        return case(*numbers, else_=borders[-1][1]) if numbers else literal(borders[-1][1], BigInteger)
    ahead = _by_span(instant_us, of, [span.offset_us for span in of])
    if step is Step.DAY:
        return (instant_us + ahead) // _DAY_US
    minutes = _by_span(instant_us, of, [span.offset_us // _MINUTE_US + _OFFSETS // 2 for span in of])
    return (instant_us + ahead) // _HOUR_US * _OFFSETS + minutes


@lru_cache(maxsize=1 << 14)
def part_named(number: int, step: Step) -> Part:
    """The part of a number that `part_of` made."""
    match step:
        case Step.MONTH:
            return Part(number, f"{number // _MONTHS:04d}-{number % _MONTHS + 1:02d}")
        case Step.DAY:
            return Part(number, date.fromordinal(number + _EPOCH_DAY).isoformat())
        case Step.HOUR:
            hour, minutes = divmod(number, _OFFSETS)
            minutes -= _OFFSETS // 2
            local = from_us(hour * _HOUR_US)
            sign = "-" if minutes < 0 else "+"
            offset = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
            return Part(hour * _HOUR_US - minutes * _MINUTE_US, f"{local:%Y-%m-%dT%H}:00{offset}")


def hours_of(instant_us: int, zone: ZoneInfo) -> tuple[int, int]:
    """The hour around an instant as the clocks of a zone show it; cut where they are changed."""
    offset_us = _offset_us(instant_us, zone)
    start_us = (instant_us + offset_us) // _HOUR_US * _HOUR_US - offset_us
    around = spans(start_us, start_us + _HOUR_US, zone)
    span = next(span for span in around if span.start_us <= instant_us < span.end_us)
    return span.start_us, span.end_us


def month_around(instant_us: int, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The first instant of the month of an instant in a zone, and the first after it, in UTC."""
    return month_named(f"{from_us(instant_us).astimezone(zone):%Y-%m}", zone)


def _by_span(instant_us: ColumnElement[int], of: tuple[Span, ...], values: list[int]) -> ColumnElement[int]:
    if len(of) == 1:
        return literal(values[0], BigInteger)
    whens = [(instant_us < literal(span.end_us, BigInteger), value) for span, value in zip(of, values, strict=True)]
    return case(*whens[:-1], else_=values[-1])


def _months(start_us: int, end_us: int, zone: ZoneInfo) -> Iterator[tuple[int, int]]:
    """The beginning of each month that is touched, the first from before `start_us`, and its number."""
    first = from_us(start_us).astimezone(zone)
    number = first.year * _MONTHS + first.month - 1
    while True:
        begin_us = to_us(datetime(number // _MONTHS, number % _MONTHS + 1, 1, tzinfo=zone).astimezone(UTC))
        if begin_us >= end_us:
            return
        yield begin_us, number
        number += 1


def _offset_us(instant_us: int, zone: ZoneInfo) -> int:
    offset = from_us(instant_us).astimezone(zone).utcoffset()
    assert offset is not None, "an aware time has an offset"
    return offset // timedelta(microseconds=1)


def _change_us(before_us: int, after_us: int, zone: ZoneInfo) -> int:
    """The first instant of another offset than that of `before_us`, within a day in which there is one change."""
    offset = _offset_us(before_us, zone)
    while after_us - before_us > 1:
        middle = (before_us + after_us) // 2
        if _offset_us(middle, zone) == offset:
            before_us = middle
        else:
            after_us = middle
    return after_us
