"""What a scrape gets: the form it asks for, and the traces behind what was slow."""

import asyncio

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gateway.exposition import Form, form_for, told
from gateway.metrics import SeriesRegistry, histograms
from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, scripted_engine
from tests.gateway.tracing.collector import running_collector

PROMETHEUS = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,*/*;q=0.1"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.TEXT),
        ("*/*", Form.TEXT),
        ("text/plain;version=0.0.4", Form.TEXT),
        (PROMETHEUS, Form.OPEN_METRICS),
        ("text/plain, Application/OpenMetrics-Text ; version=1.0.0", Form.OPEN_METRICS),
        ("application/openmetrics-text;q=0.0", Form.TEXT),
        ("application/openmetrics-text;q=0.05", Form.OPEN_METRICS),
        ("application/openmetrics-textual", Form.TEXT),
    ],
)
def test_a_scrape_gets_the_form_that_it_can_read(accept: str | None, form: Form) -> None:
    assert form_for(() if accept is None else ((b"accept", accept.encode()),)) is form


def test_a_bucket_names_the_latest_trace_that_fell_into_it() -> None:
    registry = SeriesRegistry()
    series = histograms(registry, "seen_seconds", "Seen.", ["endpoint"], (0.1, 1))
    for value, trace_id in ((0.05, None), (0.5, b"1" * 32), (0.7, b"2" * 32), (0.9, None), (30, b"3" * 32)):
        series("a").observe(value, trace_id)
    series("b").observe(0.5)
    (family,) = text_string_to_metric_families(told(registry, Form.OPEN_METRICS).decode())  # type: ignore[no-untyped-call]
    found = {(one.labels["endpoint"], one.labels["le"]): one.exemplar for one in family.samples if one.exemplar}
    assert {bucket: (one.labels, one.value) for bucket, one in found.items()} == {
        ("a", "1.0"): ({"trace_id": "2" * 32}, 0.7),
        ("a", "+Inf"): ({"trace_id": "3" * 32}, 30.0),
    }
    assert b"trace_id" not in told(registry, Form.TEXT)


async def test_what_a_traced_request_took_names_its_trace_in_open_metrics_alone(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        with running_collector() as collector:
            gateway = await start(start_gateway, engine.url, tracing__otlp_endpoint=collector.url)
            url = f"{gateway.url}/v1/chat/completions"
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            await client.post(url, json=CHAT, headers={"traceparent": headers["traceparent"][:-1] + "0"})
            untraced = await client.get(f"{gateway.url}/metrics", headers={"accept": PROMETHEUS})
            await client.post(url, json=CHAT, headers=headers)
            await asyncio.to_thread(collector.wait_for, 1)
            traced = await client.get(f"{gateway.url}/metrics", headers={"accept": PROMETHEUS})
            text = await client.get(f"{gateway.url}/metrics")
    assert untraced.headers["content-type"] == traced.headers["content-type"] == Form.OPEN_METRICS.value.decode()
    assert text.headers["content-type"] == Form.TEXT.value.decode()
    assert "trace_id" not in untraced.text + text.text
    families = list(text_string_to_metric_families(traced.text))  # type: ignore[no-untyped-call]
    named = {family.name for family in families for one in family.samples if one.exemplar is not None}
    assert {one.exemplar.labels["trace_id"] for family in families for one in family.samples if one.exemplar} == {TRACE}
    assert named == {
        "prefixgate_time_to_first_token_seconds",
        "prefixgate_request_duration_seconds",
        "prefixgate_decision_seconds",
        "prefixgate_decision_regret_seconds",
    }
