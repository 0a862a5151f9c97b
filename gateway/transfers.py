"""How long it takes until who answers has been handed a prompt, learned by endpoint: the same fit as that of prefills.

    seconds from the decode call to its first token  =  base + carried tokens / rate

What is in it: the call, the steps that it waits for, the cache that comes over the wire, the last token of the prompt.
Where both legs are sent at once, it is the time from the end of the prefill leg on.
"""

from collections.abc import Callable
from typing import Final

from backends import PerfModel
from backends.perf_fit import PerfFit, PrefillSample
from gateway.split_metrics import SplitMetrics

_LEAST_S: Final = 1e-4
"""A first token that came before it could be waited for took as good as no time."""


class Transfers:
    """One fit for each endpoint that answers. Plain calls, no I/O; 10 µs a sample."""

    def __init__(self, prior: PerfModel, metrics: SplitMetrics, clock: Callable[[], float]) -> None:
        self._prior = prior
        self._metrics = metrics
        self._clock = clock
        self._fits: dict[str, PerfFit] = {}

    def of(self, endpoint_id: str) -> PerfModel:
        """What is believed of an endpoint: `prefill_s` of it, with the tokens that are carried."""
        fit = self._fits.get(endpoint_id)
        return self._prior if fit is None else fit.model

    def seen(self, endpoint_id: str, seconds: float, tokens: int) -> None:
        """So many tokens were carried to an endpoint; where none were, nothing is learned."""
        self._metrics.transfer_s(endpoint_id).observe(max(seconds, 0.0))
        self._metrics.carried_tokens(endpoint_id).inc(tokens)
        if tokens > 0:
            fit = self._fits.setdefault(endpoint_id, PerfFit(self._prior))
            fit.prefill(PrefillSample(max(seconds, _LEAST_S), tokens, 0.0), self._clock())

    def new_generation(self, endpoint_id: str, _generation: int) -> None:
        """The engine is another one now."""
        self._fits.pop(endpoint_id, None)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._fits.pop(endpoint_id, None)

    def as_json(self) -> dict[str, dict[str, float | int]]:
        """What was learned, by endpoint: seconds, tokens a second, samples."""
        return {
            endpoint_id: {
                "base_s": fit.model.base_s,
                "tokens_per_s": fit.model.prefill_tokens_per_s,
                "samples": fit.samples,
            }
            for endpoint_id, fit in self._fits.items()
        }
