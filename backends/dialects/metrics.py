"""Reading a metrics page: the few series asked for, out of hundreds.

A full parse of a vLLM page (60 KB, 700 lines) takes 25 ms, which would hold up every stream on the loop. Dropping
the lines of other metrics first, by prefix, leaves the real parser a dozen lines: 0.5 to 1 ms.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from backends.dialects.event_sources import MAX_RANKS
from backends.dialects.types import CacheShape, Dialect, MetricNames, Samples, Series
from backends.types import LoadSample

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def scan(text: str, names: Iterable[str]) -> Samples:
    """The series called exactly `names` on a page in Prometheus' text format; lines that cannot be read are skipped.

    O(page), with the slow parser only on lines that matter.
    """
    wanted = frozenset(names)
    found: dict[str, list[Series]] = {}
    lines = [line for line in text.splitlines() if (head := _NAME.match(line)) and head[0] in wanted]
    for name, series in _parse_readable(lines):
        if name in wanted:
            found.setdefault(name, []).append(series)
    return found


def names_read(dialect: Dialect) -> tuple[str, ...]:
    """Every metric name that `load` and the dialect's `shape` look at."""
    names = dialect.metrics
    return (
        *names.running,
        *names.waiting,
        *names.kv_use,
        *names.prefix_hits,
        *names.prefix_queries,
        *names.steps,
        *names.finished,
        *names.started,
        *names.also,
    )


def load(dialect: Dialect, samples: Samples, fetched_at_s: float) -> LoadSample:
    """The load on a page: counts and counters summed over an endpoint's ranks, use their mean, start the latest."""
    names: MetricNames = dialect.metrics
    prepared = dialect.prepare(samples)
    running, waiting = total(prepared, names.running), total(prepared, names.waiting)
    use = _values(prepared, names.kv_use)
    return LoadSample(
        fetched_at_s=fetched_at_s,
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
        kv_use=sum(use) / len(use) if use else None,
        prefix_hits=total(prepared, names.prefix_hits),
        prefix_queries=total(prepared, names.prefix_queries),
        steps=_sum_of_all(prepared, names.steps),
        finished=total(prepared, names.finished),
        awake=dialect.awake(samples),
        adapters=dialect.adapters(prepared),
        started_at_s=max(_values(prepared, names.started), default=None),
        rank_kv_use=_by_rank(prepared, names.kv_use, dialect.rank_label),
    )


def rank_count(dialect: Dialect, samples: Samples) -> int:
    """The data-parallel ranks on a page, 1 where it does not tell them apart.

    Ranks are counted from 0, and a header chooses one by its number: a page that has others (those of one node among
    several, or one rank with an address of its own) is not of a server that lets us choose.
    """
    if dialect.rank_label is None:
        return 1
    series = dialect.prepare(samples).get(next((n for n in dialect.metrics.running if samples.get(n)), ""), ())
    named = {labelled.get(dialect.rank_label) for labelled, _ in series}
    told = len(named) <= MAX_RANKS and named == {str(rank) for rank in range(len(named))}
    return max(1, len(named)) if told else 1


def total(samples: Samples, names: tuple[str, ...]) -> float | None:
    """Sum of all series of the first metric of `names` that is present; None when none is, or it is no number."""
    return _sum(_values(samples, names))


def _sum_of_all(samples: Samples, names: tuple[str, ...]) -> float | None:
    return _sum([value for name in names for _, value in samples.get(name, ())])


def _sum(values: list[float]) -> float | None:
    found = sum(values) if values else None
    return found if found is not None and math.isfinite(found) else None


def labels(samples: Samples, name: str) -> list[Mapping[str, str]]:
    """The label sets of a metric, for those that carry their figures in labels."""
    return [series_labels for series_labels, _ in samples.get(name, ())]


MOST_COUNTED: Final = (1 << 31) - 1
"""Tokens, blocks or slots beyond this are what no engine has, and the wire of the index could not carry them."""


def whole_number(text: object) -> int | None:
    """A whole number from 1 to `MOST_COUNTED` written as text or number; None for anything else, such as "None"."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        number = float(text)
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 < number <= MOST_COUNTED and number.is_integer() else None


def paged(sizes: Sequence[Series], blocks: Sequence[Series]) -> CacheShape:
    """A cache of blocks of one size, by the series of that size, in tokens, and of how many each rank has."""
    block_size = whole_number(sizes[0][1]) if sizes else None
    blocks_of_all = whole_number(_sum([count for _, count in blocks]))
    if block_size is None or blocks_of_all is None:
        return CacheShape(block_size)
    return CacheShape(block_size, blocks_of_all * block_size)


def _by_rank(samples: Samples, names: tuple[str, ...], label: str | None) -> tuple[float, ...]:
    series = samples.get(next((name for name in names if samples.get(name)), ""), ())
    if label is None or len(series) < 2:
        return ()
    found = {labelled.get(label): value for labelled, value in series}
    ranks = [str(rank) for rank in range(len(found))]
    return tuple(found[rank] for rank in ranks) if found.keys() == set(ranks) else ()


def _values(samples: Samples, names: tuple[str, ...]) -> list[float]:
    for name in names:
        if samples.get(name):
            return [value for _, value in samples[name]]
    return []


def _parse_readable(lines: list[str]) -> list[tuple[str, Series]]:
    """All lines at once; one that cannot be read makes it go line by line and leave that one out."""
    try:
        return _parse(lines)
    except ValueError:
        if len(lines) == 1:
            return []
        return [found for line in lines for found in _parse_readable([line])]


def _parse(lines: list[str]) -> list[tuple[str, Series]]:
    return [
        (sample.name, (sample.labels, sample.value))
        for family in text_string_to_metric_families("\n".join((*lines, "")))
        for sample in family.samples
        if math.isfinite(sample.value)
    ]
