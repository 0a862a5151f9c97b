"""Reading a metrics page: the few series asked for, out of hundreds.

A full parse of a vLLM page (60 KB, 700 lines) takes 25 ms, which would hold up every stream on the loop. Dropping
the lines of other metrics first, by prefix, leaves the real parser a dozen lines: 0.5 to 1 ms.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from backends.dialects.types import Dialect, MetricNames, Samples, Series
from backends.types import LoadSample


def scan(text: str, names: Iterable[str]) -> Samples:
    """The series called exactly `names` on a page in Prometheus' text format; lines that cannot be read are skipped.

    O(page), with the slow parser only on lines that matter.
    """
    wanted = frozenset(names)
    heads = tuple(wanted)
    found: dict[str, list[Series]] = {}
    lines = [line for line in text.splitlines() if line.startswith(heads)]
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
        started_at_s=max(_values(prepared, names.started), default=None),
    )


def total(samples: Samples, names: tuple[str, ...]) -> float | None:
    """Sum of all series of the first metric of `names` that is present; None when none is."""
    values = _values(samples, names)
    return sum(values) if values else None


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
