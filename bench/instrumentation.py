"""What a gateway's word about itself costs it: microseconds of the event loop for metrics, log line, steps and spans.

    counter, gauge, histogram     ours beside prometheus_client's                a dozen to two dozen of them a request
    log line                      ours beside the `logging` module's              one a request
    steps                         the moments noted, the steps told at the end    once a request
    spans                         a request that is traced, its parts             as many as are sampled

The least of many short runs, less that of an empty call: what else the machine does lengthens single runs.
"""

import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, TextIO

import prometheus_client
from prometheus_client import CollectorRegistry

from bench.result import Goal, write_result
from billing import Attempt
from gateway.log_lines import LOGGER, set_up_logging, tell
from gateway.metrics import counters, gauges, histograms
from gateway.timing import BOUNDS_S, Marks, StepTimes, TimingHeader
from gateway.tracing import TracedRequest
from gateway.tracing.context import Sampler, new_id
from gateway.tracing.otlp import request_of
from gateway.tracing.otlp_messages import Resource
from gateway.tracing.spans import spans_of
from gateway.types import Route

CALLS, RUNS = 100, 1000
_US: Final = 1000.0
LABELS: Final = ["endpoint", "kind"]
LINE: Final[dict[str, object]] = {
    "request_id": "01M8N3G9R5NZRC252N8BJ2B6YA",
    "tenant": "acme-support",
    "model": "llama-3.1-8b",
    "route": "/v1/chat/completions",
    "stream": True,
    "state": "complete",
    "status": 200,
    "endpoint": "gpu-0",
    "reason": "prefix_hit",
    "prompt_tokens": 8123,
    "cached_tokens": 8000,
    "expected_cached_tokens": 8000,
    "output_tokens": 222,
    "ttft_s": 0.1234567,
    "duration_s": 2.345678,
    "attempts": 1,
    "regret_s": 0.0,
}
FIELDS: Final = tuple((b"x-field-%d" % number, b"value") for number in range(9))
ASKING: Final = (*FIELDS, (b"x-prefixgate-timing", b"1"))
CALLER: Final = (*FIELDS, (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
MARKS: Final = Marks(*(1000 + number / 1000 for number in range(14)))

Row = dict[str, object]


def cost_us(call: Callable[[], object], calls: int = CALLS, runs: int = RUNS) -> float:
    """Microseconds of a call."""
    return max(_least_ns(call, calls, runs) - _least_ns(lambda: None, calls, runs), 0.0) / _US


def _least_ns(call: Callable[[], object], calls: int, runs: int) -> float:
    least = float("inf")
    each = range(calls)
    for _ in range(runs):
        began_ns = time.perf_counter_ns()
        for _ in each:
            call()
        least = min(least, (time.perf_counter_ns() - began_ns) / calls)
    return least


def metric_rows() -> Iterator[Row]:
    """An update with its look-up, beside the library's own without one."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count = counters(ours, "count", "", LABELS)
    seen, gauge = histograms(ours, "seen", "", LABELS, BOUNDS_S), gauges(ours, "gauge", "", LABELS)
    library = prometheus_client.Counter("count", "", LABELS, registry=theirs).labels("gpu-0", "prompt")
    histogram = prometheus_client.Histogram("seen", "", LABELS, registry=theirs, buckets=BOUNDS_S)
    its_seen, its_gauge = histogram.labels("gpu-0", "prompt"), prometheus_client.Gauge("gauge", "", registry=theirs)
    yield _row("counter", cost_us(lambda: count("gpu-0", "prompt").inc(812)), cost_us(lambda: library.inc(812)))
    yield _row("gauge", cost_us(lambda: gauge("gpu-0", "kind").set(0.5)), cost_us(lambda: its_gauge.set(0.5)))
    yield _row("histogram", cost_us(lambda: seen("gpu-0", "x").observe(0.3)), cost_us(lambda: its_seen.observe(0.3)))


def log_rows() -> Iterator[Row]:
    """A request's line into a pipe that is read, beside a handler that formats and writes it at once."""
    with _read_pipe() as writing:
        set_up_logging("info", writing)
        ours = cost_us(lambda: tell("request", LINE), calls=20)
        record = cost_us(lambda: LOGGER.info("request", extra={"fields": LINE}), calls=20)
    with _read_pipe() as writing:
        handler = logging.StreamHandler(writing)
        handler.setFormatter(_AtOnce())
        LOGGER.handlers = [handler]
        yield _row("log line", ours, cost_us(lambda: LOGGER.info("request", extra={"fields": LINE}), calls=20))
    yield _row("log line that was logged, not told", record)


class _AtOnce(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """As one would."""
        return json.dumps({"time": self.formatTime(record), "message": record.getMessage(), **vars(record)["fields"]})


@contextmanager
def _read_pipe() -> Iterator[TextIO]:
    reading, writing = os.pipe()

    def read() -> None:
        while os.read(reading, 1 << 20):
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "w") as stream:
        yield stream
        for handler in LOGGER.handlers:
            handler.close()
    reader.join()
    os.close(reading)


def step_rows() -> Iterator[Row]:
    """The moments of a request noted, its steps told, and the field of its answer."""
    steps, header, monotonic = StepTimes(CollectorRegistry()), TimingHeader("asked", coarse=False), time.monotonic

    def noted() -> None:
        marks = Marks()
        marks.received_s = monotonic()
        marks.parsed_s = monotonic()
        marks.rendered_s = monotonic()
        marks.tokens_s = monotonic()
        marks.planned_s = monotonic()
        marks.matched_s = monotonic()
        marks.sent_s = monotonic()
        marks.connected_s = marks.sent_s
        marks.answered_s = monotonic()
        marks.opened_s = monotonic()
        marks.ended_s = monotonic()
        marks.settled_s = monotonic()
        steps.note(999.0, marks)

    yield _row("steps", cost_us(noted))
    yield _row("timing header, not asked for", cost_us(lambda: header.value(FIELDS, 999.0, MARKS)))
    yield _row("timing header", cost_us(lambda: header.value(ASKING, 999.0, MARKS)))


def span_rows() -> Iterator[Row]:
    """A request that is traced: on the event loop, and in the thread."""
    dice = random.Random(1)
    never, always = Sampler(0.0, dice), Sampler(1.0, dice)
    ids = iter(lambda: new_id(dice, 64), b"")
    at = datetime.now(UTC)
    attempt = Attempt(
        request_id="01M8N3G9R5NZRC252N8BJ2B6YA",
        ordinal=0,
        endpoint_id="gpu-0",
        started_at=at,
        ended_at=at,
        outcome="answered",
        status=200,
    )

    def on_the_loop() -> TracedRequest:
        trace = always.trace_of(CALLER)
        assert trace is not None
        trace.attempt(CALLER)
        return TracedRequest(
            trace_id=trace.trace_id,
            parent_id=trace.parent_id,
            span_id=trace.span_id,
            attempt_ids=tuple(trace.attempt_ids),
            began_s=999.0,
            ended_s=1002.0,
            opened_at=at,
            steps=tuple(MARKS.steps(999.0)),
            attempts=(attempt,),
            urls={},
            route=Route.CHAT,
            path=Route.CHAT.value,
            status=200,
            failed=False,
            attributes={f"prefixgate.{name}": str(value) for name, value in LINE.items()},
            of_answer={},
            model="llama-3.1-8b",
            provider="vllm",
        )

    request, resource = on_the_loop(), Resource()
    yield _row("tracing, request not sampled", cost_us(lambda: never.trace_of(FIELDS)))
    yield _row("tracing, on the event loop", cost_us(on_the_loop))
    in_thread_ns = []
    for _ in range(RUNS):
        began_ns = time.thread_time_ns()  # without the pauses in which it lets others go on
        request_of(resource, spans_of(request, ids)).SerializeToString()
        in_thread_ns.append(time.thread_time_ns() - began_ns)
    in_thread = min(in_thread_ns) / _US
    yield _row("tracing, in the thread", in_thread)


def _row(what: str, us: float, usual_us: float | None = None) -> Row:
    return {"what": what, "us": round(us, 3), "usual_us": None if usual_us is None else round(usual_us, 3)}


def main() -> None:
    """Measure all, print it, and write bench/results/instrumentation.json."""
    rows = [*metric_rows(), *log_rows(), *step_rows(), *span_rows()]
    for row in rows:
        beside = "" if row["usual_us"] is None else f"   usually {row['usual_us']:8.3f}"
        print(f"{row['what']:36} {row['us']:8.3f} µs{beside}")
    found = {str(row["what"]): float(str(row["us"])) for row in rows}
    goals = [
        Goal("steps of a request, moments and histograms, µs", found["steps"], 3.0, "<="),
        Goal("log line, µs", found["log line"], 3.0, "<="),
        Goal("counter, µs", found["counter"], 0.2, "<="),
        Goal("histogram, µs", found["histogram"], 0.3, "<="),
    ]
    for goal in goals:
        print(goal.text())
    print(write_result("instrumentation", rows, goals, ["prometheus-client", "msgspec", "protobuf"]))
    sys.exit(0 if all(goal.met for goal in goals) else 1)


if __name__ == "__main__":
    main()
