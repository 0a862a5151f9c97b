"""A collector on a real port: takes spans and metrics over OTLP/HTTP as one does, and answers as it is told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Answer = tuple[int, dict[str, str], bytes]
TAKEN: Answer = (200, {}, ExportTraceServiceResponse().SerializeToString())


@dataclass
class Collector:
    """What came in. `answers` are given one after the other, then `TAKEN`."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    taken: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> list[Span]:
        """All spans that were taken."""
        return [
            span
            for request in self.taken
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def wait_for_metrics(self, holds: Callable[[ExportMetricsServiceRequest], bool]) -> ExportMetricsServiceRequest:
        """The latest metrics, once something holds of them; fails where that does not come about."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(self.metrics) and holds(self.metrics[-1]), 30), self.metrics
            return self.metrics[-1]

    def wait_for(self, spans: int) -> list[Span]:
        """The spans, once there are so many; fails where they do not come."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.spans) >= spans, 30), f"{len(self.spans)} of {spans} came"
        return self.spans

    def takes(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """One request."""
        with self.changed:
            self.paths.append(path)
            self.headers.append(headers)
            self.bodies.append(body)
            answer = self.answers.pop(0) if self.answers else TAKEN
            if path == "/v1/metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            elif answer[0] == 200:
                self.taken.append(ExportTraceServiceRequest.FromString(body))
            self.changed.notify_all()
            return answer


@contextmanager
def running_collector(*answers: Answer) -> Iterator[Collector]:
    """Run one until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            fields = {name.lower(): value for name, value in self.headers.items()}
            status, headers, content = collector.takes(self.path, fields, body)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}", list(answers))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def attributes(span: Span | NumberDataPoint | HistogramDataPoint) -> dict[str, object]:
    """The attributes of a span or a point, by name."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in span.attributes}
