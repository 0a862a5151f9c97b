"""What several workers say of themselves as one, and what has changed since. Plain data; fleets, which may be large,
are gone through in turns of a millisecond.

page of a worker    worker, counters, in_flight, queued, viewers, draining, endpoints, decisions, degraded
pages --together--> one page --(rates)--> what is shown --difference--> what a viewer is sent
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.ui.types import Page
from prefix_index.turns import in_turns

Counters = Mapping[str, float]

WINDOW_S: Final = 60.0
"""What rates look back on."""
_ADDED: Final = ("in_flight_requests", "in_flight_uncached_tokens")
_STANDING: Final = ("state", "why", "since", "breaker_opened")
_UP: Final = "up"


async def together(pages: Sequence[Page], most_decisions: int) -> Page:
    """The pages of all workers, the own one first. Counts are added; an endpoint stands as the first who finds
    something wrong with it says, and its speed is that of the one that has measured the most."""
    own = pages[0]
    queued = [page["queued"] for page in pages if page["queued"] is not None]
    return {
        "counters": {page["worker"]: page["counters"] for page in pages},
        "in_flight": sum(page["in_flight"] for page in pages),
        "queued": sum(queued) if queued else None,
        "viewers": sum(page["viewers"] for page in pages),
        "draining": own["draining"],
        "endpoints": await _endpoints([page["endpoints"] for page in pages]),
        "decisions": newest([row for page in pages for row in page["decisions"]], most_decisions),
        "degraded": {part: why for page in reversed(pages) for part, why in page["degraded"].items()},
    }


def newest(rows: Sequence[Page], most: int) -> list[Page]:
    """Decisions by when their requests came, the last one first."""
    return sorted(rows, key=lambda row: (row["opened_at"], row["request_id"]), reverse=True)[:most]


async def _endpoints(tables: Sequence[Mapping[str, Page]]) -> dict[str, Page]:
    if len(tables) == 1:
        return dict(tables[0])
    return {name: _endpoint([table[name] for table in tables if name in table]) async for name in in_turns(tables[0])}


def _endpoint(rows: Sequence[Page]) -> Page:
    if len(rows) == 1:
        return rows[0]
    worst = next((row for row in rows if row["state"] != _UP), rows[0])
    speeds = [row["speed"] for row in rows if row["speed"] is not None]
    return {
        **rows[0],
        **{name: worst[name] for name in _STANDING},
        **{name: sum(row[name] for row in rows) for name in _ADDED},
        "healthy": all(row["healthy"] for row in rows),
        "draining": any(row["draining"] for row in rows),
        "speed": max(speeds, key=lambda speed: speed["samples"], default=None),
    }


class Rates:
    """What the counters of all workers say of the last `WINDOW_S`.

    What is added up is by how much each worker's have risen since it was heard of last. So one that does not answer for
    a while, one that is replaced and one whose counters fall, as where an endpoint left, add nothing that was not.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counters]] = deque()
        self._last: dict[str, tuple[float, Counters]] = {}
        """By worker: when it was heard of, and its counters then."""

    def add(self, now_s: float, counters: Mapping[str, Counters]) -> None:
        """The counters of each worker that answers, as they are now. O(workers) but for samples that are too old."""
        risen: dict[str, float] = dict(self._samples[-1][1]) if self._samples else {}
        for worker, now in counters.items():
            _, before = self._last.get(worker, (now_s, now))
            has_fallen = any(now[name] < before[name] for name in now)
            for name, value in now.items():
                risen[name] = risen.get(name, 0.0) + (0.0 if has_fallen else value - before[name])
            self._last[worker] = now_s, now
        self._last = {worker: one for worker, one in self._last.items() if now_s - one[0] <= WINDOW_S}
        self._samples.append((now_s, risen))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def as_page(self) -> Page:
        """Rates and shares, null where there is too little to tell."""
        if len(self._samples) < 2:
            names = ("requests_per_s", "prompt_tokens_per_s", "cached_tokens_per_s", "output_tokens_per_s")
            return dict.fromkeys((*names, "hit_share", "expected_share", "window_s"))
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        risen, span_s = {name: last[name] - first[name] for name in last}, last_s - first_s
        compared = risen["compared_prompt_tokens"]
        is_unreported = risen["prompt_tokens"] > 0 and not risen["reported_prompt_tokens"]
        return {
            "requests_per_s": risen["requests"] / span_s,
            "prompt_tokens_per_s": risen["prompt_tokens"] / span_s,
            "cached_tokens_per_s": None if is_unreported else risen["cached_tokens"] / span_s,
            "output_tokens_per_s": risen["output_tokens"] / span_s,
            "hit_share": risen["compared_reported_tokens"] / compared if compared else None,
            "expected_share": risen["compared_expected_tokens"] / compared if compared else None,
            "window_s": round(span_s, 1),
        }


async def difference(old: Page, new: Page) -> Page | None:
    """What a viewer who has `old` needs to have `new`; None where nothing changed.

    Of `live` and of each endpoint the fields that differ, null for an endpoint that left; decisions that are new or
    settled; `health` whole.
    """
    found: Page = {}
    if live := _changed(old["live"], new["live"]):
        found["live"] = live
    endpoints: Page = {name: None for name in old["endpoints"] if name not in new["endpoints"]}
    async for name, row in in_turns(new["endpoints"].items()):
        if changed := _changed(old["endpoints"].get(name, {}), row):
            endpoints[name] = changed
    if endpoints:
        found["endpoints"] = endpoints
    known = {row["request_id"]: row["state"] for row in old["decisions"]}
    if decisions := [row for row in new["decisions"] if known.get(row["request_id"], "") != row["state"]]:
        found["decisions"] = decisions
    if new["health"] != old["health"]:
        found["health"] = new["health"]
    return found or None


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Page:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}
