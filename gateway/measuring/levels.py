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
from gateway.measuring.types import Level, Limits, Seen, Window


def level_of(window: Window, limits: Limits, *, engines: int = 1, gpus: int | None = None) -> Level:
    """The figures of one window. O(n log n) in its requests and pauses."""
    width_s = window.to_s - window.from_s
    asked = window.asked
    whole = [one for one in asked if one.is_whole]
    kept = _kept_share(asked, limits)
    parts = [(one, _part_within(one, window)) for one in window.seen if one.is_whole]
    output_per_s = _rate(parts, width_s, lambda one: one.output_tokens)
    requests_per_s = sum(part for _, part in parts) / width_s
    busy_s = _busy_s(window, engines)
    return Level(
        rate_per_s=window.rate_per_s,
        clients=window.clients,
        seconds=width_s,
        requests=len(asked),
        failed=sum(not one.is_whole and one.ended_s is not None for one in asked),
        cut=sum(not one.is_whole and one.ended_s is None for one in asked),
        in_flight=sum(_inside_s(one, window) for one in window.seen) / width_s,
        requests_per_s=requests_per_s,
        input_tokens_per_s=_rate(parts, width_s, lambda one: one.prompt_tokens),
        output_tokens_per_s=output_per_s,
        output_tokens_per_s_per_gpu=None if output_per_s is None or gpus is None else output_per_s / gpus,
        hit_share=hit_share(whole),
        ceiling_share=window.ceiling_share,
        ttft=spread_of(one.first_s for one in whole),
        itl=spread_of(one.itl_s for one in whole),
        gap=spread_of(window.gaps_s),
        total=spread_of(one.ended_s - one.asked_s for one in whole if one.ended_s is not None),
        within_limits=None if kept is None else kept * len(whole) / len(asked),
        goodput_per_s=None if kept is None else kept * requests_per_s,
        busy_share=busy_s / (width_s * max(len(_names(window)), engines)),
        prefill_share=_prefill_share(window, busy_s),
        prefill=spread_of(one.prefill_s for one in whole),
        late=spread_of(window.late_s),
    )


def merged(levels: Sequence[Level], asked: Sequence[Seen], limits: Limits) -> Level:
    """Levels of separate times, at least one, as one; `asked` are the requests of all. Rates are means by time, shares
    of busy time by that. Of pauses, and of what left late, nothing is known. O(n log n)."""
    whole = [one for one in asked if one.is_whole]
    kept = _kept_share(asked, limits)
    requests_per_s = _mean(levels, lambda one: one.requests_per_s) or 0.0
    return Level(
        rate_per_s=None,
        clients=None,
        seconds=sum(one.seconds for one in levels),
        requests=len(asked),
        failed=sum(one.failed for one in levels),
        cut=sum(one.cut for one in levels),
        in_flight=_mean(levels, lambda one: one.in_flight) or 0.0,
        requests_per_s=requests_per_s,
        input_tokens_per_s=_mean(levels, lambda one: one.input_tokens_per_s),
        output_tokens_per_s=_mean(levels, lambda one: one.output_tokens_per_s),
        output_tokens_per_s_per_gpu=_mean(levels, lambda one: one.output_tokens_per_s_per_gpu),
        hit_share=hit_share(whole),
        ceiling_share=None,
        ttft=spread_of(one.first_s for one in whole),
        itl=spread_of(one.itl_s for one in whole),
        gap=None,
        total=spread_of(one.ended_s - one.asked_s for one in whole if one.ended_s is not None),
        within_limits=None if kept is None else kept * len(whole) / len(asked),
        goodput_per_s=None if kept is None else kept * requests_per_s,
        busy_share=_mean(levels, lambda one: one.busy_share),
        prefill_share=_mean(levels, lambda one: one.prefill_share, lambda one: one.seconds * (one.busy_share or 0.0)),
        prefill=spread_of(one.prefill_s for one in whole),
        late=None,
    )


def _mean(
    levels: Sequence[Level],
    value: Callable[[Level], float | None],
    weight: Callable[[Level], float] = lambda one: one.seconds,
) -> float | None:
    """Of those levels of which it is known, each by its weight."""
    known = [(found, weight(one)) for one in levels if (found := value(one)) is not None]
    weights = sum(by for _, by in known)
    return sum(found * by for found, by in known) / weights if weights else None


