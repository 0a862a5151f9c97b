"""A study for people, as tables and lines of a terminal, and for programs, as plain values. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.table import Table

from gateway.measuring.types import Binds, Bottleneck, Level, Spread, Study

SPARE: Final = ("least", "most", "gap p99", "late p99", "goodput/s", "input/s", "failed", "busy")
"""Columns that a narrow terminal does without."""
_LENGTHS: Final = ("tokens", "requests", "mean", "least", "p50", "p90", "p99", "most")
_RATES: Final = (
    *("load", "in flight", "requests", "failed", "requests/s", "goodput/s", "within", "input/s", "output/s"),
    *("per GPU", "hits", "busy", "prefill", "decode"),
)
_TIMES: Final = ("load", "TTFT p50", "TTFT p90", "TTFT p99", "ITL p50", "ITL p90", "ITL p99", "gap p99", "late p99")
_BOTTLENECKS: Final = {
    Bottleneck.PREFILL: "prefill is the bottleneck",
    Bottleneck.DECODE: "decode is the bottleneck",
    Bottleneck.BOTH: "prefill and decode take alike",
    Bottleneck.UNKNOWN: "what takes the time is not known",
}
_BINDS: Final = {
    Binds.TTFT: "the limit of TTFT binds",
    Binds.ITL: "the limit of ITL binds",
    Binds.NEITHER: "no limit is broken",
    Binds.NONE_GIVEN: "no limit was given",
}


def tables_of(study: Study) -> tuple[Table, Table, Table]:
    """Lengths; how much of each load is served; how fast. Columns of which nothing is known are left out."""
    lengths = [
        [name, f"{spread.count:,}", f"{spread.mean:,.1f}", *(f"{v:,.0f}" for v in _points(spread))]
        for name, spread in study.lengths.items()
    ]
    rates, times = [[*_rates(level)] for level in study.levels], [[*_times(level)] for level in study.levels]
    return _table(_LENGTHS, lengths), _table(_RATES, rates), _table(_TIMES, times)


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    known = [at for at in range(len(headings)) if any(line[at] for line in lines)]
    table = Table(*(headings[at] for at in known))
    for column in table.columns[1:]:
        column.justify = "right"
    for line in lines:
        table.add_row(*(line[at] for at in known))
    return table


def headline(study: Study) -> Iterator[str]:
    """What was measured, before the tables."""
    yield study.source
    arrivals = study.arrivals
    if arrivals is not None:
        cv = f", gaps vary by {arrivals.cv:.2f} of their mean (Poisson: 1)"
        spans = ", ".join(f"{value:.2f} over {span:g} s" for span, value in arrivals.dispersion.items())
        yield f"arrivals: {arrivals.requests_per_s:.3g} a second{cv}" + (f"; variance/mean {spans}" if spans else "")
    if study.hit_share is not None:
        most = "" if study.ceiling_share is None else f" of at most {study.ceiling_share:.1%}"
        yield f"reuse: {study.hit_share:.1%} of prompt tokens were cached{most}"


def verdict_lines(study: Study) -> Iterator[str]:
    """The verdict, why, what to turn, and what to know of the figures; after the tables."""
    for held in study.held_against:
        yield (
            f"against the plan: {held.name}: {held.measured:.4g} measured, {held.computed:.4g} by arithmetic, "
            f"{held.measured / held.computed:.2f} times"
        )
    verdict = study.verdict
    yield f"verdict: {_BOTTLENECKS[verdict.bottleneck]}; {_BINDS[verdict.binds]}"
    yield from (f"  because {reason}" for reason in verdict.reasons)
    yield from (f"  turn: {one}" for one in verdict.turn)
    yield from (f"  note: {note}" for note in study.notes)


def as_json(study: Study) -> dict[str, Any]:
    """All of it; what is unknown is None."""
    found = asdict(study)
    for level, row in zip(study.levels, found["levels"], strict=True):
        row["decode_share"] = level.decode_share
    if study.arrivals is not None:
        found["arrivals"]["dispersion"] = {f"{span:g}": one for span, one in study.arrivals.dispersion.items()}
    return found


def offered(level: Level) -> str:
    """What was offered, in words."""
    if level.rate_per_s is not None:
        return f"{level.rate_per_s:g}/s"
    return "as it came" if level.clients is None else f"{level.clients} client{'s' * (level.clients > 1)}"


def _points(spread: Spread) -> tuple[float, ...]:
    return (spread.least, spread.p50, spread.p90, spread.p99, spread.most)


def _rates(level: Level) -> Iterator[str]:
    yield offered(level)
    yield f"{level.in_flight:.1f}"
    yield f"{level.requests:,}"
    yield f"{level.failed + level.cut:,}"
    yield f"{level.requests_per_s:.3g}"
    yield _number(level.goodput_per_s, ".3g")
    yield _number(level.within_limits, ".0%")
    yield _number(level.input_tokens_per_s, ",.0f")
    yield _number(level.output_tokens_per_s, ",.0f")
    yield _number(level.output_tokens_per_s_per_gpu, ",.0f")
    for share in (level.hit_share, level.busy_share, level.prefill_share, level.decode_share):
        yield _number(share, ".0%")


def _times(level: Level) -> Iterator[str]:
    yield offered(level)
    for spread in (level.ttft, level.itl):
        yield from (("", "", "") if spread is None else (seconds(v) for v in (spread.p50, spread.p90, spread.p99)))
    yield "" if level.gap is None else seconds(level.gap.p99)
    yield "" if level.late is None or level.clients is not None else seconds(level.late.p99)


def seconds(value: float) -> str:
    """Three digits, as seconds or milliseconds."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
