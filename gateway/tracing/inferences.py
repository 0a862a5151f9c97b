"""Calls of engines as OpenTelemetry's conventions for generative AI count them: `gen_ai.client.inference.*`.

    an attempt ends --Inference--> how long it took, when its first chunk came, its tokens     by model and server
                                        `--every so often, in a thread--> collector (otlp_metrics)

All requests are counted, traced or not. Tokens are the engine's word: what it does not say, and what is estimated, is
not counted as 0, but not at all. So many series are kept; what would make more is counted under
`otel.metric.overflow`. Costs: 4 µs to count a call of an engine, 7 with what is made for that.
"""

from dataclasses import dataclass
from typing import Final

from gateway.metrics import SeriesRegistry, counters, histograms

PREFIX: Final = "gen_ai.client.inference"
OVERFLOW: Final = "otel.metric.overflow"
MOST_SERVERS: Final = 1000
"""Of models at servers, by how their calls ended: adapters are models, and there may be thousands."""
_BOUNDS_S: Final = tuple(0.01 * 2**power for power in range(14))
"""As the conventions have them: 10 ms to 82 s."""
_LABELS: Final = (
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.request.model",
    "server.address",
    "server.port",
    "error.type",
    OVERFLOW,
)
_KINDS: Final = ("input_tokens", "output_tokens", "cache_read.input_tokens")
_REST: Final = ("", "", "", "", "", "", "true")


@dataclass(frozen=True, slots=True)
class Inference:
    """One call of an engine that is over. None is unknown; `error` None where it was none.

    `first_chunk_s` is of streams alone. `tokens` are of the prompt, of the answer, and of the prompt those cached.
    """

    operation: str
    provider: str | None
    model: str
    server: str | None
    port: int | None
    error: str | None
    duration_s: float
    first_chunk_s: float | None = None
    tokens: tuple[int | None, int | None, int | None] = (None, None, None)


class Inferences:
    """Counts them. `note` is of the event loop; `registry` may be collected in any thread."""

    def __init__(self) -> None:
        registry = self.registry = SeriesRegistry()
        self._duration_s = histograms(registry, f"{PREFIX}.duration", "Duration of a call.", _LABELS, _BOUNDS_S)
        self._first_chunk_s = histograms(
            registry, f"{PREFIX}.time_to_first_chunk", "Until a stream's first chunk.", _LABELS, _BOUNDS_S
        )
        self._tokens = tuple(
            counters(registry, f"{PREFIX}.usage.{kind}", "Tokens, as the engine counts them.", _LABELS)
            for kind in _KINDS
        )
        self._seen: set[tuple[str, ...]] = set()

    def note(self, call: Inference) -> None:
        """A call is over."""
        port = "" if call.port is None else str(call.port)
        at = (call.operation, call.provider or "", call.model, call.server or "", port, call.error or "", "")
        if at not in self._seen:
            if len(self._seen) < MOST_SERVERS:
                self._seen.add(at)
            else:
                at = _REST
        self._duration_s(*at).observe(call.duration_s)
        if call.first_chunk_s is not None:
            self._first_chunk_s(*at).observe(call.first_chunk_s)
        for counted, tokens in zip(self._tokens, call.tokens, strict=True):
            if tokens is not None:
                counted(*at).inc(tokens)
