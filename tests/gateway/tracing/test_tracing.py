"""A request as its operator finds it in a collector, over real ports."""

import asyncio
import logging
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.log_lines import LOGGER
from tests.gateway.conftest import StartGateway, start
from tests.gateway.scripted_engine import answer_chat, answer_json, chat_stream, delta, scripted_engine
from tests.gateway.tracing.collector import Collector, attributes, running_collector
from tests.hostile import Behaviour, hang, raw, stream

CANARY = "The canary sings of gravity"
CHAT = {"model": "m", "messages": [{"role": "user", "content": CANARY}], "max_tokens": 9, "user": "canary-user"}
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "canary=1"}
STEPS = ["body", "edge", "tokens", "chain", "match", "decide", "open", "settle"]
AT_ENDPOINT = ["connect", "first_byte", "answer"]
WHOLE = 1 + 1 + len(STEPS) + len(AT_ENDPOINT)


@pytest.fixture
def collector() -> Any:
    with running_collector() as running:
        yield running


async def traced(gateway: StartGateway, collector: Collector, *urls: str, **flags: object) -> str:
    """The URL of a gateway that traces all requests."""
    defaults = {"tracing__otlp_endpoint": collector.url, "tracing__sample_ratio": 1.0}
    return (await start(gateway, *urls, **{**defaults, **flags})).url


def sent_parents(request: bytes) -> list[str]:
    head = request.partition(b"\r\n\r\n")[0].decode()
    return re.findall(r"^traceparent: (.*?)\r?$", head, flags=re.MULTILINE)


def by_name(spans: list[Span]) -> dict[str, Span]:
    named = {span.name: span for span in spans}
    assert len(named) == len(spans)
    return named


@pytest.mark.parametrize("script", [answer_chat(CANARY), stream(*chat_stream(*CANARY.split()))])
async def test_a_request_is_a_tree_of_spans_and_none_of_its_text(
    script: Behaviour, collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(script) as engine:
        url = await traced(start_gateway, collector, engine.url)
        headers = {**CALLER, "x-prefixgate-job-id": "canary-job"}
        answer = await client.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers)
        spans = by_name(await asyncio.to_thread(collector.wait_for, WHOLE))
    root, attempt = spans.pop("POST /v1/chat/completions"), spans.pop("chat m")
    assert sorted(spans) == sorted([*STEPS, *AT_ENDPOINT])

    assert {span.trace_id.hex() for span in (root, attempt, *spans.values())} == {TRACE}
    assert root.parent_span_id.hex() == SPAN
    assert attempt.parent_span_id == root.span_id
    assert {name: spans[name].parent_span_id for name in STEPS} == dict.fromkeys(STEPS, root.span_id)
    assert {name: spans[name].parent_span_id for name in AT_ENDPOINT} == dict.fromkeys(AT_ENDPOINT, attempt.span_id)
    assert len({span.span_id for span in (root, attempt, *spans.values())}) == WHOLE
    assert sent_parents(engine.requests[0]) == [f"00-{TRACE}-{attempt.span_id.hex()}-01"]
    assert b"tracestate: canary=1\r\n" in engine.requests[0]

    kinds = (root.kind, attempt.kind, *{span.kind for span in spans.values()})
    assert kinds == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL)
    assert all(
        root.start_time_unix_nano <= one.start_time_unix_nano <= one.end_time_unix_nano for one in spans.values()
    )
    assert max(one.end_time_unix_nano for one in spans.values()) <= root.end_time_unix_nano
    ordered = [spans[name] for name in ("body", "edge", "tokens", "chain", "match", "decide", *AT_ENDPOINT[:2])]
    for before, after in pairwise(ordered):
        assert before.end_time_unix_nano == after.start_time_unix_nano

    of_answer = {
        "gen_ai.request.stream": False,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 32,
    }
    decided = {name: value for name, value in attributes(root).items() if name.startswith("prefixgate.decision.")}
    assert decided.pop("prefixgate.decision.candidates") == 1
    assert sorted(decided) == [f"prefixgate.decision.{term}" for term in ("cost_s", "prefill_s", "wait_s")]
    assert all(isinstance(value, float) for value in decided.values())
    assert attributes(root) == {
        **of_answer,
        **decided,
        "prefixgate.decision.candidates": 1,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "url.path": "/v1/chat/completions",
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "prefixgate.request_id": answer.headers["x-request-id"],
        "prefixgate.tenant": "default",
        "prefixgate.endpoint": "e0",
        "prefixgate.reason": "no_prefix",
        "prefixgate.state": "complete",
        "prefixgate.expected_cached_tokens": 0,
    }
    assert attributes(attempt) == {
        **of_answer,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "m",
        "prefixgate.endpoint": "e0",
        "prefixgate.outcome": "answered",
        "server.address": "127.0.0.1",
        "server.port": int(engine.url.rpartition(":")[2]),
        "http.response.status_code": 200,
    }
    assert root.status.code == attempt.status.code == Status.STATUS_CODE_UNSET
    (resource,) = {resource.resource.SerializeToString() for one in collector.taken for resource in one.resource_spans}
    assert b"prefixgate" in resource
    assert collector.paths == ["/v1/traces"]
    assert not [body for body in collector.bodies if b"canary" in body.lower()]


