"""Metrics to a collector: OTLP over HTTP, in protobuf (extra `otel`).

    thread "metric-exporter"    every interval, and at the end
        registry --> ExportMetricsServiceRequest --> POST .../v1/metrics

Values are sums since the start, so that one that does not arrive is made up for by the next: nothing is sent again, and
nothing waits.
"""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import httpx
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family
from prometheus_client.core import Sample

from gateway.metrics import Counter
from gateway.tracing import otlp_messages as otlp
from gateway.tracing.otlp import TIMEOUT_S, Collector, pairs_of
from gateway.tracing.otlp_messages import Message

_NUMBERS: Final = frozenset({"server.port"})
_FLAGS: Final = frozenset({"otel.metric.overflow"})
_UNITS: Final = {"counter": "{token}", "histogram": "s"}


class MetricExporter:
    """Sends what a registry has, from a thread of its own, until it is closed. `counted` counts what became of that."""

    def __init__(
        self, registry: CollectorRegistry, collector: Collector, every_s: float, counted: Callable[..., Counter]
    ) -> None:
        self._registry = registry
        self._collector = collector
        self._every_s = every_s
        self._counted = counted
        self._began_ns = time.time_ns()
        self._resource = otlp.Resource(attributes=pairs_of(collector.resource))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metric-exporter", daemon=True)
        self._thread.start()

    def close(self, within_s: float) -> None:
        """Send what there is for the last time; blocking."""
        self._closing.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        collector = self._collector
        headers = {**collector.headers, "content-type": "application/x-protobuf"}
        with httpx.Client(headers=headers, timeout=TIMEOUT_S, trust_env=False, verify=collector.tls or True) as http:
            while not self._closing.wait(self._every_s):
                self._send(http)
            self._send(http)

    def _send(self, http: httpx.Client) -> None:
        message = request_of(self._registry, self._resource, self._began_ns, time.time_ns())
        if message is None:
            return
        try:
            taken = http.post(self._collector.url, content=message.SerializeToString()).is_success
        except httpx.HTTPError:
            taken = False
        self._counted("sent" if taken else "failed").inc()


def request_of(registry: CollectorRegistry, resource: Message, began_ns: int, now_ns: int) -> Message | None:
    """All metrics as the message that a collector takes; None where there is nothing to tell."""
    metrics = [metric for family in registry.collect() if (metric := _metric(family, began_ns, now_ns)) is not None]
    if not metrics:
        return None
    scope = otlp.ScopeMetrics(scope=otlp.InstrumentationScope(name="prefixgate"), metrics=metrics)
    return otlp.ExportMetricsServiceRequest(
        resource_metrics=[otlp.ResourceMetrics(resource=resource, scope_metrics=[scope])]
    )


def _metric(family: Family, began_ns: int, now_ns: int) -> Message | None:
    metric = otlp.Metric(name=family.name, description=family.documentation, unit=_UNITS[family.type])
    if family.type == "counter":
        points = [
            otlp.NumberDataPoint(
                attributes=_attributes(sample.labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                as_int=int(sample.value),
            )
            for sample in family.samples
            if sample.name.endswith("_total")
        ]
        metric.sum.CopyFrom(otlp.Sum(data_points=points, aggregation_temporality=otlp.CUMULATIVE, is_monotonic=True))
        return metric if points else None
    seen = otlp.Histogram(
        data_points=list(_histograms(family, began_ns, now_ns)), aggregation_temporality=otlp.CUMULATIVE
    )
    metric.histogram.CopyFrom(seen)
    return metric if seen.data_points else None


def _histograms(family: Family, began_ns: int, now_ns: int) -> Iterator[Message]:
    """Its samples come series by series: buckets, count, sum."""
    buckets: list[Sample] = []
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            buckets.append(sample)
        elif sample.name.endswith("_sum"):
            risen = [0, *(int(bucket.value) for bucket in buckets)]
            yield otlp.HistogramDataPoint(
                attributes=_attributes(sample.labels),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=risen[-1],
                sum=sample.value,
                bucket_counts=[later - before for before, later in pairwise(risen)],
                explicit_bounds=[float(bucket.labels["le"]) for bucket in buckets[:-1]],
            )
            buckets = []


def _attributes(labels: dict[str, str]) -> list[Message]:
    """Labels that say something; what is empty is unknown."""
    return [otlp.KeyValue(key=name, value=_value(name, value)) for name, value in labels.items() if value]


def _value(name: str, value: str) -> Message:
    if name in _NUMBERS:
        return otlp.AnyValue(int_value=int(value))
    return otlp.AnyValue(bool_value=True) if name in _FLAGS else otlp.AnyValue(string_value=value)
