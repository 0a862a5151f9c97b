"""Traffic by spans of time, for a chart: hit shares beside what could have been, seconds to the first token and between
tokens. Read from rows, since roll-ups know neither.

    requests -- settlements --by span, state, reason of a miss--> sums
                            --by span, bucket of seconds--------> counts, of which percentiles are read

*The ceiling.* A settlement says how many tokens would have been cached but for the reason of its miss. Of the reasons,
`AVOIDABLE` are those of blocks that had been computed before and were not kept where they were needed: evicted, lost in
a restart, forgotten, or at another endpoint. With them added, the hit share is what it would have been had every block
ever seen been kept where it could be used. It is at most too low: a miss of less than a block is not looked at, and of
some misses the tokens are not known (`unknown_misses`).

*Percentiles.* Seconds are counted in buckets, `PER_DECADE` to a factor of ten, and a percentile is taken to lie in its
bucket as if values were spread evenly on a logarithmic scale: at most 21 % off, and 10 % where they are.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, RowMapping, case, func, literal_column, select

from billing.reports.reading import one_view
from billing.reports.sums import ROWS
from billing.schema import requests, settlements
from billing.types import SettlementState, UsageFlag
from billing.verification.columns import miss_kind
from billing.verification.verdicts import MissReason

PER_DECADE: Final = 12
BOUNDS_S: Final = tuple(10 ** (step / PER_DECADE) for step in range(-4 * PER_DECADE, 3 * PER_DECADE + 1))
"""Upper bounds of the buckets, 0.1 ms to 1,000 s; beyond there is one more."""
AVOIDABLE: Final = frozenset(
    (MissReason.EVICTED, MissReason.RESTARTED, MissReason.ROUTED_ELSEWHERE, MissReason.EXPIRED)
)
"""Reasons of misses of what had been computed before."""
_FAILED: Final = frozenset((SettlementState.FAILED.value, SettlementState.INTERRUPTED.value))
_r = requests.c
_s = settlements.c
_reported = _s.cached_tokens.is_not(None) & _s.flags.not_like(literal_column(f"'%{UsageFlag.ESTIMATED.value}%'"))
_compared = _reported & _s.expected_cached_tokens.is_not(None)
_SUMS: Final[Mapping[str, ColumnElement[Any]]] = {
    "prompt_tokens": _s.prompt_tokens,
    "output_tokens": _s.output_tokens,
    "reported_prompt_tokens": case((_reported, _s.prompt_tokens)),
    "cached_tokens": case((_reported, _s.cached_tokens)),
    "compared_prompt_tokens": case((_compared, _s.prompt_tokens)),
    "expected_cached_tokens": case((_compared, _s.expected_cached_tokens)),
    "lost_tokens": case((_reported, _s.lost_tokens)),
}


@dataclass(slots=True)
class Missed:
    """Requests that missed for one reason; of `unknown` of them the tokens are not known."""

    requests: int = 0
    lost_tokens: int = 0
    unknown: int = 0


@dataclass(slots=True)
class Traffic:
    """Requests that came in within a span, or several. Tokens are sums over those of which they are known: reported
    ones of answers whose engine said what was cached, compared ones where something was expected too."""

    requests: int = 0
    failed: int = 0
    in_flight: int = 0
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SUMS, 0))
    misses: dict[str, Missed] = field(default_factory=dict)
    ttft: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    itl: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))

    @property
    def hit_share(self) -> float | None:
        """Reported cached tokens of the prompt tokens of the same answers; None without any."""
        return _ratio(self.tokens["cached_tokens"], self.tokens["reported_prompt_tokens"])

    @property
    def expected_share(self) -> float | None:
        """What was expected, where both are known."""
        return _ratio(self.tokens["expected_cached_tokens"], self.tokens["compared_prompt_tokens"])

    @property
    def ceiling_share(self) -> float | None:
        """The hit share if nothing avoidable had been missed, at most 1."""
        lost = sum(one.lost_tokens for reason, one in self.misses.items() if reason in AVOIDABLE)
        prompt = self.tokens["reported_prompt_tokens"]
        return None if not prompt else min((self.tokens["cached_tokens"] + lost) / prompt, 1.0)

    @property
    def unknown_misses(self) -> int:
        """Misses whose tokens are not known, so that the ceiling is higher than told."""
        return sum(one.unknown for one in self.misses.values())


def traffic_of(
    where: Path | str, start_us: int, end_us: int, step_us: int, deadline_s: float | None = None
) -> dict[int, Traffic]:
    """By the beginning of each span of `step_us` within [start_us, end_us), which are multiples of it; all are there.

    O(requests of the period). Raises `LedgerUnavailable`, and `ReportTooSlow` past the deadline.
    """
    found = {at: Traffic() for at in range(start_us, end_us, step_us)}
    with one_view(where, deadline_s) as connection:
        chosen = [_r.opened_at_us >= start_us, _r.opened_at_us < end_us]
        span = _r.opened_at_us.op("/")(literal_column(str(step_us))).label("span")
        for row in _sums(connection, span, chosen):
            _add(found[row["span"] * step_us], row)
        itl = case((_s.output_tokens > literal_column("1"), _s.decode_s / (_s.output_tokens - literal_column("1"))))
        for name, seconds in (("ttft", _s.ttft_s), ("itl", itl)):
            bucket = _bucket(seconds, 0, len(BOUNDS_S)).label("bucket")
            asked = select(span, bucket, func.count().label("count")).select_from(ROWS)
            asked = asked.where(*chosen, seconds.is_not(None), _s.state == SettlementState.COMPLETE.value)
            for at, place, count in connection.execute(
                asked.group_by(literal_column("span"), literal_column("bucket"))
            ):
                getattr(found[at * step_us], name)[place] += count
    return found


def sum_of(spans: Iterable[Traffic]) -> Traffic:
    """All of them together."""
    whole = Traffic()
    misses: dict[str, Missed] = defaultdict(Missed)
    for one in spans:
        whole.requests += one.requests
        whole.failed += one.failed
        whole.in_flight += one.in_flight
        for name, tokens in one.tokens.items():
            whole.tokens[name] += tokens
        for reason, missed in one.misses.items():
            _add_missed(misses[reason], missed.requests, missed.lost_tokens, missed.unknown)
        whole.ttft = [a + b for a, b in zip(whole.ttft, one.ttft, strict=True)]
        whole.itl = [a + b for a, b in zip(whole.itl, one.itl, strict=True)]
    whole.misses = dict(misses)
    return whole


def percentile_s(counts: Sequence[int], share: float) -> float | None:
    """Seconds that this share of the values, more than 0, do not exceed; None where there are none. O(buckets)."""
    risen = list(accumulate(counts))
    if not risen[-1]:
        return None
    wanted = share * risen[-1]
    place = bisect_left(risen, wanted)
    inside = (wanted - (risen[place] - counts[place])) / counts[place]
    below = BOUNDS_S[place - 1] if place else BOUNDS_S[0] / 10 ** (1 / PER_DECADE)
    above = BOUNDS_S[min(place, len(BOUNDS_S) - 1)]
    return below * math.pow(above / below, inside)


def _sums(
    connection: Connection, span: ColumnElement[Any], chosen: Sequence[ColumnElement[bool]]
) -> Iterable[RowMapping]:
    reason = miss_kind().label("reason")
    sums = [func.coalesce(func.sum(column), 0).label(name) for name, column in _SUMS.items()]
    unknown = func.sum(case((_reported & _s.lost_tokens.is_(None), 1), else_=0)).label("unknown")
    asked = select(span, _s.state, reason, func.count().label("requests"), unknown, *sums).select_from(ROWS)
    grouped = asked.where(*chosen).group_by(literal_column("span"), _s.state, literal_column("reason"))
    return connection.execute(grouped).mappings()


def _add(into: Traffic, row: RowMapping) -> None:
    count = int(row["requests"])
    into.requests += count
    into.failed += count if row["state"] in _FAILED else 0
    into.in_flight += count if row["state"] is None else 0
    for name in _SUMS:
        into.tokens[name] += int(row[name])
    if row["reason"] is not None:
        missed = into.misses.setdefault(row["reason"], Missed())
        _add_missed(missed, count, int(row["lost_tokens"]), int(row["unknown"]))


def _add_missed(into: Missed, count: int, lost_tokens: int, unknown: int) -> None:
    into.requests += count
    into.lost_tokens += lost_tokens
    into.unknown += unknown


def _bucket(seconds: ColumnElement[Any], first: int, last: int) -> ColumnElement[Any]:
    """The number of the bucket of a value, found by halves. Written out, as in `miss_kind`."""
    if first == last:
        return literal_column(str(first))
    middle = (first + last) // 2
    is_below = seconds <= literal_column(repr(BOUNDS_S[middle]))
    return case((is_below, _bucket(seconds, first, middle)), else_=_bucket(seconds, middle + 1, last))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