async def test_the_log_line_of_a_traced_request_names_its_trace(
    collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER.name)
    async with scripted_engine(answer_chat("Hi")) as engine:
        url = await traced(start_gateway, collector, engine.url, tracing__sample_ratio=0.0)
        for headers in (CALLER, {}):
            await client.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers)
    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "request"]
    assert [line.get("trace_id") for line in lines] == [TRACE, None]


async def test_each_attempt_is_a_span_and_the_engine_gets_that_of_its_own(
    collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({}, status=503), answer_chat("Hi")) as engine:
        url = await traced(start_gateway, collector, engine.url, f"{engine.url}/")
        answer = await client.post(f"{url}/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        spans = await asyncio.to_thread(collector.wait_for, WHOLE + 2)
    failed, answered = (span for span in spans if span.kind == Span.SPAN_KIND_CLIENT)
    (root,) = (span for span in spans if span.kind == Span.SPAN_KIND_SERVER)
    assert [attributes(one)["prefixgate.outcome"] for one in (failed, answered)] == ["status_503", "answered"]
    assert (failed.status.code, answered.status.code) == (Status.STATUS_CODE_ERROR, Status.STATUS_CODE_UNSET)
    assert attributes(failed)["error.type"] == "status_503"
    trace = root.trace_id.hex()
    assert [sent_parents(request) for request in engine.requests] == [
        [f"00-{trace}-{one.span_id.hex()}-01"] for one in (failed, answered)
    ]
    assert root.parent_span_id == b""
    parents = Counter(span.parent_span_id for span in spans)
    assert parents[answered.span_id] == len(AT_ENDPOINT)
    assert (parents[failed.span_id], parents[root.span_id]) == (0, len(STEPS) + 3)


async def test_a_request_that_nobody_could_serve_is_an_error(
    collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(hang) as engine:
        url = await traced(start_gateway, collector, engine.url, limits__first_byte_s=0.1)
        answer = await client.post(f"{url}/v1/chat/completions", json=CHAT)
        assert answer.status_code == 504
        spans = by_name(await asyncio.to_thread(collector.wait_for, 8))
    root, attempt = spans["POST /v1/chat/completions"], spans["chat m"]
    assert (root.status.code, attributes(root)["error.type"]) == (Status.STATUS_CODE_ERROR, "504")
    assert attributes(root)["prefixgate.state"] == "failed"
    assert attributes(attempt)["error.type"] == "FirstByteTimeout"
    assert sorted(spans) == sorted(
        ["POST /v1/chat/completions", "chat m", "body", "edge", "tokens", "chain", "match", "retries"]
    )


async def test_an_answer_whose_client_left_is_told_once_it_was_counted(
    collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    async with scripted_engine(raw(head + b"%x\r\n%b\r\n" % (len(delta("Hi")), delta("Hi")))) as engine:
        url = await traced(start_gateway, collector, engine.url)
        request = client.stream("POST", f"{url}/v1/chat/completions", json={**CHAT, "stream": True})
        async with request as answer:
            await anext(answer.aiter_bytes())
        spans = by_name(await asyncio.to_thread(collector.wait_for, WHOLE))
    root, attempt = attributes(spans["POST /v1/chat/completions"]), attributes(spans["chat m"])
    assert (root["prefixgate.state"], root["prefixgate.estimated"]) == ("partial", True)
    assert attempt["prefixgate.outcome"] == "cut"
    assert "error.type" not in {**root, **attempt}


@pytest.mark.parametrize(
    ("flags", "flag"), [({}, "00"), ({"tracing__otlp_endpoint": None}, "01"), ({"tracing__otlp_endpoint": None}, "00")]
)
async def test_what_is_not_traced_passes_as_the_client_sent_it(
    flags: dict[str, object], flag: str, collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        url = await traced(start_gateway, collector, engine.url, **flags)
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-{flag}", "tracestate": "canary=1"}
        answer = await client.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers)
        assert answer.status_code == 200
    assert sent_parents(engine.requests[0]) == [headers["traceparent"]]
    assert b"tracestate: canary=1\r\n" in engine.requests[0]
    assert collector.bodies == []


async def test_the_collector_gets_its_key_and_at_the_end_all_that_waited(
    collector: Collector, start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "headers").write_text("authorization=Bearer%20secret,\nx-team = gateway\n")
    async with scripted_engine(answer_chat("Hi")) as engine:
        flags: dict[str, object] = {"tracing__headers_file": tmp_path / "headers", "tracing__service_name": "edge"}
        gateway = await start(start_gateway, engine.url, tracing__otlp_endpoint=f"{collector.url}/v1/traces", **flags)
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=CALLER)
        assert answer.status_code == 200
        gateway.server.should_exit = True
        await asyncio.to_thread(collector.wait_for, WHOLE)
    assert collector.headers[0]["authorization"] == "Bearer secret"
    assert collector.headers[0]["x-team"] == "gateway"
    resource = collector.taken[0].resource_spans[0].resource.attributes
    assert {pair.key: pair.value.string_value for pair in resource}["service.name"] == "edge"
