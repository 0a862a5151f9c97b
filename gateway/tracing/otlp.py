"""Spans to a collector: OTLP over HTTP, in protobuf (extra `otel`).

    spans --> ExportTraceServiceRequest --> POST .../v1/traces --> 200, perhaps with some that were refused
                                               |  429, 502, 503, 504, nobody there: again, later and later
                                               `- anything else: they are lost

Which answers are worth another try is as the protocol says, and how long to wait as the collector says.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx
from google.protobuf.message import DecodeError

from gateway.tracing import otlp_messages as otlp
from gateway.tracing.otlp_messages import Message
from gateway.tracing.spans import Kind, Span, Value

TIMEOUT_S: Final = 10.0
FIRST_WAIT_S: Final = 1.0
MOST_WAIT_S: Final = 30.0
"""Longest wait before another try, whatever the collector asks for."""
MOST_TRIES: Final = 5
_AGAIN: Final = frozenset({429, 502, 503, 504})
_KINDS: Final = {
    Kind.SERVER: otlp.SPAN_KIND_SERVER,
    Kind.CLIENT: otlp.SPAN_KIND_CLIENT,
    Kind.INTERNAL: otlp.SPAN_KIND_INTERNAL,
}
_SAMPLED: Final = 1
_HELD_UP_BY: Final = 16


@dataclass(frozen=True, slots=True)
class Collector:
    """Where spans go, and as whose. `headers` may hold a key, and are never shown."""

    url: str
    resource: Mapping[str, Value]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None


class CollectorClient:
    """Sends spans, one batch after the other. Belongs to one thread; `pause` waits, and says whether to go on."""

    def __init__(self, collector: Collector, pause: Callable[[float], bool]) -> None:
        self._collector = collector
        self._pause = pause
        self._resource = otlp.Resource(attributes=pairs_of(collector.resource))
        self._http = httpx.Client(
            headers={**collector.headers, "content-type": "application/x-protobuf"},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=collector.tls or True,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, spans: Sequence[Span]) -> int:
        """Send a batch; how many of its spans the collector took. Waits where it asks for that."""
        body = request_of(self._resource, spans).SerializeToString()
        wait_s = FIRST_WAIT_S
        for left in reversed(range(MOST_TRIES)):
            try:
                answer = self._http.post(self._collector.url, content=body)
            except httpx.HTTPError:
                asked_s = None
            else:
                if answer.is_success:
                    return len(spans) - min(_refused(answer.content), len(spans))
                if answer.status_code not in _AGAIN:
                    return 0
                asked_s = _seconds(answer.headers.get("retry-after"))
            if not left or not self._pause(min(wait_s if asked_s is None else asked_s, MOST_WAIT_S)):
                break
            wait_s *= 2
        return 0


def request_of(resource: Message, spans: Iterable[Span]) -> Message:
    """Spans as the message that a collector takes. 12 µs a span; an event loop that wants to go on waits for 16 of
    them, which is less than the 5 ms after which a switch of threads is forced."""
    scope = otlp.ScopeSpans(scope=otlp.InstrumentationScope(name="prefixgate"))
    for number, span in enumerate(spans, 1):
        scope.spans.append(_message(span))
        if number % _HELD_UP_BY == 0:
            time.sleep(0)
    return otlp.ExportTraceServiceRequest(resource_spans=[otlp.ResourceSpans(resource=resource, scope_spans=[scope])])


def _message(span: Span) -> Message:
    return otlp.Span(
        trace_id=bytes.fromhex(span.trace_id.decode()),
        span_id=bytes.fromhex(span.span_id.decode()),
        parent_span_id=b"" if span.parent_id is None else bytes.fromhex(span.parent_id.decode()),
        flags=_SAMPLED,
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.began,
        end_time_unix_nano=span.ended,
        attributes=pairs_of(span.attributes),
        status=None if span.error is None else otlp.Status(code=otlp.STATUS_CODE_ERROR),
    )


def pairs_of(attributes: Mapping[str, Value]) -> list[Message]:
    """Attributes as a message has them."""
    return [otlp.KeyValue(key=name, value=_any(value)) for name, value in attributes.items()]


def _any(value: Value) -> Message:
    if isinstance(value, bool):
        return otlp.AnyValue(bool_value=value)
    if isinstance(value, int):
        return otlp.AnyValue(int_value=value)
    return otlp.AnyValue(double_value=value) if isinstance(value, float) else otlp.AnyValue(string_value=value)


def _refused(answer: bytes) -> int:
    """How many spans a collector did not take although it took the batch."""
    try:
        return max(int(otlp.ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans), 0)
    except DecodeError:
        return 0


def _seconds(retry_after: str | None) -> float | None:
    """Seconds that a collector asks to wait; None where it does not say, or by a date."""
    return float(retry_after) if retry_after is not None and retry_after.isascii() and retry_after.isdigit() else None
