"""What is shown of a kept template: its order before and after, the moves, and what they are worth on its samples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from gateway.templates.types import KeptTemplate
from prefix_index.layout import (
    Count,
    ExpectedShare,
    Layout,
    Move,
    PromptTemplate,
    Renderer,
    RenderingFailed,
    SegmentKind,
    Stay,
    TemplateInvalid,
    VariablesInvalid,
    Volatility,
    as_text,
    by_bytes,
    expected_share,
)

_EXCERPT_CHARS: Final = 60


def overview(kept: KeptTemplate) -> dict[str, object]:
    """One line of the list."""
    return {
        "name": kept.name,
        "version": kept.version,
        "syntax": kept.layout.before.syntax.value,
        "reordered": kept.reordered,
        "moves": len(kept.layout.moves),
        "variables": sorted(kept.layout.before.names),
        "needed": sorted(kept.renderer.needed),
        "tenants": None if kept.tenants is None else sorted(kept.tenants),
        "digest": kept.digest,
    }


def shown(kept: KeptTemplate, count: Count = by_bytes, block_tokens: int = 16) -> dict[str, object]:
    """All about one. `count` counts tokens of a text. Renders its samples twice: for a thread."""
    before, after, problem = sample_shares(kept.layout, kept.defaults, kept.samples, (count, block_tokens))
    return {
        **overview(kept),
        "before": order_of(kept.layout.before),
        "after": order_of(kept.layout.after),
        "moved": [_move(one) for one in kept.layout.moves],
        "stays": [_stay(one) for one in kept.layout.stays],
        "samples": len(kept.samples),
        "share_before": None if before is None else share_view(before),
        "share_after": None if after is None else share_view(after),
        "problem": problem,
    }


def sample_shares(
    layout: Layout,
    defaults: Mapping[str, object],
    samples: Sequence[Mapping[str, object]],
    counted: tuple[Count, int] = (by_bytes, 16),
) -> tuple[ExpectedShare | None, ExpectedShare | None, str | None]:
    """What share of samples would be cached in either order, in tokens as counted and blocks of so many.

    None without samples, or with one that does not fit, of which the last says why.
    """
    if not samples:
        return None, None, None
    try:
        renderers = [Renderer(template, defaults) for template in (layout.before, layout.after)]
        before, after = (
            expected_share([as_text(renderer.messages(one)) for one in samples], *counted) for renderer in renderers
        )
    except (VariablesInvalid, RenderingFailed, TemplateInvalid) as error:
        return None, None, str(error)
    return before, after, None


def order_of(template: PromptTemplate) -> list[dict[str, object]]:
    """The segments of a template in order; of fixed text how it begins and ends."""
    rows: list[dict[str, object]] = []
    for place, message in enumerate(template.messages):
        if message.slot is not None:
            rows.append({"message": place, "role": None, "kind": "messages", "names": [message.slot]})
        rows += [
            {
                "message": place,
                "role": message.role,
                "kind": segment.kind.value,
                "offset": segment.offset,
                "chars": len(segment.source),
                "volatility": segment.volatility.label,
                "marked": segment.marked,
                "names": list(segment.names),
                "text": _excerpt(segment.source) if segment.kind is SegmentKind.FIXED else segment.source[:200],
            }
            for segment in message.segments
        ]
    return rows


def _excerpt(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _EXCERPT_CHARS else f"{flat[: _EXCERPT_CHARS // 2]} ... {flat[-_EXCERPT_CHARS // 2 :]}"


def _move(move: Move) -> dict[str, object]:
    return {**asdict(move), "volatility": move.volatility.label}


def _stay(stay: Stay) -> dict[str, object]:
    return {**asdict(stay), "volatility": stay.volatility.label}


def share_view(share: ExpectedShare) -> dict[str, object]:
    """A share with the tokens behind it."""
    return {**asdict(share), "share": round(share.share, 4)}


def made_up_samples(template: PromptTemplate, calls: int, calls_a_session: int = 5) -> list[dict[str, object]]:
    """Variables for an estimate where there are no samples: each changes as often as its slot is said to.

    A variable that is read in several segments changes as the most volatile of them.
    """
    volatility: dict[str, Volatility] = {}
    for message in template.messages:
        for segment in message.segments:
            for name in segment.names:
                volatility[name] = max(segment.volatility, volatility.get(name, Volatility.FIXED))
    turns = {Volatility.PER_SESSION: calls_a_session, Volatility.PER_REQUEST: 1}
    slots = [message.slot for message in template.messages if message.slot is not None]
    return [
        {name: f"{name} {call // turns.get(said, calls):06d}" for name, said in volatility.items()}
        | {slot: [{"role": "user", "content": f"{slot} {call:06d}"}] for slot in slots}
        for call in range(calls)
    ]
