"""Requests that are traced, and the thread that tells a collector of them.

    begins   Sampler.trace_of(headers) --> Trace, or None       nothing more until it is over
    ends     Trace, marks, settlement --> TracedRequest --> backlog
    thread "trace-exporter"    TracedRequest --> spans --> collector, a batch at a time

A collector that is slow or away stops the thread alone: up to `MOST_WAITING` requests wait, the spans of further ones
are dropped. Both are counted, by what became of the spans: sent, failed, dropped.
"""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from gateway.backlog import Backlog
from gateway.log_lines import LOGGER
from gateway.metrics import Counter
from gateway.tracing.context import Sampler, Trace, new_id
from gateway.tracing.inferences import Inferences
from gateway.tracing.spans import Span, TracedRequest, spans_of
from gateway.types import Headers

MOST_WAITING: Final = 4096
"""Requests, some 3 KB each."""
GATHER_S: Final = 1.0
MOST_AT_ONCE: Final = 16
"""Requests in a message to the collector, some 40 KB: making their spans holds the event loop up for under 1 ms."""
DRAIN_S: Final = 2.0
"""Patience with the collector when the gateway stops."""


class SpanSink(Protocol):
    """Sends spans away."""

    def send(self, spans: Sequence[Span]) -> int:
        """How many of them were taken."""

    def close(self) -> None:
        """Nothing is sent any more."""


class Tracer:
    """Traces requests. `sink_of` gets a function that waits in the exporting thread, until the gateway stops.

    `counted` counts spans by what became of them.
    """

    def __init__(
        self,
        sampler: Sampler,
        sink_of: Callable[[Callable[[float], bool]], SpanSink],
        counted: Callable[..., Counter],
        dice: random.Random,
    ) -> None:
        self._sampler = sampler
        self._stopping = threading.Event()
        self._sink = sink_of(self._pause)
        self._counted = counted
        self._ids = _ids(dice)
        self._closing: list[Callable[[float], None]] = []
        self.inferences: Inferences | None = None
        """Where calls of engines are counted, all of them; None where nobody asks for that."""
        self._backlog = Backlog("trace-exporter", self._export, most=MOST_WAITING, gather_s=GATHER_S)

    def on_close(self, close: Callable[[float], None]) -> None:
        """Call this at the end too, with the patience that it has."""
        self._closing.append(close)

    def trace_of(self, headers: Headers) -> Trace | None:
        """What a request is traced as; None where it is not."""
        return self._sampler.trace_of(headers)

    def ended(self, request: TracedRequest) -> None:
        """A request is over. Plain call, no I/O."""
        if not self._backlog.put(request):
            self._counted("dropped").inc(request.span_count)

    def close(self) -> None:
        """Send what waits, within `DRAIN_S`; blocking."""
        for close in self._closing:
            close(DRAIN_S)
        self._backlog.flush(DRAIN_S)
        self._stopping.set()
        self._backlog.close()
        self._sink.close()

    def _pause(self, seconds: float) -> bool:
        return not self._stopping.wait(seconds)

    def _export(self, requests: list[TracedRequest]) -> None:
        for first in range(0, len(requests), MOST_AT_ONCE):
            spans = [span for one in requests[first : first + MOST_AT_ONCE] for span in spans_of(one, self._ids)]
            sent = 0
            try:
                sent = self._sink.send(spans)
            except Exception as error:  # noqa: BLE001 - the guard of the thread
                LOGGER.error("spans were not sent", extra={"fields": {"error": type(error).__name__}})
            self._counted("sent").inc(sent)
            self._counted("failed").inc(len(spans) - sent)


def _ids(dice: random.Random) -> Iterator[bytes]:
    while True:
        yield new_id(dice, 64)
