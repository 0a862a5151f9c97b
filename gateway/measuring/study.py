"""Levels become a study: in order of load, with their knee, the verdict on them and what is of all requests. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.measuring.errors import NothingMeasured
from gateway.measuring.knee import knee_of
from gateway.measuring.levels import hit_share, level_of
from gateway.measuring.spread import spread_of
from gateway.measuring.types import Level, Limits, Seen, Study, Window
from gateway.measuring.verdict import verdict_of


@dataclass(frozen=True, slots=True)
class Frame:
    """What the figures are held against. `engines`: as many equal ones are behind an address that tells of none."""

    limits: Limits = field(default_factory=Limits)
    gpus: int | None = None
    engines: int = 1


def study_of(source: str, windows: Sequence[Window], frame: Frame, notes: Sequence[str] = ()) -> Study:
    """Of windows, a level each. Raises `NothingMeasured` where nothing was answered.

    The ceiling of all is the mean of the windows', by their prompt tokens.
    """
    seen = [one for window in windows for one in window.asked]
    if not any(one.is_whole for one in seen):
        raise NothingMeasured("no request was answered whole", notes)
    levels = [level_of(window, frame.limits, engines=frame.engines, gpus=frame.gpus) for window in windows]
    return study_from(source, levels, seen, frame, ceiling_share=_ceiling(windows), notes=notes)


def study_from(
    source: str,
    levels: Sequence[Level],
    seen: Sequence[Seen],
    frame: Frame,
    *,
    ceiling_share: float | None,
    notes: Sequence[str] = (),
) -> Study:
    """Of levels, and of the requests that came in them, of which at least one was answered. A level to which none came
    is left out. O(n log n) in the requests."""
    levels = sorted((one for one in levels if one.requests), key=lambda one: one.in_flight)
    whole = [one for one in seen if one.is_whole]
    knee = knee_of(levels)
    hit = hit_share(whole)
    if ceiling_share is not None and hit is not None:
        ceiling_share = max(ceiling_share, hit)  # a template around all prompts is shared, too
    lengths = {
        "prompt": spread_of(one.prompt_tokens for one in whole),
        "output": spread_of(one.output_tokens for one in whole),
        "cached": spread_of(one.cached_tokens for one in whole),
    }
    return Study(
        source=source,
        limits=frame.limits,
        gpus=frame.gpus,
        engines=max(frame.engines, len({one.endpoint for one in whole if one.endpoint})),
        lengths={name: spread for name, spread in lengths.items() if spread is not None},
        arrivals=None,
        hit_share=hit,
        ceiling_share=ceiling_share,
        levels=levels,
        knee=knee,
        verdict=verdict_of(levels, knee, frame.limits, hit, ceiling_share),
        notes=tuple(notes),
    )


def _ceiling(windows: Sequence[Window]) -> float | None:
    known = [
        (window.ceiling_share, sum(one.prompt_tokens or 0 for one in window.seen))
        for window in windows
        if window.ceiling_share is not None
    ]
    all_tokens = sum(tokens for _, tokens in known)
    return sum(share * tokens for share, tokens in known) / all_tokens if all_tokens else None
