"""Spans on their way to a collector that is slow, busy, picky or away; and a configuration that cannot work."""

import random
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from gateway.config import ConfigInvalid, load_config
from gateway.telemetry import Telemetry
from gateway.tracing import TracedRequest, Tracer, tracer_of
from gateway.tracing.context import Sampler
from gateway.tracing.otlp import Collector, CollectorClient
from gateway.tracing.spans import Span, spans_of
from gateway.types import Route
from tests.gateway.tracing.collector import TAKEN, Answer, running_collector

REQUEST = TracedRequest(
    trace_id=b"1" * 32,
    parent_id=None,
    span_id=b"2" * 16,
    attempt_ids=(),
    began_s=1.0,
    ended_s=2.0,
    opened_at=datetime(2026, 11, 30, tzinfo=UTC),
    steps=(),
    attempts=(),
    urls={},
    route=Route.CHAT,
    path=Route.CHAT.value,
    status=None,
    failed=True,
    attributes={"nothing": None, "share": 0.5},
    of_answer={},
    model="m",
    provider=None,
)
SPANS = [*spans_of(REQUEST, iter(()))]
BUSY: Answer = (503, {}, b"")


def sent_to(url: str, goes_on: bool = True) -> tuple[int, list[float]]:
    """How many spans a collector took, and the waits on the way."""
    waits: list[float] = []

    def pause(seconds: float) -> bool:
        waits.append(seconds)
        return goes_on

    with closing(CollectorClient(Collector(url, {}), pause)) as client:
        return client.send(SPANS), waits


def test_a_request_without_status_is_an_error_all_the_same() -> None:
    (span,) = SPANS
    assert (span.error, span.attributes["error.type"], span.ended - span.began) == ("failed", "failed", 1_000_000_000)
    assert "nothing" not in span.attributes


@pytest.mark.parametrize(
    ("answers", "taken", "waits"),
    [
        ([], 1, []),
        ([(200, {}, b"no protobuf")], 1, []),
        ([BUSY, (429, {}, b"")], 1, [1.0, 2.0]),
        ([(503, {"retry-after": "7"}, b""), (502, {"retry-after": "99999"}, b"")], 1, [7.0, 30.0]),
        ([(503, {"retry-after": "Mon, 30 Nov 2026 08:00:00 GMT"}, b"")], 1, [1.0]),
        ([BUSY] * 5, 0, [1.0, 2.0, 4.0, 8.0]),
        ([(400, {}, b"")], 0, []),
        ([(500, {}, b"")], 0, []),
        ([(302, {"location": "/elsewhere"}, b"")], 0, []),
    ],
)
def test_what_is_worth_another_try_is_tried_again(answers: list[Answer], taken: int, waits: list[float]) -> None:
    with running_collector(*answers) as collector:
        assert sent_to(collector.url) == (taken, waits)


def test_a_collector_that_takes_only_some_says_so() -> None:
    refusal = ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=1, error_message="old")
    )
    with running_collector((200, {}, refusal.SerializeToString())) as collector:
        assert sent_to(collector.url) == (0, [])


@pytest.mark.parametrize(("refused", "taken"), [(10**12, 0), (-(10**12), 1)])
def test_a_collector_that_tells_impossible_numbers_makes_no_counter_fall(refused: int, taken: int) -> None:
    said = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=refused))
    with running_collector((200, {}, said.SerializeToString())) as collector:
        assert sent_to(collector.url) == (taken, [])


def test_a_collector_that_is_away_is_tried_until_the_gateway_stops() -> None:
    assert sent_to("http://127.0.0.1:9") == (0, [1.0, 2.0, 4.0, 8.0])
    assert sent_to("http://127.0.0.1:9", goes_on=False) == (0, [1.0])


class Hanging:
    """A sink that takes nothing until it is told to."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.sent = 0

    def send(self, spans: Sequence[Span]) -> int:
        self.begun.set()
        assert self.released.wait(30)
        self.sent += len(spans)
        return len(spans)

    def close(self) -> None:
        """Nothing to close."""


def counts(telemetry: Telemetry) -> dict[str, float]:
    name, outcomes = "prefixgate_trace_spans_total", ("sent", "failed", "dropped")
    found = {outcome: telemetry.registry.get_sample_value(name, {"outcome": outcome}) for outcome in outcomes}
    return {outcome: value for outcome, value in found.items() if value}


def tracer_to(sink: Hanging, telemetry: Telemetry) -> Tracer:
    dice = random.Random(7)
    return Tracer(Sampler(1.0, dice), lambda _: sink, telemetry.trace_spans, dice)


def test_a_collector_that_hangs_costs_spans_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.tracing.tracer.MOST_WAITING", 10)
    monkeypatch.setattr("gateway.tracing.tracer.GATHER_S", 0.0)
    sink, telemetry = Hanging(), Telemetry()
    tracer = tracer_to(sink, telemetry)
    tracer.ended(REQUEST)
    assert sink.begun.wait(30)
    for _ in range(100):
        tracer.ended(REQUEST)
    assert counts(telemetry) == {"dropped": 91}
    sink.released.set()
    tracer.close()
    assert counts(telemetry) == {"dropped": 91, "sent": 10}
    assert sink.sent == 10


def test_a_fault_in_sending_costs_its_spans_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hanging):
        def send(self, spans: Sequence[Span]) -> int:
            if not self.begun.is_set():
                self.begun.set()
                raise RuntimeError("secret")
            return len(spans)

    sink, telemetry = Broken(), Telemetry()
    tracer = tracer_to(sink, telemetry)
    tracer.ended(REQUEST)
    tracer.close()
    tracer.ended(REQUEST)
    tracer.close()
    assert counts(telemetry) == {"failed": 1, "sent": 1}
    assert "secret" not in caplog.text


def config_of(**flags: object) -> Callable[[], Tracer | None]:
    tree = {f"tracing.{name}": value for name, value in flags.items()}
    return lambda: tracer_of(load_config(None, {}, {"tracing.otlp_endpoint": "http://c:4318", **tree}), {}, Telemetry())


def test_without_an_endpoint_there_is_no_tracer() -> None:
    assert tracer_of(load_config(None, {}, {}), {}, Telemetry()) is None


def test_a_missing_extra_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gateway.tracing.otlp", None)
    with pytest.raises(ConfigInvalid, match=r"\.\[otel\]"):
        config_of()()


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ({"otlp_endpoint": "collector:4318"}, "otlp_endpoint"),
        ({"otlp_endpoint": "http://user:secret@collector"}, "otlp_endpoint"),
        ({"sample_ratio": 1.5}, "sample_ratio"),
        ({"headers_env": "NOWHERE"}, "tracing.headers: the variable NOWHERE is not set"),
        ({"headers_env": "A", "headers_file": "b"}, "given twice"),
        ({"ca_file": "/nowhere/ca.pem"}, "tracing.ca_file"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(flags: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigInvalid, match=what):
        config_of(**flags)()


@pytest.mark.parametrize("text", ["secret", "=secret", "a b=secret", "a=sec\x00ret", "a=ß"])
def test_headers_that_are_none_are_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(text)
    with pytest.raises(ConfigInvalid, match=r"tracing\.headers") as refused:
        config_of(headers_file=tmp_path / "headers")()
    assert "sec" not in str(refused.value)


def test_a_collector_with_an_authority_of_its_own_is_asked_with_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigInvalid, match=r"tracing\.ca_file"):
        config_of(ca_file=tmp_path / "ca.pem")()


def test_what_a_taken_batch_is_answered_is_read() -> None:
    assert ExportTraceServiceResponse.FromString(TAKEN[2]).partial_success.rejected_spans == 0
