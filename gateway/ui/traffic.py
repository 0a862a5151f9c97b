"""The traffic of the last minutes or hours, out of the ledger: of all replicas that share one, and before a restart.

    spans that have ended for `SETTLED_US`   read once, kept
    the latest ones                          read again, at most each `FRESH_S`
    spans not read in time                   told as not read, and read the next time

Reading takes a twentieth of the time at most, in a thread, and each statement has a deadline: newest first.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from billing import LedgerUnavailable, ReportTooSlow
from billing.reports.traffic import AVOIDABLE, Traffic, percentile_s, sum_of, traffic_of
from billing.when import from_us, to_us
from gateway.errors import Unavailable
from gateway.ui.asked import Asked
from gateway.ui.kept import REST, Failures
from gateway.ui.types import JsonPage

_SECOND_US: Final = 1_000_000
SETTLED_US: Final = 10 * 60 * _SECOND_US
"""An answer that takes longer than this after its span has ended is missing in that span until it is read anew."""
_CLOCK_SET_US: Final = SETTLED_US // 2
"""A clock that was set by less than this has let no span be taken for over that was not."""
FRESH_S: Final = 4.0
DEADLINE_S: Final = 6.0
_AT_ONCE: Final = 15
"""Spans in one reading."""
_PART_OF: Final = {
    "cached_tokens": "reported_prompt_tokens",
    "lost_tokens": "reported_prompt_tokens",
    "expected_cached_tokens": "compared_prompt_tokens",
}
_PERCENTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class _Range:
    step_us: int
    spans: int


RANGES: Final[Mapping[str, _Range]] = {
    "1h": _Range(60 * _SECOND_US, 60),
    "15m": _Range(60 * _SECOND_US, 15),
    "3h": _Range(60 * _SECOND_US, 180),
    "24h": _Range(900 * _SECOND_US, 96),
}
"""What can be asked for, the usual one first."""
_KEPT_US: Final = {
    step_us: max((one.spans + 1) * step_us for one in RANGES.values() if one.step_us == step_us)
    for step_us in {one.step_us for one in RANGES.values()}
}
"""For how long spans of a length are asked for."""


@dataclass(frozen=True, slots=True)
class _Read:
    traffic: Traffic
    is_final: bool


class TrafficBook:
    """One per process; keeps the spans of the longest ranges, a few hundred."""

    def __init__(
        self,
        where: Path | str,
        wall: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        reading: Callable[[Path | str, int, int, int, float], Mapping[int, Traffic]] = traffic_of,
        threads: Executor | None = None,
    ) -> None:
        self._where = where
        self._wall = wall
        self._monotonic = monotonic
        self._reading = reading
        self._threads = threads
        self._spans: dict[tuple[int, int], _Read] = {}
        """By length and beginning, microseconds."""
        self._next_s: dict[str, float] = {}
        """When each range may be read again."""
        self._clocks_us: int | None = None
        """By how much the wall's clock was ahead of the monotonic one."""
        self._failures = Failures(monotonic)
        self._turn = asyncio.Lock()  # spans the reading: two of them would only take twice as long

    @property
    def pages(self) -> Mapping[str, JsonPage]:
        """By name."""
        return {"traffic": JsonPage(self._traffic, frozenset({"range"}))}

    async def _traffic(self, asked: Asked) -> Any:
        name = asked.choice("range", RANGES)
        range_, now = RANGES[name], self._wall()
        wanted = _wanted(range_, to_us(now))
        async with self._turn:
            began_s = self._monotonic()
            self._look_at_clocks(to_us(now) - round(began_s * _SECOND_US))
            if began_s >= self._next_s.get(name, 0.0):
                with self._failures.of("ledger"):
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._threads, self._read, range_, wanted, to_us(now))
                took_s = self._monotonic() - began_s
                self._next_s[name] = self._monotonic() + max(FRESH_S, REST * took_s)
                self._forget(to_us(now))
        found = [(at, self._spans.get((range_.step_us, at))) for at in wanted]
        known = [one.traffic for _, one in found if one is not None]
        total = sum_of(known)
        return {
            "as_of": now.isoformat(),
            "range": name,
            "step_s": range_.step_us // _SECOND_US,
            "points": [_point(at, None if one is None else one.traffic) for at, one in found],
            "total": {"read": len(known) == len(found), **(_figures(total) if known else _UNREAD)},
            "misses": _misses(total),
        }

    def _look_at_clocks(self, ahead_us: int) -> None:
        """Where the wall's clock was set, what was taken for over may not be: all is read anew."""
        if self._clocks_us is not None and abs(ahead_us - self._clocks_us) > _CLOCK_SET_US:
            self._spans.clear()
        self._clocks_us = ahead_us

    def _read(self, range_: _Range, wanted: list[int], now_us: int) -> None:
        """Blocks. Raises `Unavailable` where nothing could be read."""
        ends_s, step_us = self._monotonic() + DEADLINE_S, range_.step_us
        missing = [at for at in wanted if not self._is_final(step_us, at)]
        for start_us, end_us in _runs(missing, step_us):
            left_s = ends_s - self._monotonic()
            if left_s <= 0:
                return
            try:
                found = self._reading(self._where, start_us, end_us, step_us, left_s)
            except ReportTooSlow:
                return
            except LedgerUnavailable:
                raise Unavailable("the ledger cannot be read at the moment; try again") from None
            for at, traffic in found.items():
                self._spans[step_us, at] = _Read(traffic, at + step_us + SETTLED_US <= now_us)

    def _is_final(self, step_us: int, at: int) -> bool:
        found = self._spans.get((step_us, at))
        return found is not None and found.is_final

    def _forget(self, now_us: int) -> None:
        """O(spans)."""
        self._spans = {key: one for key, one in self._spans.items() if key[1] >= now_us - _KEPT_US[key[0]]}


