"""The metrics of several workers as one text: sums, gauges by their rules, and counters that never fall."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.ledger_setup import measure
from gateway.team.messages import Crew
from gateway.telemetry import Telemetry
from gateway.workers.asking import SupervisorMetrics
from gateway.workers.expositions import Expositions
from gateway.workers.gauge_rules import CREATED_SUFFIX, RULES, Rule
from gateway.workers.merging import joined, lasting, read, written

DOCS = Path(__file__).parents[3] / "docs"


def value(text: bytes, name: str, **labels: str) -> float:
    """Of one sample, as Prometheus reads it."""
    families = text_string_to_metric_families(text.decode())
    (found,) = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return float(found)


def worker(change: Callable[[Telemetry], object]) -> bytes:
    telemetry = Telemetry()
    change(telemetry)
    return telemetry.exposition()


def one(*texts: bytes) -> bytes:
    return written(joined(map(read, texts)))


def test_every_gauge_has_a_rule() -> None:
    telemetry = Telemetry()
    nothing: Any = SimpleNamespace(spool=None, settled_twice=0, interrupted=0)
    measure(nothing, telemetry.registry)
    supervisor = SupervisorMetrics(lambda: Crew(0, 0)).registry
    families = [family for registry in (telemetry.registry, supervisor) for family in registry.collect()]
    gauges = {family.name for family in families if family.type == "gauge"}
    assert {name for name in gauges if not name.endswith(CREATED_SUFFIX)} - set(RULES) == set()


def test_the_supervisors_metrics_are_documented() -> None:
    text = (DOCS / "metrics.md").read_text()
    names = [family.name for family in SupervisorMetrics(lambda: Crew(0, 0)).registry.collect()]
    assert [name for name in names if not name.endswith(CREATED_SUFFIX) and f"`{name}`" not in text] == []


def test_counters_and_histograms_are_summed_series_by_series() -> None:
    def busy(telemetry: Telemetry) -> None:
        telemetry.requests("/v1/chat/completions", "complete").inc(2)
        telemetry.ttft_s('a "b" c').observe(0.02)

    text = one(worker(busy), worker(busy), worker(lambda telemetry: telemetry.requests("other", "failed").inc()))
    assert value(text, "prefixgate_requests_total", state="complete") == 4
    assert value(text, "prefixgate_requests_total", state="failed") == 1
    assert value(text, "prefixgate_time_to_first_token_seconds_count", endpoint='a "b" c') == 2
    assert value(text, "prefixgate_time_to_first_token_seconds_bucket", endpoint='a "b" c', le="0.025") == 2
    assert value(text, "prefixgate_time_to_first_token_seconds_bucket", endpoint='a "b" c', le="0.01") == 0


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("prefixgate_in_flight_requests", lambda t, v: t.in_flight.set(v), 6),
        ("prefixgate_endpoint_healthy", lambda t, v: t.endpoint_healthy.labels("a").set(v), 1),
        ("prefixgate_degraded", lambda t, v: t.degraded.labels("index").set(v), 3),
        ("prefixgate_perf_base_seconds", lambda t, v: t.speed.base_s("a").set(v), 2),
        ("prefixgate_index_dropped_writes_total", lambda t, v: t.index_dropped_writes.stands_at(v), 6),
    ],
)
def test_a_gauge_is_joined_by_its_rule(name: str, change: Callable[[Telemetry, float], None], expected: float) -> None:
    texts = [worker(lambda telemetry, v=v: change(telemetry, v)) for v in (1.0, 2.0, 3.0)]  # type: ignore[misc]
    assert value(one(*texts), name) == expected


def test_one_workers_metrics_stay_as_they_are() -> None:
    text = worker(lambda telemetry: telemetry.requests("/v1/chat/completions", "complete").inc(3))
    assert list(text_string_to_metric_families(one(text).decode())) == list(
        text_string_to_metric_families(text.decode())
    )


def test_a_worker_that_is_gone_leaves_what_it_counted_and_no_gauge() -> None:
    def busy(telemetry: Telemetry) -> None:
        telemetry.requests("/v1/chat/completions", "complete").inc(3)
        telemetry.in_flight.set(7)

    left = written(lasting(read(worker(busy))))
    assert value(left, "prefixgate_requests_total") == 3
    assert b"prefixgate_in_flight_requests" not in left


def counted(number: int) -> bytes:
    return worker(lambda telemetry: telemetry.requests("/v1/chat/completions", "complete").inc(number))


async def total(expositions: Expositions, **texts: bytes) -> float:
    text = await expositions.of_all({int(name.removeprefix("w")): text for name, text in texts.items()})
    return value(text, "prefixgate_requests_total")


async def test_no_counter_falls_when_workers_come_and_go() -> None:
    expositions = Expositions()
    assert await total(expositions, w1=counted(5), w2=counted(7)) == 12
    assert await total(expositions, w1=counted(6)) == 13  # the other does not answer: what it said last
    expositions.farewell(1, counted(9))
    assert await total(expositions, w1=counted(8), w2=counted(7)) == 16  # an answer from before the farewell
    await expositions.gone(1)
    await expositions.gone(2)  # killed
    assert await total(expositions, w2=counted(7), w3=counted(1)) == 17  # its answer came too late
    await expositions.gone(4)  # never seen
    assert await total(expositions, w3=counted(2)) == 18


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1 << 40)), min_size=1, max_size=4))
def test_sums_are_those_of_the_workers(workers: list[dict[str, int]]) -> None:
    def text_of(counts: dict[str, int]) -> bytes:
        lines = [b"# HELP x_total X.", b"# TYPE x_total counter"]
        lines += [b'x_total{label="%b \\" \\n"} %d' % (name.encode(), number) for name, number in counts.items()]
        return b"\n".join(lines) + b"\n"

    found = read(one(*map(text_of, workers)))[b"x_total"]
    names = {name for counts in workers for name in counts}
    assert sorted(found.series.values()) == sorted(float(sum(c.get(n, 0) for c in workers)) for n in names)


def test_rules_are_few() -> None:
    assert set(RULES.values()) | {Rule.TOTAL} == set(Rule)  # the sum of counters needs no entry
