"""What was seen of one load, in figures. Pure.

            from_s                       to_s
    ──┼──────┼────────────────────────────┼───────────►     [ ] one request, from when it was meant to be sent
      [  warm-up ]   [      ]                               told of: those asked within
             [   ]      [            ]                      rates: each by the part of its answer that came within
                  [                           ]             in flight, busy: what of each lies within

Counting whole answers where few end would tell more of when they end than of how many do.

Of n equal engines that are told apart by no name, as many are taken to be busy as requests are in flight, n at most.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from gateway.measuring.spread import spread_of
from gateway.measuring.types import Level, Limits, Seen, Spread, Window


def level_of(window: Window, limits: Limits, *, engines: int = 1, gpus: int | None = None) -> Level:
    """The figures of one window. O(n log n) in its requests and pauses."""
    width = window.to_s - window.from_s
    asked = [one for one in window.seen if window.from_s <= one.asked_s < window.to_s]
    whole = [one for one in asked if one.whole]
    parts = [(one, _part_within(one, window)) for one in window.seen if one.whole]
    output_per_s = _rate(parts, width, lambda one: one.output_tokens)
    kept = _within(asked, limits)
    requests_per_s = sum(part for _, part in parts) / width
    busy_s = _busy_s(window, engines)
    return Level(
        rate_per_s=window.rate_per_s,
        clients=window.clients,
        seconds=width,
        requests=len(asked),
        failed=sum(not one.whole and one.ended_s is not None for one in asked),
        cut=sum(not one.whole and one.ended_s is None for one in asked),
        in_flight=sum(_inside(one, window) for one in window.seen) / width,
        requests_per_s=requests_per_s,
        input_tokens_per_s=_rate(parts, width, lambda one: one.prompt_tokens),
        output_tokens_per_s=output_per_s,
        output_tokens_per_s_per_gpu=None if output_per_s is None or gpus is None else output_per_s / gpus,
        hit_share=hit_share(whole),
        ceiling_share=window.ceiling_share,
        ttft=spread_of(one.first_s for one in whole),
        itl=spread_of(one.itl_s for one in whole),
        gap=_known(window.gaps_s),
        total=spread_of(one.ended_s - one.asked_s for one in whole if one.ended_s is not None),
        within_limits=kept,
        goodput_per_s=None if kept is None else kept * requests_per_s,
        busy_share=busy_s / (width * _engine_count(window, engines)),
        prefill_share=_prefill_share(window, busy_s),
        prefill=spread_of(one.prefill_s for one in whole),
        late=_known(window.late_s),
    )


def merged(levels: Sequence[Level], asked: Sequence[Seen], limits: Limits) -> Level:
    """Levels of separate times, at least one, as one; `asked` are the requests of all. Rates are means by time, shares
    of busy time by that."""
    seconds = sum(one.seconds for one in levels)
    whole = [one for one in asked if one.whole]
    kept = _within(asked, limits)
    requests_per_s = _mean(levels, "requests_per_s") or 0.0
    return Level(
        rate_per_s=None,
        clients=None,
        seconds=seconds,
        requests=len(asked),
        failed=sum(one.failed for one in levels),
        cut=sum(one.cut for one in levels),
        in_flight=_mean(levels, "in_flight") or 0.0,
        requests_per_s=requests_per_s,
        input_tokens_per_s=_mean(levels, "input_tokens_per_s"),
        output_tokens_per_s=_mean(levels, "output_tokens_per_s"),
        output_tokens_per_s_per_gpu=_mean(levels, "output_tokens_per_s_per_gpu"),
        hit_share=hit_share(whole),
        ceiling_share=None,
        ttft=spread_of(one.first_s for one in whole),
        itl=spread_of(one.itl_s for one in whole),
        gap=None,
        total=spread_of(one.ended_s - one.asked_s for one in whole if one.ended_s is not None),
        within_limits=kept,
        goodput_per_s=None if kept is None else kept * requests_per_s,
        busy_share=_mean(levels, "busy_share"),
        prefill_share=_mean(levels, "prefill_share", busy=True),
        prefill=spread_of(one.prefill_s for one in whole),
        late=None,
    )


def _mean(levels: Sequence[Level], name: str, *, busy: bool = False) -> float | None:
    """Of those levels of which it is known, by their seconds, or busy seconds."""
    known = [
        (getattr(one, name), one.seconds * ((one.busy_share or 0.0) if busy else 1.0))
        for one in levels
        if getattr(one, name) is not None
    ]
    weights = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / weights if weights else None


def hit_share(seen: Iterable[Seen]) -> float | None:
    """Cached tokens of prompt tokens, of the requests of which both are known; None where there are none."""
    known = [(one.cached_tokens, one.prompt_tokens) for one in seen if one.cached_tokens is not None]
    prompt = sum(tokens or 0 for _, tokens in known)
    return sum(cached for cached, _ in known) / prompt if prompt else None


def keeps(one: Seen, limits: Limits) -> bool:
    """Whether a request kept both limits; one that was not answered whole kept none."""
    late = limits.ttft_s is not None and (one.first_s is None or one.first_s > limits.ttft_s)
    slow = limits.itl_s is not None and one.itl_s is not None and one.itl_s > limits.itl_s
    return one.whole and not late and not slow


def _within(asked: Sequence[Seen], limits: Limits) -> float | None:
    if limits.are_none or not asked:
        return None
    return sum(keeps(one, limits) for one in asked) / len(asked)


def _known(values: Sequence[float]) -> Spread | None:
    return spread_of(values) if len(values) else None


def _rate(parts: Sequence[tuple[Seen, float]], width: float, amount: Callable[[Seen], int | None]) -> float | None:
    known = [(tokens, part) for one, part in parts if (tokens := amount(one)) is not None]
    return sum(tokens * part for tokens, part in known) / width if known else None


def _end_of(one: Seen, window: Window) -> float:
    """Of one that was cut off, all that is known is that it went on."""
    return max(window.to_s, one.asked_s) if one.ended_s is None else one.ended_s


def _inside(one: Seen, window: Window) -> float:
    return max(min(_end_of(one, window), window.to_s) - max(one.asked_s, window.from_s), 0.0)


def _part_within(one: Seen, window: Window) -> float:
    """Of an answer, from 0 to 1, what came within the window: evenly from its first token to its last, all at its end
    where only that is known."""
    if one.first_s is None or not one.decode_s:
        ended_s = _end_of(one, window)
        return 1.0 if window.from_s <= ended_s < window.to_s else 0.0
    first_s = one.asked_s + one.first_s
    inside = min(first_s + one.decode_s, window.to_s) - max(first_s, window.from_s)
    return max(inside, 0.0) / one.decode_s


def _prefill_share(window: Window, busy_s: float) -> float | None:
    """Seconds of the prompts that were computed within, of those in which the engines were busy; None where the speed
    of prefills is not known, or nothing was done."""
    firsts = [one for one in window.seen if one.first_s is not None]
    within = [one for one in firsts if window.from_s <= one.asked_s + (one.first_s or 0.0) < window.to_s]
    known = [one.prefill_s for one in within if one.prefill_s is not None]
    if not known or not busy_s:
        return None
    return min(sum(known) * len(within) / len(known) / busy_s, 1.0)


def _names(window: Window) -> set[str]:
    return {one.endpoint for one in window.seen if one.endpoint}


def _engine_count(window: Window, engines: int) -> int:
    return max(len(_names(window)), engines)


def _busy_s(window: Window, engines: int) -> float:
    """Seconds within the window in which engines had something to do, summed over them. O(n log n)."""
    if not _names(window):
        return _at_most(window.seen, window, engines)
    by_name: dict[str, list[Seen]] = defaultdict(list)
    for one in window.seen:
        by_name[one.endpoint].append(one)
    return sum(_at_most(seen, window, 1) for name, seen in by_name.items() if name)


def _at_most(seen: Iterable[Seen], window: Window, most: int) -> float:
    """The integral over the window of the number in flight, `most` at most."""
    moments = sorted(
        moment
        for one in seen
        if _inside(one, window)
        for moment in ((max(one.asked_s, window.from_s), 1), (min(_end_of(one, window), window.to_s), -1))
    )
    busy_s, before_s, count = 0.0, window.from_s, 0
    for at_s, change in moments:
        busy_s += (at_s - before_s) * min(count, most)
        before_s, count = at_s, count + change
    return busy_s
