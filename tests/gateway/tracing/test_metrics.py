"""Calls of engines as a collector has them: by OpenTelemetry's conventions for generative AI, summed."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from gateway.tracing.inferences import MOST_SERVERS, PREFIX, Inference, Inferences
from gateway.tracing.otlp_messages import Resource
from gateway.tracing.otlp_metrics import request_of
from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, answer_json, chat_stream, scripted_engine
from tests.gateway.tracing.collector import attributes, running_collector
from tests.hostile import stream

CANARY = "The canary sings of gravity"
CHAT = {"model": "m", "messages": [{"role": "user", "content": CANARY}], "user": "canary-user"}
CALL = Inference("chat", "vllm", "m", "10.0.0.1", 8000, None, 0.5, 0.015, (40, 2, 32))


def by_name(request: ExportMetricsServiceRequest) -> dict[str, Metric]:
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name.removeprefix(f"{PREFIX}."): metric for metric in scope.metrics}


def told(inferences: Inferences) -> dict[str, Metric]:
    sent = request_of(inferences.registry, Resource(), 1, 2)
    assert sent is not None
    return by_name(ExportMetricsServiceRequest.FromString(sent.SerializeToString()))


def test_nothing_is_told_before_anything_was_called() -> None:
    assert request_of(Inferences().registry, Resource(), 1, 2) is None


def test_a_call_is_told_with_its_model_server_and_tokens() -> None:
    inferences = Inferences()
    for _ in range(2):
        inferences.note(CALL)
    metrics = told(inferences)
    assert {name: metric.unit for name, metric in metrics.items()} == {
        "duration": "s",
        "time_to_first_chunk": "s",
        "usage.input_tokens": "{token}",
        "usage.output_tokens": "{token}",
        "usage.cache_read.input_tokens": "{token}",
    }
    (point,) = metrics["duration"].histogram.data_points
    assert attributes(point) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "server.address": "10.0.0.1",
        "server.port": 8000,
    }
    assert (point.count, point.sum, point.start_time_unix_nano, point.time_unix_nano) == (2, 1.0, 1, 2)
    assert [round(bound, 9) for bound in point.explicit_bounds[:3]] == [0.01, 0.02, 0.04]
    assert (len(point.explicit_bounds), len(point.bucket_counts), sum(point.bucket_counts)) == (14, 15, 2)
    assert point.bucket_counts[6] == 2
    (first,) = metrics["time_to_first_chunk"].histogram.data_points
    assert list(first.bucket_counts)[:3] == [0, 2, 0]
    sums = {name: metric.sum for name, metric in metrics.items() if name.startswith("usage.")}
    assert {name: one.data_points[0].as_int for name, one in sums.items()} == {
        "usage.input_tokens": 80,
        "usage.output_tokens": 4,
        "usage.cache_read.input_tokens": 64,
    }
    for one in sums.values():
        assert one.is_monotonic
        assert one.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_what_is_unknown_is_not_counted_as_0() -> None:
    inferences = Inferences()
    inferences.note(Inference("chat", None, "m", None, None, "refused", 0.1))
    metrics = told(inferences)
    assert set(metrics) == {"duration"}
    (point,) = metrics["duration"].histogram.data_points
    assert attributes(point) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "error.type": "refused",
    }


def test_models_beyond_the_most_are_counted_together() -> None:
    inferences = Inferences()
    for number in range(MOST_SERVERS + 5):
        inferences.note(Inference("chat", "vllm", f"adapter-{number}", "a", 80, None, 0.1))
    inferences.note(Inference("chat", "vllm", "adapter-0", "a", 80, None, 0.1))
    points = told(inferences)["duration"].histogram.data_points
    assert len(points) == MOST_SERVERS + 1
    assert {point.count for point in points if attributes(point) == {"otel.metric.overflow": True}} == {5}
    assert sum(point.count for point in points) == MOST_SERVERS + 6


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_a_collector_gets_every_call_whether_it_is_traced_or_not(
    ratio: float, start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "headers").write_text("authorization=Bearer%20secret")
    scripts = (answer_json({}, status=503), answer_chat("Hi"), stream(*chat_stream("Hi", "!")))
    with running_collector() as collector:
        async with scripted_engine(*scripts) as engine:
            flags: dict[str, Any] = {
                "tracing__otlp_endpoint": f"{collector.url}/v1/traces",
                "tracing__sample_ratio": ratio,
                "tracing__metrics_interval_s": 1,
                "tracing__headers_file": tmp_path / "headers",
            }
            gateway = await start(start_gateway, engine.url, f"{engine.url}/", **flags)
            for body in (CHAT, {**CHAT, "stream": True}):
                assert (await client.post(f"{gateway.url}/v1/chat/completions", json=body)).status_code == 200
            gateway.server.should_exit = True

            def whole(request: ExportMetricsServiceRequest) -> bool:
                points = by_name(request)["duration"].histogram.data_points
                return sum(point.count for point in points) == 3

            metrics = by_name(await asyncio.to_thread(collector.wait_for_metrics, whole))
    points = metrics["duration"].histogram.data_points
    assert sorted(str(attributes(point).get("error.type")) for point in points) in (
        ["None", "status_503"],
        ["None", "None", "status_503"],
    )
    assert {attributes(point)["server.port"] for point in points} == {int(engine.url.rpartition(":")[2])}
    assert sum(point.count for point in metrics["time_to_first_chunk"].histogram.data_points) == 1
    assert sum(point.as_int for point in metrics["usage.input_tokens"].sum.data_points) == 80
    assert sum(point.as_int for point in metrics["usage.cache_read.input_tokens"].sum.data_points) == 64
    at = collector.paths.index("/v1/metrics")
    assert collector.headers[at]["authorization"] == "Bearer secret"
    assert not [body for body in collector.bodies if b"canary" in body.lower()]


async def test_a_collector_that_takes_nothing_is_counted(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    with running_collector(*[(404, {}, b"")] * 50) as collector:
        async with scripted_engine(answer_chat("Hi")) as engine:
            flags: dict[str, Any] = {"tracing__otlp_endpoint": collector.url, "tracing__metrics_interval_s": 1}
            gateway = await start(start_gateway, engine.url, tracing__sample_ratio=0.0, **flags)
            assert (await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)).status_code == 200
            await asyncio.to_thread(collector.wait_for_metrics, lambda _: True)
            async with asyncio.timeout(20):
                while not await asyncio.to_thread(gateway.metric, "prefixgate_metric_exports_total", outcome="failed"):
                    await asyncio.sleep(0.02)
