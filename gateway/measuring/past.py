"""What a ledger recorded, as levels: the period is cut into spans, and spans of like load are put together. Pure.

    in flight │      ▂▄▆█▆▄▂     ▂▄▂           spans of some seconds, by what was in flight on average
              │▁▁▁▁▂          ▁▂▂    ▂▁▁▁  ──► 0 to 1 │ 1 to 2 │ 2 to 4 │ ...          a level each

Nobody offered these loads, and lengths differ from one to the next, so a knee found in them says less than one that was
driven into; its distance from the fit is told. What is known of a request is what its gateway wrote: TTFT from its
arrival there, decode from the first byte to the last.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, log2
from typing import Final

from billing.reports.timings import Timing
from billing.reports.traffic import AVOIDABLE
from gateway.measuring.errors import NothingMeasured
from gateway.measuring.levels import level_of, merged
from gateway.measuring.spread import burstiness_of
from gateway.measuring.study import Frame, study_from
from gateway.measuring.types import Level, Seen, Study, Window

MOST_REQUESTS: Final = 1_000_000
"""Read of one period: about 200 bytes each are kept."""
_SPANS: Final = 200
"""Of a period, as far as the shortest and the longest one allow."""
_LEAST_SPAN_S: Final = 10.0
_MOST_SPAN_S: Final = 600.0
_LEAST_REQUESTS: Final = 20
"""Fewer are put to the next level, those of the most load to the one before."""
_US: Final = 1_000_000

_Part = tuple[Level, Sequence[Seen]]
"""A span as a level, and the requests that came in it."""


@dataclass(frozen=True, slots=True)
class Record:
    """Requests in order, seconds from the beginning of the period, which lasts `lasts_s`; and what was avoidable."""

    seen: Sequence[Seen]
    lasts_s: float
    ceiling_share: float | None
    is_cut: bool


def record_of(timings: Iterable[Timing], start_us: int, end_us: int) -> Record:
    """Reads at most `MOST_REQUESTS`. The ceiling counts what had been computed before and was not found again, as the
    dashboard does: at most too low, where nobody knows the tokens of a miss."""
    seen: list[Seen] = []
    prompt_tokens = cached_tokens = lost_tokens = 0
    is_cut = False
    for one in timings:
        if len(seen) == MOST_REQUESTS:
            is_cut, end_us = True, one.opened_at_us
            break
        seen.append(_seen(one, start_us))
        if one.cached_tokens is not None and one.prompt_tokens:
            prompt_tokens += one.prompt_tokens
            cached_tokens += one.cached_tokens
            lost_tokens += (one.lost_tokens or 0) if one.miss_reason in AVOIDABLE else 0
    ceiling_share = min((cached_tokens + lost_tokens) / prompt_tokens, 1.0) if prompt_tokens else None
    return Record(seen, (end_us - start_us) / _US, ceiling_share, is_cut)


def study_past(source: str, record: Record, frame: Frame) -> Study:
    """The study of a period. Raises `NothingMeasured` where nothing was answered in it."""
    if not any(one.is_whole for one in record.seen):
        raise NothingMeasured("no request of that period was answered whole")
    spans = max(floor(record.lasts_s / min(max(record.lasts_s / _SPANS, _LEAST_SPAN_S), _MOST_SPAN_S)), 1)
    notes = [f"levels are spans of {record.lasts_s / spans:g} s, put together by what was in flight"]
    if record.is_cut:
        notes.append(f"only the first {MOST_REQUESTS:,} requests are read: choose a shorter period for the rest")
    untimed = sum(one.is_whole and one.first_s is None for one in record.seen)
    if untimed:
        notes.append(f"{untimed} answers came in one piece: of them no first token is known")
    levels = _levels(record, spans, frame)
    study = study_from(source, levels, record.seen, frame, ceiling_share=record.ceiling_share, notes=notes)
    return replace(study, arrivals=burstiness_of(one.asked_s for one in record.seen))


def _seen(one: Timing, start_us: int) -> Seen:
    asked_s = (one.opened_at_us - start_us) / _US
    return Seen(
        asked_s=asked_s,
        first_s=one.ttft_s,
        decode_s=one.decode_s,
        ended_s=None if one.duration_s is None or not one.is_over else asked_s + one.duration_s,
        is_whole=one.is_whole and one.duration_s is not None,
        prompt_tokens=one.prompt_tokens,
        cached_tokens=one.cached_tokens,
        output_tokens=one.output_tokens,
        prefill_s=one.prefill_s,
        endpoint=one.endpoint_id or "",
    )


def _levels(record: Record, spans: int, frame: Frame) -> list[Level]:
    by_load: dict[int, list[_Part]] = defaultdict(list)
    for window in _windows(record, spans):
        level = level_of(window, frame.limits, engines=frame.engines, gpus=frame.gpus)
        load = max(floor(log2(level.in_flight)), -1) if level.in_flight > 0 else -1
        by_load[load].append((level, window.asked))
    groups: list[list[_Part]] = [[]]
    for load in sorted(by_load):
        if sum(level.requests for level, _ in groups[-1]) >= _LEAST_REQUESTS:
            groups.append([])
        groups[-1] += by_load[load]
    if len(groups) > 1 and sum(level.requests for level, _ in groups[-1]) < _LEAST_REQUESTS:
        few = groups.pop()
        groups[-1] += few
    return [_together(parts, frame) for parts in groups if parts]


def _together(parts: Sequence[_Part], frame: Frame) -> Level:
    return merged([level for level, _ in parts], [one for _, asked in parts for one in asked], frame.limits)


def _windows(record: Record, spans: int) -> Iterator[Window]:
    """Each with the requests that were under way in it. O(requests × spans that they last)."""
    under_way: dict[int, list[Seen]] = defaultdict(list)
    span_s = record.lasts_s / spans
    for one in record.seen:
        first = floor(one.asked_s / span_s)
        last = first if one.ended_s is None else max(floor(one.ended_s / span_s), first)
        for place in range(first, min(last, spans - 1) + 1):
            under_way[place].append(one if one.ended_s is not None else _over(one))
    for place in sorted(under_way):
        yield Window(place * span_s, (place + 1) * span_s, under_way[place])


def _over(one: Seen) -> Seen:
    """Nobody knows how long it was under way: not at all, as far as load goes."""
    return Seen(one.asked_s, one.first_s, one.decode_s, one.asked_s, is_whole=False, endpoint=one.endpoint)
