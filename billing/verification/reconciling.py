"""The ledger held against the engine's own counters, span by span. Pure.

    samples       0 ------------- 60 ------------ 120 ----------- 180 s      hits and queries since the engine started
    requests        [---a---]  [---b---]  [--c--]         [---d--------- still open

    span 60-120   engine: hits now - hits at 60                  ledger: what b and c reported
                  b may have been counted before 60:  the engine may have fewer, by b      (`early`)
                  d may have been counted before 180: the engine may have more, by d       (`late`)

An engine counts a prompt when it begins to compute it, the ledger has it when its answer has ended. So what lies across
a border, or begins right behind it, belongs to either side, and a difference counts only beyond that. What was sent and
never reported (cut, failed, interrupted) may have been counted too. Beyond the tolerance:

    fewer hits counted than reported       over_reported    the engine's answers claim what its cache did not do
    more prompts counted than ours         other_clients    somebody else uses the engine; more hits are no fault then
    more hits counted than reported        under_reported   and all prompts are ours: tenants were denied a discount
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

SAMPLED_WITHIN_S: Final = 0.25
"""The counters of a sample are as much younger than its time says, at most."""
MOST_SPANS: Final = 2000
"""Of one endpoint in one report; with more samples, spans are joined."""
_SAMPLED_WITHIN_US: Final = int(SAMPLED_WITHIN_S * 1_000_000)
_UNIX_TIME: Final = 1_000_000_000
"""A generation beyond this is an engine's start time, which all gateways agree on; below it is a count of one's own."""


class SpanStatus(StrEnum):
    """What a span shows."""

    MATCHED = "matched"
    OVER_REPORTED = "over_reported"
    UNDER_REPORTED = "under_reported"
    OTHER_CLIENTS = "other_clients"
    RESTARTED = "restarted"
    """The engine started anew within it: what it counted before is lost."""
    NOT_COUNTED = "not_counted"
    """The engine tells no such counters."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A row of `engine_samples`, of one endpoint."""

    at_us: int
    owner_id: str
    generation: int
    hits: int | None
    queries: int | None


@dataclass(frozen=True, slots=True)
class Passage:
    """A request's time at an endpoint. `cached` and `prompt` are as reported; `told` is False where the engine said
    nothing, and `prompt` what it may have counted then, 0 where that is not known."""

    began_us: int
    ended_us: int
    prompt: int
    cached: int
    told: bool


@dataclass(slots=True)
class Tokens:
    """Cached and prompt tokens side by side."""

    cached: int = 0
    prompt: int = 0

    def add(self, cached: int, prompt: int) -> None:
        """Take more of both."""
        self.cached += cached
        self.prompt += prompt


class Span:
    """The time between two samples of an endpoint; mutable while requests are added."""

    __slots__ = ("early", "end_us", "engine", "late", "reported", "requests", "restarted", "start_us", "untold")

    def __init__(self, before: Sample, after: Sample) -> None:
        self.start_us, self.end_us = before.at_us, after.at_us
        self.restarted = _restarted(before, after)
        self.engine: Tokens | None = None
        """What the engine counted; None where it cannot be said."""
        counts = (before.hits, after.hits, before.queries, after.queries)
        if not self.restarted and None not in counts:
            hits_before, hits, queries_before, queries = (count or 0 for count in counts)
            self.engine = Tokens(hits - hits_before, queries - queries_before)
        self.reported, self.early, self.late = Tokens(), Tokens(), Tokens()
        self.requests = self.untold = 0

    @property
    def status(self) -> SpanStatus:
        """What it shows, once all requests are added."""
        if self.restarted:
            return SpanStatus.RESTARTED
        if self.engine is None:
            return SpanStatus.NOT_COUNTED
        hits, queries = self.engine.cached - self.reported.cached, self.engine.prompt - self.reported.prompt
        if hits < -self.early.cached:
            return SpanStatus.OVER_REPORTED
        if queries > self.late.prompt:
            return SpanStatus.OTHER_CLIENTS
        return SpanStatus.UNDER_REPORTED if hits > self.late.cached else SpanStatus.MATCHED


class Spans:
    """The spans of one endpoint, in order of time, without gaps. Adding a request: O(log spans + spans it crosses)."""

    def __init__(self, samples: Sequence[Sample], most: int = MOST_SPANS) -> None:
        borders = _thinned(one_sequence(samples), most)
        self.all = [Span(before, after) for before, after in pairwise(borders)]
        self._starts = [span.start_us for span in self.all]

    def add(self, one: Passage) -> None:
        """Take a request that was at the endpoint."""
        ended, began_us = self._at(one.ended_us), one.began_us - _SAMPLED_WITHIN_US
        for place in range(max(self._at(began_us), 0), min(ended, len(self.all))):
            self.all[place].late.add(one.cached if one.told else one.prompt, one.prompt)
        if not 0 <= ended < len(self.all):
            return
        span = self.all[ended]
        span.requests += 1
        if not one.told:
            span.untold += 1
            span.late.add(one.prompt, one.prompt)
            return
        span.reported.add(one.cached, one.prompt)
        if began_us < span.start_us:
            span.early.add(one.cached, one.prompt)

    def may_have_seen(self, began_us: int, ended_us: int | None, prompt: int) -> None:
        """A request that may have been at this endpoint, as nobody knows where it was."""
        began_us -= _SAMPLED_WITHIN_US
        last = len(self.all) if ended_us is None else min(self._at(ended_us) + 1, len(self.all))
        for place in range(max(self._at(began_us), 0), last):
            self.all[place].late.add(prompt, prompt)

    def _at(self, at_us: int) -> int:
        """The place of the span at a moment: -1 before all, and after all as many as there are."""
        if self.all and at_us >= self.all[-1].end_us:
            return len(self.all)
        return bisect_right(self._starts, at_us) - 1


def one_sequence(samples: Sequence[Sample]) -> list[Sample]:
    """Of the samples that several gateways took of one endpoint, one after the other: those of one, then of the next.

    Counters that two gateways read at nearly the same time would else seem to go back.
    """
    by_owner: dict[str, list[Sample]] = {}
    for one in sorted(samples, key=lambda sample: sample.at_us):
        by_owner.setdefault(one.owner_id, []).append(one)
    taken: list[Sample] = []
    for series in by_owner.values():  # in the order of their first samples
        if not taken or series[-1].at_us > taken[-1].at_us:
            after = taken[-1].at_us if taken else -1
            taken += [one for one in series if one.at_us > after]
    return taken


def _thinned(samples: list[Sample], most: int) -> list[Sample]:
    """So few that there are about `most` spans; both sides of a restart are kept, and both ends."""
    every = -(-len(samples) // most) if samples else 1
    last = len(samples) - 1
    return [
        one
        for place, one in enumerate(samples)
        if place % every == 0
        or place == last
        or _restarted(one, samples[place + 1])
        or _restarted(samples[place - 1], one)
    ]


def _restarted(before: Sample, after: Sample) -> bool:
    """Another process, or counters that went back. Generations that two gateways count for themselves say nothing."""
    pairs = ((before.hits, after.hits), (before.queries, after.queries))
    if any(old is not None and new is not None and new < old for old, new in pairs):
        return True
    comparable = before.owner_id == after.owner_id or min(before.generation, after.generation) > _UNIX_TIME
    return comparable and before.generation != after.generation