def hit_share(seen: Iterable[Seen]) -> float | None:
    """Cached tokens of prompt tokens, of the requests of which both are known; None where there are none."""
    known = [
        (one.cached_tokens, one.prompt_tokens)
        for one in seen
        if one.cached_tokens is not None and one.prompt_tokens is not None
    ]
    prompt_tokens = sum(prompt for _, prompt in known)
    return sum(cached for cached, _ in known) / prompt_tokens if prompt_tokens else None


def keeps(one: Seen, limits: Limits) -> bool | None:
    """Whether a request kept both limits. One that was not answered whole kept none; of one that came in one piece
    nobody knows, so None."""
    if not one.is_whole:
        return False
    if one.first_s is None:
        return None
    late = limits.ttft_s is not None and one.first_s > limits.ttft_s
    slow = limits.itl_s is not None and one.itl_s is not None and one.itl_s > limits.itl_s
    return not late and not slow


def _kept_share(asked: Sequence[Seen], limits: Limits) -> float | None:
    """Of whole answers those that kept both limits, as far as it is known; 0 where all failed, None without a limit or
    a request."""
    if limits.are_none or not asked:
        return None
    whole = [one for one in asked if one.is_whole]
    known = [kept for one in whole if (kept := keeps(one, limits)) is not None]
    if known:
        return sum(known) / len(known)
    return None if whole else 0.0


def _rate(parts: Sequence[tuple[Seen, float]], width_s: float, amount: Callable[[Seen], int | None]) -> float | None:
    """Tokens a second, those of an answer by its part within; None where they are known of no answer."""
    known = [(tokens, part) for one, part in parts if (tokens := amount(one)) is not None]
    return sum(tokens * part for tokens, part in known) / width_s if known else None


def _end_s(one: Seen, window: Window) -> float:
    """Of one that was cut off, all that is known is that it went on."""
    return max(window.to_s, one.asked_s) if one.ended_s is None else one.ended_s


def _inside_s(one: Seen, window: Window) -> float:
    return max(min(_end_s(one, window), window.to_s) - max(one.asked_s, window.from_s), 0.0)


def _part_within(one: Seen, window: Window) -> float:
    """Of an answer, from 0 to 1, what came within the window: evenly from its first token to its last, all at its end
    where only that is known."""
    if one.first_s is None or not one.decode_s:
        ended_s = _end_s(one, window)
        return 1.0 if window.from_s <= ended_s < window.to_s else 0.0
    first_s = one.asked_s + one.first_s
    inside_s = min(first_s + one.decode_s, window.to_s) - max(first_s, window.from_s)
    return max(inside_s, 0.0) / one.decode_s


def _prefill_share(window: Window, busy_s: float) -> float | None:
    """Seconds of the prompts that were computed within, of those in which the engines were busy; None where the speed
    of prefills is not known, or nothing was done. A prompt of which it is not known takes as long as the others."""
    within = [
        one
        for one in window.seen
        if one.first_s is not None and window.from_s <= one.asked_s + one.first_s < window.to_s
    ]
    known = [one.prefill_s for one in within if one.prefill_s is not None]
    if not known or not busy_s:
        return None
    return min(sum(known) * len(within) / len(known) / busy_s, 1.0)


def _names(window: Window) -> set[str]:
    return {one.endpoint for one in window.seen if one.endpoint}


def _busy_s(window: Window, engines: int) -> float:
    """Seconds within the window in which engines had something to do, summed over them. O(n log n).

    Where answers name their engine, those that name none kept none busy that is known.
    """
    if not _names(window):
        return _busy_of_s(window.seen, window, engines)
    by_name: dict[str, list[Seen]] = defaultdict(list)
    for one in window.seen:
        by_name[one.endpoint].append(one)
    return sum(_busy_of_s(seen, window, 1) for name, seen in by_name.items() if name)


def _busy_of_s(seen: Iterable[Seen], window: Window, most: int) -> float:
    """The integral over the window of the number in flight, `most` at most."""
    moments = sorted(
        moment
        for one in seen
        if _inside_s(one, window)
        for moment in ((max(one.asked_s, window.from_s), 1), (min(_end_s(one, window), window.to_s), -1))
    )
    busy_s, before_s, count = 0.0, window.from_s, 0
    for at_s, change in moments:
        busy_s += (at_s - before_s) * min(count, most)
        before_s, count = at_s, count + change
    return busy_s
