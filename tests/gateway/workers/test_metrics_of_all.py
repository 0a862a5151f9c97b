"""The metrics of several workers as one text: sums, gauges by their rules, and counters that never fall."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Exemplar, Metric, Timestamp
from prometheus_client.openmetrics import parser as open_metrics_parser
from prometheus_client.parser import text_string_to_metric_families

from gateway.exposition import Form
from gateway.ledger_setup import measure
from gateway.team.messages import Crew
from gateway.telemetry import Telemetry
from gateway.workers.asking import SupervisorMetrics
from gateway.workers.expositions import Expositions
from gateway.workers.gauge_rules import RULES, Rule
from gateway.workers.merging import joined, lasting, read, written

DOCS = Path(__file__).parents[3] / "docs"
TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"


def parsed(text: bytes) -> list[Metric]:
    """An OpenMetrics text, which must be one to the letter."""
    return list(open_metrics_parser.text_string_to_metric_families(text.decode()))  # type: ignore[no-untyped-call]


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
    return telemetry.exposition(Form.OPEN_METRICS)


def one(*texts: bytes, form: Form = Form.TEXT) -> bytes:
    return written(joined(map(read, texts)), form)


def test_every_gauge_has_a_rule() -> None:
    telemetry = Telemetry()
    nothing: Any = SimpleNamespace(spool=None, settled_twice=0, interrupted=0)
    measure(nothing, telemetry.registry)
    supervisor = SupervisorMetrics(lambda: Crew(0, 0)).registry
    families = [family for registry in (telemetry.registry, supervisor) for family in registry.collect()]
    gauges = {family.name for family in families if family.type == "gauge"}
    assert gauges - set(RULES) == set()


def test_the_supervisors_metrics_are_documented() -> None:
    text = (DOCS / "metrics.md").read_text()
    names = [family.name for family in SupervisorMetrics(lambda: Crew(0, 0)).registry.collect()]
    assert [name for name in names if f"`{name}`" not in text] == []


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
    telemetry = Telemetry()
    telemetry.requests("/v1/chat/completions", "complete").inc(3)
    telemetry.ttft_s("a # {").observe(0.3, TRACE)
    telemetry.ttft_s("a # {").observe(3)
    open_metrics = telemetry.exposition(Form.OPEN_METRICS)
    assert parsed(one(open_metrics, form=Form.OPEN_METRICS)) == parsed(open_metrics)
    text, expected = one(open_metrics).decode(), telemetry.exposition().decode()
    assert list(text_string_to_metric_families(text)) == list(text_string_to_metric_families(expected))


def test_of_two_exemplars_of_a_bucket_the_later_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(at_s: float, trace_id: bytes, value_s: float) -> bytes:
        monkeypatch.setattr("gateway.metrics.time.time", lambda: at_s)
        return worker(lambda telemetry: telemetry.ttft_s("a").observe(value_s, trace_id))

    texts = seen(20.5, b"1" * 32, 0.2), seen(100.5, b"2" * 32, 0.15), seen(3.5, b"3" * 32, 0.11), worker(lambda _: None)
    samples = [sample for family in parsed(one(*texts, form=Form.OPEN_METRICS)) for sample in family.samples]
    (found,) = [sample for sample in samples if sample.exemplar is not None]
    assert (found.labels["le"], found.value) == ("0.25", 3.0)
    assert found.exemplar == Exemplar({"trace_id": "2" * 32}, 0.15, Timestamp(100, 500_000_000))
    assert b"trace_id" not in one(*texts)


def test_a_worker_that_is_gone_leaves_what_it_counted_and_no_gauge() -> None:
    def busy(telemetry: Telemetry) -> None:
        telemetry.requests("/v1/chat/completions", "complete").inc(3)
        telemetry.in_flight.set(7)

    left = written(lasting(read(worker(busy))), Form.TEXT)
    assert value(left, "prefixgate_requests_total") == 3
    assert b"prefixgate_in_flight_requests" not in left


def counted(number: int) -> bytes:
    return worker(lambda telemetry: telemetry.requests("/v1/chat/completions", "complete").inc(number))


async def total(expositions: Expositions, **texts: bytes) -> float:
    said = {int(name.removeprefix("w")): text for name, text in texts.items()}
    text = await expositions.of_all(said, Form.TEXT)
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


def of_fleet(*endpoints: str) -> bytes:
    def busy(telemetry: Telemetry) -> None:
        for endpoint in endpoints:
            telemetry.endpoint_healthy.labels(endpoint).set(1)
            telemetry.tokens(endpoint, "prompt").inc(5)
            telemetry.speed.samples(f"{endpoint}/1", "alone").inc()
            telemetry.ttft_s(endpoint).observe(0.02, TRACE)

    return worker(busy)


async def test_what_was_counted_of_endpoints_that_left_long_ago_does_not_pile_up() -> None:
    expositions = Expositions()
    for day in range(20):
        pods = (f"pod-{day}", f"pod-{day + 1}", 'odd"\\ne,endpoint="x"')
        await expositions.of_all({day: of_fleet(*pods)}, Form.TEXT)
        await expositions.gone(day)
    text = await expositions.of_all({99: of_fleet("pod-20")}, Form.OPEN_METRICS)
    assert value(text, "prefixgate_tokens_total", endpoint="pod-20") == 10
    assert value(text, "prefixgate_tokens_total", endpoint='odd"\\ne,endpoint="x"') == 100
    assert value(text, "prefixgate_perf_samples_total", endpoint="pod-19/1") == 2
    assert b"pod-18" not in text
    parsed(text)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1 << 40)), min_size=1, max_size=4))
def test_sums_are_those_of_the_workers(workers: list[dict[str, int]]) -> None:
    def text_of(counts: dict[str, int]) -> bytes:
        lines = [b"# HELP x X.", b"# TYPE x counter"]
        lines += [b'x_total{label="%b \\" \\n"} %d' % (name.encode(), number) for name, number in counts.items()]
        return b"\n".join([*lines, b"# EOF"]) + b"\n"

    found = read(one(*map(text_of, workers), form=Form.OPEN_METRICS))[b"x"]
    names = {name for counts in workers for name in counts}
    assert sorted(found.series.values()) == sorted(float(sum(c.get(n, 0) for c in workers)) for n in names)


def test_rules_are_few() -> None:
    assert set(RULES.values()) | {Rule.TOTAL} == set(Rule)  # the sum of counters needs no entry
