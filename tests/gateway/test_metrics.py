"""Our own series are told by the library exactly as its own are."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from gateway.metrics import counters, gauges, histograms

BOUNDS = (0.0, 0.001, 0.5, 2, 1e7)
NAMES = st.sampled_from(["a", 'b"\n\\', "è"])
VALUES = st.one_of(st.floats(0, 1e9), st.integers(0, 2**70), st.sampled_from(BOUNDS))
UPDATES = st.lists(st.tuples(st.sampled_from(["count", "gauge", "seen"]), NAMES, NAMES, VALUES))
LABELS = ["one", "two"]


def text(registry: CollectorRegistry) -> str:
    """The exposition, less the times at which series began."""
    return re.sub(r"(_created(?:\{.*\})?) [0-9.e+]+", r"\1 T", generate_latest(registry).decode())


def of_the_library(registry: CollectorRegistry) -> dict[str, Callable[..., Any]]:
    return {
        "count": prometheus_client.Counter("count", "Counted.\n\\", LABELS, registry=registry).labels,
        "gauge": prometheus_client.Gauge("gauge", "Set.", LABELS, registry=registry).labels,
        "seen": prometheus_client.Histogram("seen", "Seen.", LABELS, registry=registry, buckets=BOUNDS).labels,
    }


def of_ours(registry: CollectorRegistry) -> dict[str, Callable[..., Any]]:
    return {
        "count": counters(registry, "count", "Counted.\n\\", LABELS),
        "gauge": gauges(registry, "gauge", "Set.", LABELS),
        "seen": histograms(registry, "seen", "Seen.", LABELS, BOUNDS),
    }


@cache
def verb(kind: str) -> str:
    return {"count": "inc", "gauge": "set", "seen": "observe"}[kind]


@given(UPDATES)
def test_the_exposition_is_that_of_the_library(updates: list[tuple[str, str, str, float]]) -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    for registry, families in ((theirs, of_the_library(theirs)), (ours, of_ours(ours))):
        for kind, one, two, value in updates:
            getattr(families[kind](one, two), verb(kind))(value)
        assert registry.get_sample_value("unknown_total") is None
    assert text(ours) == text(theirs)


def test_series_without_labels_are_there_before_anything_happened() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    prometheus_client.Counter("count", "Counted.", registry=theirs)
    prometheus_client.Histogram("seen", "Seen.", registry=theirs, buckets=BOUNDS)
    prometheus_client.Gauge("gauge", "Set.", registry=theirs)
    counters(ours, "count", "Counted.", ())()
    histograms(ours, "seen", "Seen.", (), BOUNDS)()
    gauges(ours, "gauge", "Set.", ())()
    assert text(ours) == text(theirs)


def test_beginnings_are_told_where_the_library_tells_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    counters(registry, "count", "Counted.", ())()
    assert "count_created" in text(registry)
    monkeypatch.setattr("prometheus_client.metrics._use_created", False)
    assert "count_created" not in text(registry)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    counters(registry, "count", "Counted.", ())
    with pytest.raises(ValueError, match="count_total"):
        prometheus_client.Counter("count", "Counted.", registry=registry)