def _wanted(range_: _Range, now_us: int) -> list[int]:
    """Beginnings of the spans of a range, oldest first; the last one is under way."""
    last = now_us // range_.step_us * range_.step_us
    return [last - (range_.spans - 1 - number) * range_.step_us for number in range(range_.spans)]


def _runs(spans: list[int], step_us: int) -> Iterator[tuple[int, int]]:
    """Periods that the spans make up, newest first, of at most `_AT_ONCE` spans each."""
    left = list(spans)
    while left:
        end = start = left.pop()
        while left and left[-1] == start - step_us and (end - left[-1]) // step_us < _AT_ONCE:
            start = left.pop()
        yield start, end + step_us


def _point(at: int, traffic: Traffic | None) -> dict[str, Any]:
    figures = _UNREAD if traffic is None else _figures(traffic)
    return {"at": from_us(at).astimezone(UTC).isoformat(), "read": traffic is not None, **figures}


def _misses(traffic: Traffic) -> list[dict[str, Any]]:
    """Why prompts missed what was cached, the costliest reason first."""
    return [
        {
            "reason": reason,
            "requests": one.requests,
            "lost_tokens": one.lost_tokens if one.unknown < one.requests else None,
            "unknown": one.unknown,
            "avoidable": reason in AVOIDABLE,
        }
        for reason, one in sorted(traffic.misses.items(), key=lambda item: -item[1].lost_tokens)
    ]


def _figures(traffic: Traffic) -> dict[str, Any]:
    """Of prompts of which no engine said how much was cached, that is unknown."""
    unknown = {
        name: None for name, of in _PART_OF.items() if traffic.tokens["prompt_tokens"] and not traffic.tokens[of]
    }
    return {
        "requests": traffic.requests,
        "failed": traffic.failed,
        "in_flight": traffic.in_flight,
        **traffic.tokens,
        **unknown,
        "hit_share": traffic.hit_share,
        "expected_share": traffic.expected_share,
        "ceiling_share": traffic.ceiling_share,
        "unknown_misses": traffic.unknown_misses,
        "ttft_s": {name: percentile_s(traffic.ttft, share) for name, share in _PERCENTILES.items()},
        "itl_s": {name: percentile_s(traffic.itl, share) for name, share in _PERCENTILES.items()},
    }


_UNREAD: Final = dict.fromkeys(_figures(Traffic()))
"""Figures of what has not been read."""
