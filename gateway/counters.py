"""What the engines' own counters say, written down now and then, so that the ledger can be held against them.

    registry polls ──every poll──> metrics
                       `──every 60 s, before and after a restart, and at the end──> ledger

No poll is made for this: what the registry has read is looked at here again. A poll that took long says too little of
when the counters stood as it says, and is left out.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from backends import EndpointSnapshot
from billing import EngineSample
from billing.verification.reconciling import SAMPLED_WITHIN_S
from gateway.exchange import Clocks
from gateway.verification_metrics import VerificationMetrics

SAMPLE_S: Final = 60.0
"""Between two samples in the ledger: half a million rows a year for each endpoint."""


@dataclass(slots=True)
class _Seen:
    sample: EngineSample
    written: bool = False


class EngineCounters:
    """Keeps the last counters of each endpoint. `write` puts a sample into the ledger, and waits for nothing."""

    def __init__(
        self,
        snapshot: Callable[[], tuple[EndpointSnapshot, ...]],
        write: Callable[[EngineSample], object],
        metrics: VerificationMetrics,
        clocks: Clocks,
        every_s: float = SAMPLE_S,
    ) -> None:
        self._snapshot = snapshot
        self._write = write
        self._metrics = metrics
        self._clocks = clocks
        self._every = timedelta(seconds=every_s)
        self._seen: dict[str, _Seen] = {}
        self._written: dict[str, EngineSample] = {}

    async def run(self, poll_interval_s: float) -> None:
        """Look after each poll until cancelled; then write what was seen last."""
        try:
            while True:
                self.look()
                await asyncio.sleep(poll_interval_s)
        finally:
            self.look()
            for seen in self._seen.values():
                self._put(seen)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more: what was seen of it last goes into the ledger."""
        seen = self._seen.pop(endpoint_id, None)
        if seen is not None:
            self._put(seen)
        self._written.pop(endpoint_id, None)

    def look(self) -> None:
        """Take what the endpoints' pages said last; where it is time, into the ledger too."""
        for endpoint in self._snapshot():
            sample = self._sample(endpoint)
            before = self._seen.get(endpoint.id)
            if sample is None or (before is not None and before.sample.sampled_at >= sample.sampled_at):
                continue
            is_new = before is None or before.sample.generation != sample.generation
            if before is not None and is_new:
                self._put(before)
            self._count(sample, None if before is None or is_new else before.sample)
            seen = self._seen[endpoint.id] = _Seen(sample)
            if is_new or sample.sampled_at - self._written[endpoint.id].sampled_at >= self._every:
                self._put(seen)

    def _put(self, seen: _Seen) -> None:
        if not seen.written:
            seen.written = True
            self._written[seen.sample.endpoint_id] = seen.sample
            self._write(seen.sample)

    def _sample(self, endpoint: EndpointSnapshot) -> EngineSample | None:
        load = endpoint.load
        if load is None or load.took_s > SAMPLED_WITHIN_S or load.prefix_hits is load.prefix_queries is None:
            return None
        age = timedelta(seconds=self._clocks.monotonic() - load.fetched_at_s)
        return EngineSample(
            endpoint_id=endpoint.id,
            sampled_at=self._clocks.wall() - age,
            generation=endpoint.generation,
            hit_tokens=None if load.prefix_hits is None else int(load.prefix_hits),
            query_tokens=None if load.prefix_queries is None else int(load.prefix_queries),
        )

    def _count(self, sample: EngineSample, before: EngineSample | None) -> None:
        """Raise the metrics: by all of it where the engine is new, since it began at 0 then."""
        pairs = (
            ("hits", sample.hit_tokens, None if before is None else before.hit_tokens),
            ("queries", sample.query_tokens, None if before is None else before.query_tokens),
        )
        for kind, now, then in pairs:
            if now is not None and now > (then or 0):
                self._metrics.engine_tokens(sample.endpoint_id, kind).inc(now - (then or 0))
