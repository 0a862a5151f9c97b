"""Results for people, as a table, and for programs, as plain values. Pure.

Settings are held against the baseline, the first. `front`: ● no other is as good in everything and better in something.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from msgspec import to_builtins
from rich.table import Table

from gateway.measuring.text import seconds
from gateway.tuning.judging import Agreement, Change, agreement, bits_per_byte, change, perplexity, repeated
from gateway.tuning.pareto import Axis, front
from gateway.tuning.types import QUALITY_AXES, MiB, Row, Speed, shown

SPARE: Final = ("start", "KV tokens", "requests/s", "again", "said", "same", "ITL p90")
"""Columns that a narrow terminal does without."""
_HEADINGS: Final = (
    *("front", "output/s", "requests/s", "failed", "TTFT p90", "ITL p90", "MiB", "GPU MiB", "KV tokens", "start"),
    *("perplexity", "change", "agrees", "same", "differs at", "again", "exact", "said"),
)
_MORE: Final = {"output_tokens_per_s", "requests_per_s", "kv_tokens", "agreement", "tasks"}
_ON, _OFF, _UNKNOWN, _NONE = "●", "", "?", "-"


@dataclass(frozen=True, slots=True)
class Judged:
    """A row with what its quality is in figures. `is_on_front`: None where a figure of it is not known."""

    row: Row
    perplexity: float | None
    bits_per_byte: float | None
    change: Change | None
    agreement: Agreement | None
    repeated: Agreement | None
    is_on_front: bool | None


@dataclass(frozen=True, slots=True)
class Results:
    """All rows, the baseline first, and the axes of the front of which at least one row knows a figure; the names of
    the others are `unknown`."""

    rows: Sequence[Judged]
    axes: Sequence[Axis]
    unknown: Sequence[str]


def results_of(rows: Sequence[Row], names: Sequence[str]) -> Results:
    """Held against the first row, and against each other by the figures that are named. O(n²) in the rows.

    Where of the figures of quality none is known, agreement stands in for them: speed is not weighed alone.
    """
    judged = [_judged(row, rows[0]) for row in rows]
    figures = {name: [figure(one, name) for one in judged] for name in (*names, "agreement")}
    usable = [name for name in names if any(value is not None for value in figures[name])]
    if not QUALITY_AXES.intersection(usable):
        usable.append("agreement")
    axes = [Axis(name, name in _MORE) for name in usable]
    points = [tuple(figures[name][at] for name in usable) for at in range(len(judged))]
    return Results(
        [replace(one, is_on_front=is_on) for one, is_on in zip(judged, front(points, axes), strict=True)],
        axes,
        [name for name in names if name not in usable],
    )


def _judged(row: Row, first: Row) -> Judged:
    quality, base = row.quality, first.quality
    reading = None if quality is None else quality.reading
    comparable = quality is not None and base is not None and quality.unit == base.unit
    return Judged(
        row=row,
        perplexity=None if reading is None else perplexity(reading),
        bits_per_byte=None if reading is None else bits_per_byte(reading),
        change=change(base.reading, reading) if base and base.reading and reading else None,
        agreement=agreement(base.answers, quality.answers) if comparable and base and quality else None,
        repeated=None if quality is None else repeated(quality.answers),
        is_on_front=None,
    )


def figure(one: Judged, name: str) -> float | None:
    """By the name of an axis; None where it is not known, or the setting failed."""
    speed, quality = one.row.speed, one.row.quality
    if speed is None or quality is None:
        return None
    by_name: Mapping[str, float | None] = {
        "output_tokens_per_s": speed.output_tokens_per_s,
        "requests_per_s": speed.requests_per_s,
        "ttft_s": None if speed.ttft_s is None else speed.ttft_s.p90,
        "itl_s": None if speed.itl_s is None else speed.itl_s.p90,
        "memory_bytes": one.row.memory_bytes,
        "gpu_bytes": one.row.gpu_bytes,
        "kv_tokens": one.row.kv_tokens,
        "perplexity": one.perplexity,
        "agreement": None if one.agreement is None else one.agreement.equal,
        "tasks": None if quality.tasks is None else quality.tasks.exact / quality.tasks.of,
    }
    return by_name[name]


def table_of(found: Results) -> Table:
    """A row for each setting, dashes for one that failed; columns of which nothing is known are left out."""
    keys = list(dict.fromkeys(key for one in found.rows for key in one.row.setting))
    lines = [_line(one, keys, is_base=one is found.rows[0]) for one in found.rows]
    headings = [*keys, *_HEADINGS]
    known = [at for at in range(len(headings)) if any(line[at] not in ("", _NONE) for line in lines)]
    table = Table()
    for at in known:
        widest = max(len(line[at]) for line in (headings, *lines))
        table.add_column(headings[at], no_wrap=True, min_width=widest)
        table.columns[-1].justify = "right" if at > len(keys) else "left"
    for line in lines:
        table.add_row(*(line[at] for at in known))
    return table


def _line(one: Judged, keys: Sequence[str], *, is_base: bool) -> list[str]:
    values = (shown(one.row.setting[key]) if key in one.row.setting else "" for key in keys)
    return [*values, *_cells(one, is_base=is_base)]


def _cells(one: Judged, *, is_base: bool) -> Iterator[str]:
    row = one.row
    if row.speed is None or row.quality is None:
        yield "failed"
        yield from (_NONE for _ in _HEADINGS[1:])
        return
    yield _UNKNOWN if one.is_on_front is None else _ON if one.is_on_front else _OFF
    yield from _speed_cells(row.speed)
    yield "" if row.memory_bytes is None else f"{row.memory_bytes / MiB:,.0f}"
    yield "" if row.gpu_bytes is None else f"{row.gpu_bytes / MiB:,.0f}"
    yield _number(row.kv_tokens, ",")
    yield _number(row.ready_s, ".1f", " s")
    yield _number(one.perplexity, ".3f")
    yield from ("baseline", "", "", "") if is_base else _against(one)
    yield "" if one.repeated is None else f"{one.repeated.equal:.1%}"
    tasks = row.quality.tasks
    yield "" if tasks is None else f"{tasks.exact}/{tasks.of}"
    yield "" if tasks is None else f"{tasks.said}/{tasks.of}"


def _against(one: Judged) -> Iterator[str]:
    change, agreed = one.change, one.agreement
    yield "" if change is None else f"{change.ratio - 1:+.2%} ±{change.error:.2%}"
    yield "" if agreed is None else f"{agreed.equal:.1%}"
    yield "" if agreed is None else f"{agreed.same}/{agreed.of}"
    yield "" if agreed is None or agreed.diverges_at is None else f"{agreed.diverges_at}"


def _speed_cells(speed: Speed) -> Iterator[str]:
    yield _number(speed.output_tokens_per_s, ",.1f")
    yield f"{speed.requests_per_s:.3g}"
    yield f"{speed.failed}" if speed.failed else ""
    ttft, itl = speed.ttft_s, speed.itl_s
    yield "" if ttft is None else seconds(ttft.p90)
    yield "" if itl is None else seconds(itl.p90)


def lines_of(found: Results) -> Iterator[str]:
    """What to know below the table."""
    better = {True: "more", False: "less"}
    axes = ", ".join(f"{better[axis.more_is_better]} {axis.name}" for axis in found.axes)
    is_weighed = any(one.row.failed is None for one in found.rows)
    if axes and is_weighed:
        yield f"front by {axes}; ● no other setting is as good in all of these and better in one"
    if found.unknown and is_weighed:
        yield f"not known of any setting, so not weighed: {', '.join(found.unknown)}"
    for why in dict.fromkeys(one.row.quality.unread for one in found.rows if one.row.quality is not None):
        if why is not None:
            yield f"no perplexity: {why}"
    for one in found.rows:
        if one.row.failed is not None:
            yield f"failed: {one.row.name}: {one.row.failed}"
    yield from _notes([one.row for one in found.rows])


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """Each of them once, with whom it is of."""
    of: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            of.setdefault(note, []).append(row.name)
    for note, names in of.items():
        if not note.startswith("seed "):  # as the sweep has it
            yield f"note: {f'{len(names)} settings' if len(names) > 1 else names[0] or 'the setting'}: {note}"


def as_json(found: Results) -> dict[str, Any]:
    """All of it, but for the answers and probabilities themselves, which the file of results has."""
    return {
        "axes": [{"name": axis.name, "better": "more" if axis.more_is_better else "less"} for axis in found.axes],
        "unknown_axes": list(found.unknown),
        "settings": [_plain(one) for one in found.rows],
    }


def _plain(one: Judged) -> dict[str, Any]:
    row = one.row
    quality = row.quality
    reading = None if quality is None else quality.reading
    return {
        "key": row.key,
        "setting": row.setting,
        "at": row.at,
        "seconds": row.seconds,
        "failed": row.failed,
        "on_front": one.is_on_front,
        "speed": to_builtins(row.speed),
        "engine": row.engine,
        "version": row.version,
        "memory_bytes": row.memory_bytes,
        "gpu_bytes": row.gpu_bytes,
        "kv_tokens": row.kv_tokens,
        "ready_s": row.ready_s,
        "quality": None
        if quality is None
        else {
            "perplexity": one.perplexity,
            "bits_per_byte": one.bits_per_byte,
            "read_tokens": None if reading is None else len(reading.logprobs),
            "read_by": None if reading is None else reading.method,
            "unread": quality.unread,
            "change": None if one.change is None else asdict(one.change),
            "agreement": None if one.agreement is None else asdict(one.agreement),
            "repeated": None if one.repeated is None else asdict(one.repeated),
            "unit": quality.unit,
            "tasks": to_builtins(quality.tasks),
        },
        "notes": list(row.notes),
    }


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"
