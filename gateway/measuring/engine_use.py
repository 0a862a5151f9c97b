"""What engines said of themselves while they were watched: running and waiting requests, use of the KV cache. Pure.

/admin/endpoints, once a second ──> means ──> requests wait ┬ and the KV cache is full: it is too small
                                                            └ and it is not: too few may run at once
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

from gateway.measuring.types import EngineUse, Study

_KEYS: Final = ("running_requests", "waiting_requests", "kv_use")
"""Of a row of the admin API, in the order of `EngineUse`."""
_WAITS_FROM: Final = 1.0
"""Requests that wait, on average: fewer are chance."""
_FULL_FROM: Final = 0.9
"""Use of a KV cache from which on an engine starts nothing more: what runs needs the rest to grow."""
_FULL: Final = (
    "a larger KV cache (gpu_memory_utilization, 8 bits, more replicas): it is full, and requests wait before the batch"
)
_HAS_ROOM: Final = "more answers at once (max_num_seqs): requests wait though the KV cache has room"


def use_of(pages: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[EngineUse, ...]:
    """Of the pages of `/admin/endpoints`, in their order, by endpoint. What none of them told is None.

    Raises `KeyError` and `TypeError` for pages of something else.
    """
    by_endpoint: dict[str, list[Mapping[str, Any]]] = {}
    for page in pages:
        for row in page:
            by_endpoint.setdefault(str(row["id"]), []).append(row)
    return tuple(
        EngineUse(name, *(_mean(row.get(key) for row in rows) for key in _KEYS)) for name, rows in by_endpoint.items()
    )


def with_use(study: Study, uses: Sequence[EngineUse]) -> Study:
    """The study with what the engines said, and what follows from it, first among what to turn."""
    waiting = [one for one in uses if one.waiting_requests is not None and one.waiting_requests >= _WAITS_FROM]
    reasons = tuple(_said(one) for one in uses)
    full = any(one.kv_use is not None and one.kv_use >= _FULL_FROM for one in waiting)
    turn = () if not waiting else (_FULL,) if full else (_HAS_ROOM,)
    verdict = study.verdict
    told = replace(verdict, reasons=(*verdict.reasons, *reasons), turn=(*turn, *verdict.turn))
    return replace(study, engine_use=tuple(uses), verdict=told)


def _said(one: EngineUse) -> str:
    use = "not told" if one.kv_use is None else f"{one.kv_use:.0%}"
    return f"{one.endpoint}: {_number(one.running_requests)} running, {_number(one.waiting_requests)} waiting, KV {use}"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
