"""What a report is asked for: a period, what it is split by, and whom it is about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from zoneinfo import ZoneInfo

from billing.errors import PeriodInvalid, ReportInvalid
from billing.reports.zones import STEPS, Step
from billing.when import to_us

TENANT, KEY, MODEL, PRICE, TAGS = "tenant", "key", "model", "price", "tags"
TAG = "tag:"
"""Begins the name of a split by the values of one tag, as `tag:team`."""
USUAL = (TENANT, MODEL)

_MOST_NAMES = 8
_NAMES = (TENANT, KEY, MODEL, PRICE, TAGS, Step.HOUR.value, Step.DAY.value, Step.MONTH.value)
_UTC = ZoneInfo("UTC")


class Source(StrEnum):
    """Where a report reads: sums by quarters of an hour, or each request. Both give the same."""

    ROLL_UPS = "roll-ups"
    ROWS = "rows"


USUAL_SOURCE = Source.ROLL_UPS


@dataclass(frozen=True, slots=True)
class About:
    """Requests of one tenant, key or model, or with certain tags; None means any."""

    tenant: str | None = None
    key: str | None = None
    model: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """Requests that came in within [start, end), split by `by`, whose days are those of `zone`.

    Raises `PeriodInvalid` where an end has no zone or comes first, `ReportInvalid` for a split that there is not.
    """

    start: datetime
    end: datetime
    by: tuple[str, ...] = USUAL
    zone: ZoneInfo = _UTC
    about: About = About()
    source: Source = USUAL_SOURCE
    with_misses: bool = False
    """Also count misses by reason: from rows, each of which is read."""

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise PeriodInvalid(f"{self.start} to {self.end}", "both ends need a time zone")
        if self.end <= self.start:
            ends = f"{self.start.isoformat()} to {self.end.isoformat()}"
            raise PeriodInvalid(ends, "the end must be after the beginning")
        try:
            self.start.astimezone(self.zone), self.end.astimezone(self.zone)
        except OverflowError as error:
            raise PeriodInvalid(f"{self.start.isoformat()} to {self.end.isoformat()}", str(error)) from None
        _refuse_unknown(self.by)

    @property
    def start_us(self) -> int:
        """Of the period."""
        return to_us(self.start)

    @property
    def end_us(self) -> int:
        """Of the period; exclusive."""
        return to_us(self.end)

    @property
    def step(self) -> Step | None:
        """The part of time among `by`."""
        return next((Step(name) for name in self.by if name in STEPS), None)

    @property
    def needs_tags(self) -> bool:
        """Whether the tags of a request matter."""
        return bool(self.about.tags) or any(name == TAGS or name.startswith(TAG) for name in self.by)


def split_names(texts: Iterable[str]) -> tuple[str, ...]:
    """Names of what to split by, from texts of one or several with commas. Raises `ReportInvalid`."""
    names = tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
    _refuse_unknown(names)
    return names


def tag_filter(texts: Iterable[str]) -> dict[str, str]:
    """Tags to look for, from texts as `team=search`. Raises `ReportInvalid`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ReportInvalid(text, "a tag is one as team=search")
        found[name] = value
    return found


def _refuse_unknown(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in _NAMES and not (name.startswith(TAG) and len(name) > len(TAG)):
            raise ReportInvalid(name, f"a report is split by {', '.join(_NAMES)} or {TAG}NAME")
    if len(set(names)) < len(names):
        raise ReportInvalid(",".join(names), "each only once")
    if len(names) > _MOST_NAMES:
        raise ReportInvalid(",".join(names), f"at most {_MOST_NAMES} at once")
    if sum(name in STEPS for name in names) > 1:
        raise ReportInvalid(",".join(names), "only one of hour, day and month")
